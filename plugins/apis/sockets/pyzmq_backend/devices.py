"""Proxies: messages pass from one socket to another in both directions."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TypeAlias

from plugins.apis.sockets.pyzmq_backend.core import POLLIN, POLLOUT
from plugins.apis.sockets.pyzmq_backend.errors import translating
from plugins.apis.sockets.pyzmq_backend.polling import zmq_poll
from plugins.apis.sockets.pyzmq_backend.socket import Socket

Parts: TypeAlias = Sequence[bytes]

_AT_ONCE = 256
"""Messages that pass in one direction before the other one has its turn."""


def proxy(frontend: Socket, backend: Socket, capture: Socket | None = None) -> int:
    """Pass messages on until the context is terminated."""
    return proxy_steerable(frontend, backend, capture)


@translating
def proxy_steerable(
    frontend: Socket, backend: Socket, capture: Socket | None = None, control: Socket | None = None
) -> int:
    """Pass messages on.  ``control`` gets PAUSE, RESUME, STATISTICS and TERMINATE."""

    def keep(message: Parts, forth: bool) -> None:
        if capture is not None:
            capture._core.send_message(message)

    return _Passage(frontend, backend, keep).run(control)


@translating
def monitored_queue(
    in_socket: Socket,
    out_socket: Socket,
    mon_socket: Socket,
    in_prefix: bytes = b"in",
    out_prefix: bytes = b"out",
) -> int:
    """Pass messages on, and send each to ``mon_socket`` as well, behind a prefix for its direction."""

    def keep(message: Parts, forth: bool) -> None:
        mon_socket._core.send_message([in_prefix if forth else out_prefix, *message])

    # Between two ROUTERs the first part is who has sent it, and the second who is to get it.
    swap = in_socket._core.kind == out_socket._core.kind == "ROUTER"
    return _Passage(in_socket, out_socket, keep, swap=swap).run(None)


class _Passage:
    """Two sockets, and the messages between them."""

    def __init__(
        self, front: Socket, back: Socket, keep: Callable[[Parts, bool], None], *, swap: bool = False
    ) -> None:
        self._ways = ((front, back, True),) if front is back else ((front, back, True), (back, front, False))
        self._keep = keep
        self._swap = swap
        self._counts = {(forth, what): [0, 0] for forth in (True, False) for what in ("from", "to")}
        """Messages and octets, received at and sent to each side."""
        self._paused = False

    def run(self, control: Socket | None) -> int:
        """Pass messages on until ``control`` says TERMINATE."""
        while True:
            wanted: dict[Socket, int] = {}
            for source, target, _ in () if self._paused else self._ways:
                # Where something waits it is room that is wanted, and not more messages.
                if source is not target and source._core.events() & POLLIN:
                    wanted[target] = wanted.get(target, 0) | POLLOUT
                else:
                    wanted[source] = wanted.get(source, 0) | POLLIN
            if control is not None:
                wanted[control] = wanted.get(control, 0) | POLLIN
            ready = dict(zmq_poll(list(wanted.items())))
            if control is not None and ready.get(control, 0) & POLLIN and not self._obey(control):
                return 0
            if not self._paused:
                for source, target, forth in self._ways:
                    self._pass_on(source, target, forth)

    def _pass_on(self, source: Socket, target: Socket, forth: bool) -> None:
        for _ in range(_AT_ONCE):
            if not source._core.events() & POLLIN:
                return
            # One socket that gives back what it gets may be a REP, which has its turn to send afterwards.
            if source is not target and not target._core.events() & POLLOUT:
                return
            message: list[bytes] = source._core.socket.recv_multipart()
            if self._swap and len(message) > 1:
                message[:2] = message[1::-1]
            self._keep(message, forth)
            target._core.send_message(message)
            octets = sum(map(len, message))
            for figures in (self._counts[forth, "from"], self._counts[not forth, "to"]):
                figures[0] += 1
                figures[1] += octets

    def _obey(self, control: Socket) -> bool:
        """Do what the other end of ``control`` says; False: it is over."""
        command = control._core.socket.recv_multipart()[0]
        if command == b"STATISTICS":
            order = ((True, "from"), (True, "to"), (False, "from"), (False, "to"))
            figures = [number for key in order for number in self._counts[key]]
            control._core.send_message([struct.pack("=Q", number) for number in figures])
            return True
        if command in (b"PAUSE", b"RESUME"):
            self._paused = command == b"PAUSE"
        if control._core.kind == "REP":
            control._core.send_message([b""])
        return command != b"TERMINATE"
