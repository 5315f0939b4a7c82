"""Live: server-sent events for the page that operators have open.

There is one look a second, however many pages are open, and none while no page is open.  Pages with the same
view and the same permissions share an event.  An event has at most the rows of one page, and a page that has
not taken one gets no other before.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial

from kernel.contracts.engine import Host
from kernel.contracts.system import System
from plugins.engines.web.answer import Answer, Request, Respond, Stream, encoded, error
from plugins.engines.web.logins import NOBODY, WebUser, comes_from_elsewhere
from plugins.engines.web.look import Look, Rates, Row, View
from plugins.engines.web.slices import in_slices

INTERVAL = 1.0
"""Seconds between two looks."""

LONGEST = 300.0
"""Seconds that a stream lasts.  The browser then asks again, with a login, so that a user who has lost a
permission does not look on."""


class Viewer:
    """One open page."""

    def __init__(self, user: WebUser, view: View, stream: Stream, until: float) -> None:
        self.user = user
        self.view = view
        self.stream = stream
        self.until = until
        self.served = False
        """Whether it was sent an event."""


class Live:
    """Sends events to those who look."""

    def __init__(self, system: System, host: Host, broker: str, most: int) -> None:
        """``broker``: whose queues are shown.  ``most``: pages at a time."""
        self._system = system
        self._host = host
        self._broker = broker
        self._most = most
        self._viewers: dict[Viewer, None] = {}
        self._rates: Rates | None = None
        self._last: Look | None = None
        self._looking = False
        """Whether a look is being made, or sent."""

    def answer(self, request: Request, user: WebUser, respond: Respond) -> None:
        """Begin to send events to a user who has logged in."""
        if comes_from_elsewhere(request):
            respond(error(403, "forbidden", "the request was made by a page of another site"))
            return
        try:
            view = View.of(request.query)
        except ValueError as wrong:
            respond(error(400, "bad_request", str(wrong)))
            return
        if len(self._viewers) >= self._most:
            respond(error(503, "Service Unavailable", f"{self._most} pages are open, and no more are served"))
            return
        respond(Answer(200, (), "text/event-stream", begin=partial(self._begin, user, view)))

    def _begin(self, user: WebUser, view: View, stream: Stream) -> Callable[[], None]:
        viewer = Viewer(user, view, stream, self._host.now() + LONGEST)
        self._viewers[viewer] = None
        # In a later turn, because the head of the answer is not written yet.
        if not self._looking:
            self._host.soon(partial(self._first, viewer))
        return partial(self._gone, viewer)

    def _first(self, viewer: Viewer) -> None:
        """Send a first event, of the look that there is."""
        if self._looking or viewer.served or viewer not in self._viewers:
            return
        # The last look is a second old at most. So a page that is opened has figures at once.
        if self._last is None:
            self._look()
        else:
            in_slices(self._host, self._send(self._last, (viewer,)), _nothing, _nothing)

    def _gone(self, viewer: Viewer) -> None:
        self._viewers.pop(viewer, None)
        if not self._viewers:
            self._host.set_timer(None, self._look, self)
            # While no page is open nothing is remembered.
            self._rates = self._last = None

    def _look(self) -> None:
        self._looking = True
        in_slices(self._host, self._steps(), _nothing, self._looked)

    def _steps(self) -> Iterator[None]:
        now = self._host.now()
        rates = self._rates = Rates(now, self._rates)
        look = Look(self._system.statistics(), self._system.plan, self._broker, now, rates)
        yield from look.make()
        if self._viewers:
            self._last = look
            # A copy: between two slices pages are opened and closed.
            yield from self._send(look, list(self._viewers))

    def _send(self, look: Look, viewers: Iterable[Viewer]) -> Iterator[None]:
        events: dict[tuple[WebUser, View], bytes] = {}
        for viewer in viewers:
            key = (viewer.user, viewer.view)
            if key not in events:
                events[key] = yield from self._event(look, *key)
            viewer.served = True
            if viewer.until <= look.now:
                viewer.stream.end()
            else:
                # One that has not taken the event before gets none; its connection ends if this lasts.
                viewer.stream.write(events[key])
            yield

    def _event(self, look: Look, user: WebUser, view: View) -> Generator[None, None, bytes]:
        found: list[Row] = []
        yield from look.page(user.opens, view, found.append)
        content = {"broker": self._broker, "user": user.name, "tags": user.tags, "queues": found[0]}
        text = encoded(content)
        if user is NOBODY or user.monitors:
            # The same text for all views, as most of it is this.
            text = b'%b,"system":%b}' % (text[:-1], look.system)
        return b"data: %b\n\n" % text

    def _looked(self) -> None:
        self._looking = False
        if self._viewers:
            self._host.set_timer(self._host.now() + INTERVAL, self._look, self)


def _nothing(*_: object) -> None:
    """There is nothing to do with it."""
