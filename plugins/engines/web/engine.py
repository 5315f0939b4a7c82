"""Web engine: listens, and gives each request to its page.

It takes no part in the path of messages.  Figures are read without asking other threads
(``System.statistics``), and put into text in slices of a millisecond: between two of them other engines of
the thread have their turns, and other threads get the interpreter's lock.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import trio

from kernel.contracts.engine import Host
from kernel.contracts.errors import KernelError
from kernel.contracts.kinds import EngineSetup
from kernel.contracts.system import System
from kernel.hosting.acceptor import Acceptor
from kernel.hosting.handshakes import Handshakes
from kernel.hosting.loopback import is_on_this_machine
from kernel.hosting.wire import Wire
from plugins.engines.web import health, operators_page
from plugins.engines.web.answer import Request, Respond, Whole, error
from plugins.engines.web.http_connection import HttpConnection
from plugins.engines.web.live import Live
from plugins.engines.web.logins import NOBODY, Logins, WebUser, comes_from_elsewhere, tags_for
from plugins.engines.web.management.api import Api
from plugins.engines.web.metrics_page import MetricsPage
from plugins.engines.web.options import WebEngineOptions
from plugins.engines.web.shared_answer import SharedAnswer

_METHODS = ("GET", "HEAD")


_SAFE_METHODS = (*_METHODS, "OPTIONS")
"""Methods that change nothing (RFC 9110, section 9.2.1)."""


class _Page(NamedTuple):
    make: Callable[[Request, WebUser, Respond], None]
    open: bool = False
    """Whether it needs no login: supervisors that ask for it have no password."""
    tag: str = "monitoring"
    """What a user has to be (``WebUser.is_a``)."""


def _same_for_all(make: Callable[[Respond], None]) -> Callable[[Request, WebUser, Respond], None]:
    return lambda request, user, respond: make(respond)


def _admit(page: _Page, request: Request, respond: Respond, user: WebUser) -> None:
    if user is NOBODY or user.is_a(page.tag):
        page.make(request, user, respond)
    else:
        needed = " or ".join(tags_for(page.tag))
        respond(error(403, "forbidden", f"the user needs the tag {needed}"))


class WebEngine:
    """Serves pages.  All methods but ``statistics`` and ``pending`` run in the engine's thread."""

    def __init__(self, setup: EngineSetup) -> None:
        if setup.system is None:
            raise KernelError("a web engine shows a running kernel, and there is none")
        self._name = setup.name
        self._options: WebEngineOptions = setup.options
        self._bound = setup.bound
        self._system: System = setup.system
        address = self._address = setup.options.parsed()
        self._handshakes = Handshakes(
            address, server_side=True, tls=setup.options.tls, seconds=setup.options.handshake_seconds
        )
        self._acceptor: Acceptor | None = None
        self._logins: Logins | None = None
        self._api: Api | None = None
        self._pages: dict[str, _Page] = {}
        self._connections: dict[HttpConnection, None] = {}
        self._requests = 0
        self._ended = {"bytes_in": 0, "bytes_out": 0, "protocol_errors": 0}

    async def run(self, host: Host, *, task_status: trio.TaskStatus[str]) -> None:
        """Serve until cancelled."""
        self._host = host
        system = self._system
        broker = self._options.broker
        self._logins = Logins(system, host, broker)
        # Without a broker there are no users, and nothing that they could ask for.
        self._api = Api(system, host, broker, self._listener) if broker else None
        ready = SharedAnswer(partial(health.ready, system, host))
        # Half of the connections at most go to open pages, so that others can still ask for something.
        live = Live(system, host, broker, max(1, self._options.max_connections // 2))
        self._pages = {
            "/": _Page(_same_for_all(operators_page.show), tag="management"),
            "/events": _Page(live.answer, tag="management"),
            "/metrics": _Page(_same_for_all(SharedAnswer(MetricsPage(system, host).make).ask)),
            "/health/live": _Page(_same_for_all(health.live), open=True),
            "/health/ready": _Page(_same_for_all(ready.ask), open=True),
        }
        acceptor = self._acceptor = Acceptor(
            host,
            self._name,
            self._address,
            self._handshakes,
            # ``under_way``: connections in the handshake of TLS, which count towards the limit.
            admits=lambda under_way: len(self._connections) + under_way < self._options.max_connections,
            on_wire=self._begin,
            bound=self._bound,
        )
        try:
            task_status.started(acceptor.address)
            await trio.sleep_forever()
        finally:
            acceptor.close()
            # A copy: ``close`` calls ``_on_end``, which removes the connection.
            for connection in list(self._connections):
                connection.close("the web engine is shut down")

    def pending(self) -> bool:
        """Whether an answer is not written yet.  Any thread."""
        return any(connection.unwritten for connection in list(self._connections))

    def statistics(self) -> dict[str, Any]:
        """Counters of this moment; past connections count.  Any thread."""
        acceptor, logins, sums = self._acceptor, self._logins, dict(self._ended)
        for connection in list(self._connections):
            _add(sums, connection)
        return {
            **sums,
            "connections": len(self._connections),
            "accepted": 0 if acceptor is None else acceptor.accepted,
            "refused": 0 if acceptor is None else acceptor.refused,
            "logins_refused": 0 if logins is None else logins.refused,
            "requests": self._requests,
        }

    def _listener(self) -> dict[str, Any]:
        address = "" if self._acceptor is None else self._acceptor.address
        return {
            "protocol": "http",
            "address": address,
            "transport": self._address.transport,
            **self._options.tls.of_listener(self._address.transport),
        }

    def _begin(self, wire: Wire, peer: str) -> None:
        connection = HttpConnection(
            self._host,
            wire,
            peer,
            self._options,
            loopback=is_on_this_machine(peer),
            on_request=self._on_request,
            on_end=self._on_end,
        )
        self._connections[connection] = None
        connection.start()

    def _on_end(self, connection: HttpConnection) -> None:
        # None is the value of each entry. So the figures of a connection are added once, even if this is
        # called twice.
        if self._connections.pop(connection, connection) is None:
            _add(self._ended, connection)

    def _on_request(self, request: Request, respond: Respond, whole: Whole) -> None:
        self._requests += 1
        page = self._pages.get(request.path)
        if self._api is not None and request.parts[0] == "api":
            self._on_api_request(self._api, request, respond, whole)
        elif page is None:
            # RabbitMQ's words.
            respond(error(404, "Object Not Found", "Not Found"))
        elif request.method not in _METHODS:
            allowed = (("allow", ", ".join(_METHODS)),)
            respond(error(405, "Method Not Allowed", "this page can be read only", allowed))
        elif page.open:
            page.make(request, NOBODY, respond)
        else:
            assert self._logins is not None
            self._logins.check(request, partial(_admit, page, request, respond), respond)

    def _on_api_request(self, api: Api, request: Request, respond: Respond, whole: Whole) -> None:
        # Before the login is looked at: a browser adds it by itself, whoever makes it send the request.
        if request.method not in _SAFE_METHODS and comes_from_elsewhere(request):
            respond(error(403, "forbidden", "the request was made by a page of another site"))
            return
        assert self._logins is not None
        self._logins.check(request, partial(self._answer_user, api, respond, whole), respond)

    @staticmethod
    def _answer_user(api: Api, respond: Respond, whole: Whole, user: WebUser) -> None:
        """Read the body of somebody who has logged in."""
        whole(lambda request: api.answer(request, user, respond))


def _add(sums: dict[str, int], connection: HttpConnection) -> None:
    for name in sums:
        sums[name] += getattr(connection, name)
