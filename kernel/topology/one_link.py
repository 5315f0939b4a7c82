"""One link: a channel to another program, without a plan.

``connect`` and ``listen`` make the plan of the commonest system: one native channel, one stream engine, and a
route each way.  Whoever needs a second engine writes a plan; the channel is used alike.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from kernel.contracts.durations import in_seconds
from kernel.contracts.engine import EngineEvent
from kernel.contracts.errors import KernelError
from kernel.contracts.message import Buffer, Message
from kernel.topology.plan import EnginePlan, Plan, RoutePlan
from kernel.topology.system import Kernel

if TYPE_CHECKING:
    from plugins.apis.native.channel import Channel

_CHANNEL, _LINK = "channel", "link"


@contextmanager
def connect(address: str, *, timeout: float | None = 10.0, **options: Any) -> Iterator[Channel]:
    """Connect to a listening kernel; yield the channel.

    ``address``: ``tcp://HOST:PORT`` or ``unix:///PATH`` for the backend protocol; another protocol stands in
    front, as in ``backend+tls://HOST:PORT``.  ``options`` are those of the stream engine.

    Waits until the connection is there, at most ``timeout`` seconds; then ``KernelError`` says what was
    wrong.  A connection that is lost later is made again.  At the end what was sent is still written
    (``linger`` of ``Kernel.close``).
    """
    with _linked(address, "dial", "fan-out", timeout, options) as channel:
        yield channel


@contextmanager
def listen(
    address: str, *, router: Literal["fan-out", "round-robin", "by-key", "reply"] = "fan-out", **options: Any
) -> Iterator[Channel]:
    """Listen for kernels that connect; yield the channel, which receives from all of them.

    ``router`` says who gets what the channel sends: all (``fan-out``), one after the other (``round-robin``),
    those that have subscribed to the key (``by-key``), or the one to whose message it is a ``reply``.

    ``address`` and ``options`` are as for ``connect``.  ``KernelError`` if it is not
    possible to listen there.
    """
    if router == "reply":
        # The router chooses by ``reply_to``, and peers need not set it: the listener writes the name of the
        # connection.
        options = {"stamp_reply_to": True, **options}
    with _linked(address, "listen", router, None, options) as channel:
        yield channel


def request(
    address: str,
    body: Buffer,
    *,
    key: str | None = None,
    headers: Mapping[str, Any] | None = None,
    timeout: float | None = None,
) -> Message:
    """Ask one question of a kernel that listens with ``router="reply"``; return its answer.

    It connects for this question alone.  For several, ``connect`` once and use ``Channel.request``.
    ``timeout`` is for the connection and again for the answer: ``KernelError`` or ``TimedOut``.
    """
    with connect(address, timeout=timeout) as channel:
        return channel.request(body, key=key, headers=headers, timeout=timeout)


class _Link:
    """Hears the events of a kernel until its link is there, or cannot be had.  Any thread."""

    def __init__(self, wanted: str) -> None:
        self._wanted = wanted
        self._there = False
        self._problem = "nobody has answered yet"
        self._decided = threading.Event()

    def __call__(self, event: EngineEvent) -> None:
        if event.what == self._wanted and event.engine == _LINK:
            self._there = True
            self._decided.set()
        # Of any engine: there is only the link, since a channel is none. An attempt that fails is no end,
        # because the peer may start later. Its reason is told if the time is over before.
        elif event.what in ("retrying", "refused", "failed"):
            self._problem = event.detail
            # An engine that has failed is started again, but what it failed for will hardly have changed.
            if event.what == "failed":
                self._decided.set()

    def wait(self, address: str, timeout: float | None) -> None:
        """Return when the link is there; raise ``KernelError`` if it does not come."""
        if not self._decided.wait(timeout):
            raise KernelError(
                f"no connection to {address} within {in_seconds(timeout or 0)}: {self._problem}"
            )
        if not self._there:
            raise KernelError(f"{address}: {self._problem}")


@contextmanager
def _linked(
    address: str, mode: str, router: str, timeout: float | None, options: dict[str, Any]
) -> Iterator[Channel]:
    scheme, separator, _ = address.partition("://")
    if not separator:
        address = f"backend+tcp://{address}"
    elif "+" not in scheme:
        address = f"backend+{address}"
    kernel = Kernel(
        Plan(
            engines=(
                EnginePlan(name=_CHANNEL, kind="native"),
                EnginePlan(name=_LINK, kind="stream", options={"address": address, "mode": mode, **options}),
            ),
            routes=(
                RoutePlan(source=_CHANNEL, targets=(_LINK,), router=router),
                RoutePlan(source=_LINK, targets=(_CHANNEL,)),
            ),
        )
    )
    # A listener is there when it runs: nobody need have connected.
    link = _Link("connected" if mode == "dial" else "running")
    # Before the start, so that no event is missed.
    kernel.events.append(link)
    with kernel:
        # Inside the block: what it raises closes the kernel, and nothing lingers.
        link.wait(address, timeout)
        with kernel.open(_CHANNEL, "native") as channel:
            yield channel
