"""Notifications of STREAM: the application is told that a peer has come, and that it has gone."""

from __future__ import annotations

from kernel.contracts.engine import Port
from plugins.protocols.zmtp.connection import ZmtpConnection
from plugins.protocols.zmtp.raw import RawConnection


class Notifications:
    """Those of one peer; none if it speaks ZMTP, or if the options want none."""

    def __init__(self, protocol: ZmtpConnection | RawConnection, *, wanted: bool) -> None:
        self._protocol = protocol if wanted and isinstance(protocol, RawConnection) else None
        self._port: Port | None = None

    def come(self, port: Port) -> None:
        """The peer has a port."""
        self._port = port
        self._tell()

    def gone(self) -> None:
        """The conversation is over.  An application that has ended it itself is not told."""
        if self._protocol is not None and not self._protocol.closed_here:
            self._tell()

    def _tell(self) -> None:
        if self._protocol is not None and self._port is not None:
            self._port.send((self._protocol.notification(),))
