"""Composition of packets: control chunks first, then a SACK, then data (RFC 9260, 6.10).

Two queues wait to be sent. Replies are chunks, each for one address, and share packets with others; what does
not fit into a packet goes into the next one. Packets in ``_ready`` are complete: chunks that must be alone,
and probes.

Which address a packet goes to: new data to the current path only; retransmissions to the path to which they
were assigned; replies to the address that they answer (6.4). A SACK goes with data wherever that goes, or
else to the address from which the last data came.

``flush`` sends at most a burst of packets with new data (6.1, rule D). If the windows would allow more,
``limited`` is set, and the host calls again in a later turn.
"""

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
"""Replies that may wait.

A peer that causes more replies than can be sent gets none for the rest: a flood of HEARTBEATs must not fill
our memory.
"""

Packets = list[tuple[bytes, bytes]]
"""Pairs of the peer's address and a packet for it."""


class Output:
    """The outbound packets of one association."""

    def __init__(self, options: SctpOptions, port: int, peer_port: int) -> None:
        self.peer_tag = 0
        """The verification tag of the packets that we send."""
        self.sack_to: bytes | None = None
        """The address that the last data came from: a SACK goes back there (6.4)."""
        self.ecn = Ecn()
        self.limited = False
        """Whether the last ``flush`` ended because of the burst limit, and not because of the windows."""
        # Gap blocks of four bytes. The rest of the smallest packet is for the SACK's head, its 50 duplicates,
        # an ECNE and replies.
        self._max_gaps = (options.packet_size - 300) // 4
        self._ports = (port, peer_port)
        self._replies: deque[tuple[bytes, bytes]] = deque()
        self._ready: Packets = []

    def is_empty(self) -> bool:
        """Whether no chunk and no packet waits to be sent."""
        return not (self._replies or self._ready or self.limited)

    def takes_replies(self) -> bool:
        """Whether another reply would be queued. If not, it need not be made."""
        return len(self._replies) < _MAX_REPLIES

    def reply(self, address: bytes, encoded: bytes) -> None:
        """Queue a chunk that may share a packet with others."""
        if self.takes_replies():
            self._replies.append((address, encoded))

    def alone(self, address: bytes, encoded: bytes, tag: int | None = None) -> None:
        """Queue a chunk in a packet of its own; nothing if it is empty."""
        if encoded and len(self._ready) < _MAX_REPLIES:
            self._ready.append(
                (address, packets.encode(*self._ports, self.peer_tag if tag is None else tag, [encoded]))
            )

    def on_echo(self, chunk: Plain, path: Path, outstanding: Outstanding) -> None:
        """Process an ECN echo: reduce the congestion window and answer, if ECN was negotiated."""
        if self.ecn.agreed:
            self.reply(path.address, self.ecn.on_echo(chunk, path, outstanding))

    def forget(self) -> None:
        """Drop the queued replies: the association has ended, or is replaced by a new one."""
        self._replies.clear()

    def flush(self, paths: Paths, sender: Sender | None, receiver: Receiver | None, now: float) -> Packets:
        """Return the packets to send now. Without a ``sender`` there is no data."""
        made, self._ready = self._ready, []
        self.limited = False
        current = paths.current()
        current.decay_idle(now)
        # Chunks take a multiple of four bytes, so that a remainder of the packet could not be used.
        room = current.probing.size - packets.HEADER.size & ~3
        if sender is not None and (forward := sender.outstanding.forward(room)) is not None:
            # FORWARD-TSN goes before data, and T3-rtx guards it: if it is lost, nothing else would repeat it
            # (RFC 3758, 3.5, C5).
            self._replies.appendleft((current.address, chunks.encode(forward)))
            if current.retransmission_due is None:
                current.retransmission_due = now + current.rto
        for path in [current, *(path for path in paths.all if path is not current)]:
            # New data on the primary path only. The other paths carry retransmissions and replies.
            end = len(made) + path.burst() if path is current else 0
            while parts := self._next(path, sender, receiver, now, fresh=len(made) < end):
                made.append((path.address, packets.encode(*self._ports, self.peer_tag, parts)))
            self.limited = self.limited or 0 < end <= len(made)
        # What is left was for addresses that are no paths any more.
        self._replies.clear()
        return made

    def _next(
        self, path: Path, sender: Sender | None, receiver: Receiver | None, now: float, *, fresh: bool
    ) -> list[bytes]:
        """Return the chunks of the next packet on a path; an empty list if there are none."""
        parts: list[bytes] = []
        room = path.probing.size - packets.HEADER.size & ~3
        # Replies for other paths, or too long for this packet, go back to the end of the queue.
        for _ in range(len(self._replies)):
            address, encoded = self._replies.popleft()
            if address == path.address and len(encoded) <= room:
                # Control chunks come before data (6.10).
                parts.append(encoded)
                room -= len(encoded)
            else:
                self._replies.append((address, encoded))
        if receiver is not None and receiver.sack_due is not None:
            echo = self.ecn.echo()
            left = room - receiver.sack_size(self._max_gaps) - len(echo)
            # The SACK's room is reserved before the packet is filled: once data has a TSN it cannot be taken
            # back.
            data = sender.fill(path, left, now, fresh=fresh) if sender is not None else []
            due = receiver.sack_due <= now and path.address == self.sack_to
            # 6.1: a SACK goes with any data that is sent before its delay is over. Alone it goes only to the
            # address that the last data came from (6.4).
            if left >= 0 and (data or due):
                return [*parts, chunks.encode(receiver.sack(self._max_gaps)), echo, *data]
        # A SACK shares the packet with data where both fit. A retransmitted chunk has a fixed size, and may
        # fill the packet alone: then it goes first, and the SACK in the next one.
        return parts + (sender.fill(path, room, now, fresh=fresh) if sender is not None else [])
