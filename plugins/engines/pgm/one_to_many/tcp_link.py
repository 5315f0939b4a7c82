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
    """Let the system give up an unreachable peer after so many seconds, whether or not something was sent."""
    # Two mechanisms: keep-alive probes notice a peer that is gone while nothing is sent, TCP_USER_TIMEOUT one
    # that no longer acknowledges what is sent.
    probe = max(round(seconds / 4), 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    waits = (("TCP_KEEPIDLE", probe), ("TCP_KEEPINTVL", probe), ("TCP_USER_TIMEOUT", round(seconds * 1000)))
    for name, value in waits:
        # An option that the system does not have is left out: its own defaults apply.
        option = getattr(socket, name, None)
        if option is not None:
            connected.setsockopt(socket.IPPROTO_TCP, option, value)


class TcpLink(ConnectionOwner):
    """A connection that passes on what arrives.

    ``on_data`` gets the bytes, and may raise ``RemoteProtocolError``. ``on_end`` gets the reason when the
    connection has ended, unless ``close`` ended it.
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
        """Write now, or as soon as the socket takes it."""
        self._connection.send(buffers)

    def read(self, wanted: bool) -> None:
        """Read if ``wanted``, else pause reading."""
        if wanted:
            self._connection.resume(Pause.ROUTES_FULL)
        else:
            self._connection.pause(Pause.ROUTES_FULL)

    def close(self) -> None:
        """Close the connection; ``on_end`` is not called."""
        self._closing = True
        self._connection.close("closed")

    # From the connection

    def on_data(self, data: bytes, now: float) -> None:
        """Pass on what the peer has sent."""
        try:
            self._on_data(data)
        except RemoteProtocolError as error:
            self._connection.close(f"protocol error: {error}")

    def on_eof(self, now: float) -> None:
        """Close our side, too."""
        self._connection.close("closed by the peer")

    def on_ended(self, reason: str) -> None:
        """Report the end, unless we caused it."""
        if not self._closing:
            self._on_end(reason)
