"""A TCP connection between a sender and a receiver, hosted passively: bytes in, buffers out, and one end."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable, Sequence

from kernel.contracts.engine import Host
from kernel.contracts.errors import RemoteProtocolError
from kernel.contracts.message import Buffer
from kernel.hosting.wire import Wire

READ_SIZE = 256 * 1024


def notice_silence(connected: socket.socket, seconds: float) -> None:
    """Have the system give up a peer that the network does not reach for so many seconds, whether or not we have sent something."""
    probe = max(round(seconds / 4), 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    waits = (("TCP_KEEPIDLE", probe), ("TCP_KEEPINTVL", probe), ("TCP_USER_TIMEOUT", round(seconds * 1000)))
    for name, value in waits:
        option = getattr(socket, name, None)  # what a system does not have, it has a default for
        if option is not None:
            connected.setsockopt(socket.IPPROTO_TCP, option, value)


class TcpLink:
    """``on_data`` gets what comes and may raise ``RemoteProtocolError``; ``on_end`` why it is over, unless we ``close`` it."""

    def __init__(
        self, host: Host, wire: Wire, on_data: Callable[[bytes], None], on_end: Callable[[str], None]
    ) -> None:
        self._host = host
        self._wire = wire
        self._on_data = on_data
        self._on_end = on_end
        self._out: deque[Buffer] = deque()
        self._reading = True
        self._writing = False
        self._ended = False
        self._watch()

    @property
    def writing(self) -> bool:
        """Whether something waits to be written."""
        return self._writing

    def send(self, buffers: Sequence[Buffer]) -> None:
        """Write, now or as soon as it goes."""
        self._out.extend(buffers)
        if not self._writing and not self._ended:
            self._write()

    def read(self, wanted: bool) -> None:
        """Go on reading, or not."""
        if wanted != self._reading:
            self._reading = wanted
            self._watch()

    def close(self) -> None:
        """Hang up."""
        if not self._ended:
            self._ended = True
            self._host.poller.watch(self._wire.fileno(), readable=None, writable=None)
            self._wire.close()

    def _end(self, reason: str) -> None:
        if not self._ended:
            self.close()
            self._on_end(reason)

    def _watch(self) -> None:
        if not self._ended:
            self._host.poller.watch(
                self._wire.fileno(),
                readable=self._on_readable if self._reading else None,
                writable=self._write if self._writing else None,
            )

    def _on_readable(self) -> None:
        try:
            data = self._wire.receive(READ_SIZE)
            if data:
                self._on_data(data)
        except OSError as error:
            self._end(f"connection lost: {error}")
        except RemoteProtocolError as error:
            self._end(f"protocol error: {error}")
        else:
            if data is not None and not data:
                self._end("closed by the peer")

    def _write(self) -> None:
        try:
            done = self._wire.send(self._out)
        except OSError as error:
            self._end(f"connection lost: {error}")
            return
        if done == self._writing:
            self._writing = not done
            self._watch()
