"""Stream half: what a stream host lends of a conversation over a connection (``kernel.hosting.lease``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kernel.contracts.protocol import ShortMessages
from kernel.hosting.lease import HasTurn, Lease

if TYPE_CHECKING:
    from kernel.hosting.connection import Connection
    from kernel.hosting.stream_statistics import StreamStatistics

_READ = 16 * 1024
"""Bytes of one read.  What is longer is no short message."""


class Counting(Protocol):
    """Counts the messages of a conversation."""

    received: int
    sent: int
    withheld: bool
    """Whether messages wait in the pipe until the peer has answered."""


class StreamHalf(NamedTuple):
    """A conversation, for one direction or both."""

    conversation: Counting
    connection: Connection
    protocol: ShortMessages
    counters: StreamStatistics
    holder: HasTurn

    @property
    def withholding(self) -> Counting:
        """The conversation itself."""
        return self.conversation

    @property
    def addresses(self) -> Any:
        """That of the protocol; None: it has no questions."""
        return getattr(self.protocol, "addresses", None)

    @property
    def descriptor(self) -> int:
        """That of the socket."""
        return self._socket().fileno()  # type: ignore[no-any-return]  # a socket

    @property
    def encode(self) -> Callable[[bytes], bytes | None]:
        """That of the protocol: no call is added on the path of a message."""
        return self.protocol.encode_one

    @property
    def decode(self) -> Callable[[bytes], bytes | None]:
        """That of the protocol."""
        return self.protocol.decode_one

    def sending(self) -> tuple[Callable[[bytes], int], None]:
        """See ``Half``."""
        return self._socket().send, None

    def receiving(self) -> tuple[Callable[[int], bytes], int]:
        """See ``Half``."""
        return self._socket().recv, _READ

    def _socket(self) -> Any:
        connected = self.connection.wire.connected
        assert connected is not None  # the owner of the connection has looked
        return connected

    def note_sent(self, lease: Lease, sent: list[int], size: int, length: int) -> None:
        """Count what the conversation, the protocol and the pipe count, had it gone the usual way."""
        connection, counters, outgoing = self.connection, self.counters, lease.outgoing
        # No call from here on.
        if sent:
            del sent[:]
            lease.trips += 1
            lease.asking.asked = lease.question
            self.conversation.sent += 1
            self.protocol.sent += 1
            connection.bytes_out += size
            counters.bytes_out += size
            counters.messages_out += 1
            outgoing.written += 1
            outgoing.taken += 1
            outgoing.bytes_taken += length

    def note_received(self, lease: Lease, got: list[bytes], body: Any) -> bool:
        """The same for a message that was received."""
        connection, counters, incoming = self.connection, self.counters, lease.incoming
        size, length = len(got[0]) if got else 0, len(body)
        # No call from here on.
        if not got:
            return False
        del got[:]
        lease.kept = body
        lease.trips += 1
        lease.asking.asked = None
        lease.received += 1
        self.conversation.received += 1
        connection.bytes_in += size
        counters.bytes_in += size
        counters.messages_in += 1
        incoming.written += 1
        incoming.taken += 1
        incoming.bytes_taken += length
        return True

    def note_interrupted(self, lease: Lease, data: bytes, length: int, sent: int) -> None:
        """Count a message whose sender was interrupted, and write what the socket has not taken of it."""
        lease.asking.asked = lease.question
        self.conversation.sent += 1
        self.protocol.sent += 1
        self.counters.messages_out += 1
        self.counters.bytes_out += len(data)
        self.connection.bytes_out += sent
        if sent < len(data):
            self.connection.send([data[sent:]])
