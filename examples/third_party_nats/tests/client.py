"""The client's side of the protocol, for the checks of ``kernel.testing``: it publishes and answers PING."""

from __future__ import annotations

from collections.abc import Sequence

from kernel.contracts.errors import LocalProtocolError
from kernel.contracts.message import Batch, Buffer
from kernel.contracts.protocol import ConnectionFacts


class Client:
    """``kernel.contracts.protocol.StreamProtocol``."""

    def __init__(self, *, tls: bool = False) -> None:
        self.subscriptions: list[tuple[str, str]] = []
        self.received = b""
        self._tls = tls
        self._greeted = self._open = self._closed = False
        self._out: list[Buffer] = []

    def receive_data(self, data: Buffer, now: float) -> list[Batch]:
        *lines, self.received = (self.received + bytes(data)).split(b"\r\n")
        for line in lines:
            if line.startswith(b"INFO "):
                self._greeted = True
                self._connect()
            elif line == b"PING":
                self._out.append(b"PONG\r\n")
        return []

    def wants_tls(self) -> bool:
        return self._greeted and self._tls

    def tls_started(self, facts: ConnectionFacts, now: float) -> None:
        self._tls = False
        self._connect()

    def _connect(self) -> None:
        if not self._tls:
            self._out.append(b'CONNECT {"verbose":false}\r\nPING\r\n')
            self._open = True

    def send_batches(self, batches: Sequence[Batch], now: float) -> None:
        if self._closed:
            raise LocalProtocolError("closed")
        for batch in batches:
            for body in batch.bodies:
                self._out.append(b"PUB %b %d\r\n%b\r\n" % (batch.envelope.key.encode(), len(body), body))

    def data_to_send(self) -> list[Buffer]:
        out, self._out = self._out, []
        return out

    def ready_to_send(self) -> bool:
        return self._open and not self._closed

    def receive_eof(self, now: float) -> None:
        self._closed = True

    def next_deadline(self) -> float | None:
        return None

    def handle_timeout(self, now: float) -> None:
        pass

    def confirm(self, count: int) -> None:
        pass

    def want_confirm(self) -> None:
        pass

    def confirmed(self) -> int | None:
        return None

    def close(self, reason: str, now: float) -> None:
        self._closed = True

    def closed(self) -> bool:
        return self._closed
