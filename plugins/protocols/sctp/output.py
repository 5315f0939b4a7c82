"""What goes into which packet: replies first, an acknowledgement, then data (RFC 9260, 6.10)."""

from __future__ import annotations

from collections import deque

from plugins.protocols.sctp import chunks, packets
from plugins.protocols.sctp.chunks import Plain
from plugins.protocols.sctp.ecn import Ecn
from plugins.protocols.sctp.options import SctpOptions
from plugins.protocols.sctp.outstanding import Outstanding
from plugins.protocols.sctp.path import Path
from plugins.protocols.sctp.paths import Paths
from plugins.protocols.sctp.receiver import Receiver
from plugins.protocols.sctp.sender import Sender

_MAX_REPLIES = 64
"""Chunks that wait to be sent; a peer that makes us reply to more than we can send is not replied to."""

Packets = list[tuple[bytes, bytes]]
"""Addresses, and what goes there."""


class Output:
    """The packets of one association."""

    def __init__(self, options: SctpOptions, port: int, peer_port: int) -> None:
        self.peer_tag = 0
        """Verification tag of what we send."""
        self.sack_to: bytes | None = None
        """Where the last data came from."""
        self.ecn = Ecn()
        self.limited = False
        """Whether the last ``flush`` has ended a burst, and not all that windows allow."""
        self._max_gaps = (options.packet_size - 300) // 4
        self._ports = (port, peer_port)
        self._replies: deque[tuple[bytes, bytes]] = deque()
        self._ready: Packets = []

    def reply(self, address: bytes, encoded: bytes) -> None:
        """Queue a chunk that may share its packet."""
        if len(self._replies) < _MAX_REPLIES:
            self._replies.append((address, encoded))

    def alone(self, address: bytes, encoded: bytes, tag: int | None = None) -> None:
        """Queue a chunk, if there is one, that has a packet for itself."""
        if encoded and len(self._ready) < _MAX_REPLIES:
            self._ready.append(
                (address, packets.encode(*self._ports, self.peer_tag if tag is None else tag, [encoded]))
            )

    def on_echo(self, chunk: Plain, path: Path, outstanding: Outstanding) -> None:
        """Slow down, and say so, if that was agreed on."""
        if self.ecn.agreed:
            self.reply(path.address, self.ecn.on_echo(chunk, path, outstanding))

    def forget(self) -> None:
        """Drop what waits to be sent: the association is another, or none, from now on."""
        self._replies.clear()

    def flush(self, paths: Paths, sender: Sender | None, receiver: Receiver | None, now: float) -> Packets:
        """Return and forget what is to be sent now; without a sender, no data."""
        made, self._ready = self._ready, []
        self.limited = False
        current = paths.current()
        current.decay_idle(now)
        room = current.probing.size - packets.HEADER.size & ~3
        if sender is not None and (forward := sender.outstanding.forward(room)) is not None:
            self._replies.appendleft((current.address, chunks.encode(forward)))
            if current.retransmission_due is None:
                current.retransmission_due = now + current.rto
        for path in [current, *(path for path in paths.all if path is not current)]:
            end = len(made) + path.burst() if path is current else 0
            while parts := self._next(path, sender, receiver, now, fresh=len(made) < end):
                made.append((path.address, packets.encode(*self._ports, self.peer_tag, parts)))
            self.limited = self.limited or 0 < end <= len(made)
        self._replies.clear()  # what is left was for addresses that are none any more
        return made

    def _next(
        self, path: Path, sender: Sender | None, receiver: Receiver | None, now: float, *, fresh: bool
    ) -> list[bytes]:
        """Return the chunks of the next packet to that path."""
        parts: list[bytes] = []
        room = path.probing.size - packets.HEADER.size & ~3
        for _ in range(len(self._replies)):
            address, encoded = self._replies.popleft()
            if address == path.address and len(encoded) <= room:
                parts.append(encoded)
                room -= len(encoded)
            else:
                self._replies.append((address, encoded))
        if receiver is not None and receiver.sack_due is not None:
            echo = self.ecn.echo()
            left = room - receiver.sack_size(self._max_gaps) - len(echo)
            data = sender.fill(path, left, now, fresh=fresh) if sender is not None else []
            due = receiver.sack_due <= now and path.address == self.sack_to
            if left >= 0 and (data or due):
                return [*parts, chunks.encode(receiver.sack(self._max_gaps)), echo, *data]
        # A fragment that was lost may be too large to go with an acknowledgement.
        return parts + (sender.fill(path, room, now, fresh=fresh) if sender is not None else [])
