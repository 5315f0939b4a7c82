"""A proxy: messages pass from one socket to another, in both directions."""

from __future__ import annotations

from kernel.contracts.errors import KernelClosed
from plugins.apis.sockets.errors import SocketClosed
from plugins.apis.sockets.socket import Socket, poll

_AT_ONCE = 256
"""Messages that pass in one direction before the other one has its turn."""


def proxy(front: Socket, back: Socket, *, capture: Socket | None = None) -> None:
    """Pass messages on between ``front`` and ``back``, until one of them or their context is closed.

    A ROUTER and a DEALER share questions out, an XSUB and an XPUB are a forwarder, a PULL and a PUSH a streamer.
    ``capture`` gets each message as well.  While one side has no room, messages wait at the other one.
    """
    ways = ((front, back), (back, front))
    try:
        while True:
            # Without a generator: each way has its turn.
            moved = [_pass_on(source, target, capture) for source, target in ways]
            if not any(moved):
                full = [target for source, target in ways if source.readable()]
                empty = [source for source, _ in ways if not source.readable()]
                poll(empty, sending=full)
    except (KernelClosed, SocketClosed):
        return


def _pass_on(source: Socket, target: Socket, capture: Socket | None) -> bool:
    """Pass on what there is room for; return whether there was anything."""
    for number in range(_AT_ONCE):
        if not (source.readable() and target.writable()):
            return number > 0
        message = source.recv_multipart()
        if capture is not None:
            capture.send_multipart(message)
        target.send_multipart(message)
    return True
