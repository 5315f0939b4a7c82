"""A proxy: messages pass from one socket to another, in both directions."""

from __future__ import annotations

import struct

from kernel.contracts.errors import KernelClosed
from plugins.apis.sockets.errors import SocketClosed
from plugins.apis.sockets.socket import Socket, poll

_AT_ONCE = 256
"""Messages that pass in one direction before the other one has its turn."""


def proxy(
    front: Socket, back: Socket, *, capture: Socket | None = None, control: Socket | None = None
) -> None:
    """Pass messages on between ``front`` and ``back``, until one of them or their context is closed.

    A ROUTER and a DEALER share questions out, an XSUB and an XPUB are a forwarder, a PULL and a PUSH a
    streamer.  ``capture`` gets each message as well.  While one side has no room, messages wait at the other
    one.

    ``control``, a PAIR or a REP, is sent what to do, as ``zmq_proxy_steerable``: PAUSE, RESUME, TERMINATE,
    which ends the call, and STATISTICS.  That is answered by eight parts, numbers of eight octets in the
    machine's order: messages and octets received and sent by ``front``, and the same of ``back``.  A REP
    answers the others with an empty message.
    """
    passage = _Passage(front, back, capture)
    try:
        while control is None or passage.obeys(control):
            if not passage.move():
                passage.wait(control)
    except (KernelClosed, SocketClosed):
        return


class _Passage:
    def __init__(self, front: Socket, back: Socket, capture: Socket | None) -> None:
        self._ways = ((front, back), (back, front))
        self._capture = capture
        self._paused = False
        self._passed = {front: [0, 0], back: [0, 0]}
        """Messages and octets by the socket that has received them."""

    def move(self) -> bool:
        """Pass on what there is room for; return whether there was anything."""
        if self._paused:
            return False
        # Without a generator: each way has its turn.
        moved = [self._pass_on(source, target) for source, target in self._ways]
        return any(moved)

    def wait(self, control: Socket | None) -> None:
        """Wait until there is something to pass on, or to obey."""
        empty, full = [] if control is None else [control], []
        if not self._paused:
            for source, target in self._ways:
                if source.readable():
                    full.append(target)
                else:
                    empty.append(source)
        poll(empty, sending=full)

    def _pass_on(self, source: Socket, target: Socket) -> bool:
        for number in range(_AT_ONCE):
            if not (source.readable() and target.writable()):
                return number > 0
            message = source.recv_multipart()
            if self._capture is not None:
                self._capture.send_multipart(message)
            target.send_multipart(message)
            passed = self._passed[source]
            passed[0] += 1
            passed[1] += sum(map(len, message))
        return True

    def obeys(self, control: Socket) -> bool:
        """Do what ``control`` was sent; False: end."""
        while control.readable():
            command = control.recv_multipart()[0]
            if command == b"STATISTICS":
                forth, back = self._passed.values()
                figures = (*forth, *back, *back, *forth)
                control.send_multipart([struct.pack("=Q", figure) for figure in figures])
                continue
            if command in (b"PAUSE", b"RESUME"):
                self._paused = command == b"PAUSE"
            if control.type == "REP":
                control.send(b"")
            if command == b"TERMINATE":
                return False
        return True
