"""Explicit congestion notification (RFC 4960, appendix A).

The host reports which packets arrived with a mark (CE), and marks ours as ECN-capable where ``agreed``. The
receiver echoes the mark (ECNE) with each SACK until the sender confirms that it has reduced its window (CWR).
"""

from __future__ import annotations

from plugins.protocols.sctp import chunks
from plugins.protocols.sctp.chunks import Plain, Type
from plugins.protocols.sctp.outstanding import Outstanding
from plugins.protocols.sctp.path import Path
from plugins.protocols.sctp.sequence import MASK32, unwrapped


class Ecn:
    """The receiving and the sending half of ECN."""

    def __init__(self, *, agreed: bool = False) -> None:
        self.agreed = agreed
        """Whether both sides support ECN."""
        self._marked: int | None = None
        """The lowest TSN of the first marked packet whose mark the peer has not confirmed."""

    # ------------------------------------------------------------------ receiving

    def marked(self, tsn: int) -> None:
        """Record a marked packet, by its lowest TSN."""
        # The first marked packet stays in the echo until the peer confirms it; further marks are the same
        # event of congestion.
        if self.agreed and self._marked is None:
            self._marked = tsn

    def echo(self) -> bytes:
        """Return the ECNE chunk that accompanies each SACK, or nothing."""
        return b"" if self._marked is None else _encode(Type.ECHO, self._marked)

    def on_reduced(self, chunk: Plain) -> None:
        """Process a CWR: the peer has reduced its window for packets up to a TSN."""
        # An older CWR answers an earlier mark.
        if self._marked is not None and unwrapped(_tsn(chunk), self._marked) >= self._marked:
            self._marked = None

    # ------------------------------------------------------------------ sending

    def on_echo(self, chunk: Plain, path: Path, outstanding: Outstanding) -> bytes:
        """Reduce the window, once per window of data; return the CWR chunk."""
        tsn = unwrapped(_tsn(chunk), outstanding.next_tsn)
        bundle = outstanding.bundles.find(tsn)
        # A TSN that was never sent must not reduce the window. The CWR is sent all the same: without it the
        # peer would echo for ever.
        if tsn < outstanding.next_tsn:
            (path if bundle is None else bundle.path).congestion_notified(tsn, outstanding.next_tsn - 1)
        return _encode(Type.REDUCED, tsn)


def _tsn(chunk: Plain) -> int:
    return int.from_bytes(chunk.value[:4], "big")


def _encode(kind: Type, tsn: int) -> bytes:
    return chunks.encode(Plain(kind, (tsn & MASK32).to_bytes(4, "big")))
