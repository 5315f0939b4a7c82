"""The TCP connection between a sender and a receiver of one-to-many."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence

from kernel.contracts.engine import Host
from kernel.contracts.errors import RemoteProtocolError
from kernel.contracts.message import Buffer
from kernel.hosting.connection import Connection, ConnectionOwner, Pause
from kernel.hosting.wire import Wire


def set_silence_timeout(connected: socket.socket, seconds: float) -> None:
    """Have the system give up an unreachable peer after so many seconds, whether or not something was sent."""
    probe = max(round(seconds / 4), 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    waits = (("TCP_KEEPIDLE", probe), ("TCP_KEEPINTVL", probe), ("TCP_USER_TIMEOUT", round(seconds * 1000)))
    for name, value in waits:
        option = getattr(socket, name, None)  # what a system does not have, it has a default for
        if option is not None:
            connected.setsockopt(socket.IPPROTO_TCP, option, value)


class TcpLink(ConnectionOwner):
    """``on_data`` gets what comes and may raise ``RemoteProtocolError``.

    ``on_end`` why it is over, unless we ``close`` it.
    """

    def __init__(
        self, host: Host, wire: Wire, on_data: Callable[[bytes], None], on_end: Callable[[str], None]
    ) -> None:
        self._on_data = on_data
        self._on_end = on_end
        self._closing = False
        # No limit: the switch-over protocol itself bounds what is sent and not confirmed.
        self._connection = Connection(host, wire, self, answers_limit=None)
        self._connection.start()

    def send(self, buffers: Sequence[Buffer]) -> None:
        """Write, now or as soon as it goes."""
        self._connection.send(buffers)

    def read(self, wanted: bool) -> None:
        """Go on reading, or not."""
        if wanted:
            self._connection.resume(Pause.ROUTES_FULL)
        else:
            self._connection.pause(Pause.ROUTES_FULL)

    def close(self) -> None:
        """Hang up."""
        self._closing = True
        self._connection.close("closed")

    # From the connection

    def on_data(self, data: bytes, now: float) -> None:
        """The other end has sent something."""
        try:
            self._on_data(data)
        except RemoteProtocolError as error:
            self._connection.close(f"protocol error: {error}")

    def on_eof(self, now: float) -> None:
        """The other end has hung up."""
        self._connection.close("closed by the peer")

    def on_ended(self, reason: str) -> None:
        """The connection is over."""
        if not self._closing:
            self._on_end(reason)
