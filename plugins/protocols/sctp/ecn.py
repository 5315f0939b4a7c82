"""Explicit congestion notification (RFC 4960, appendix A): marks that routers set are told to the sender, who slows down.

The carrier says which packets came with a mark, and marks ours as capable where ``agreed``.
"""

from __future__ import annotations

from plugins.protocols.sctp import chunks
from plugins.protocols.sctp.chunks import Plain, Type
from plugins.protocols.sctp.outstanding import Outstanding
from plugins.protocols.sctp.path import Path
from plugins.protocols.sctp.sequence import MASK32, unwrapped


class Ecn:
    """Both halves of it."""

    def __init__(self, *, agreed: bool = False) -> None:
        self.agreed = agreed
        """Whether the peer knows of it, too."""
        self._marked: int | None = None
        """The lowest TSN of the first packet that came with a mark and of which the peer does not know yet."""

    # ------------------------------------------------------------------ receiving

    def marked(self, tsn: int) -> None:
        """A packet with that lowest TSN came with a mark."""
        if self.agreed and self._marked is None:
            self._marked = tsn

    def echo(self) -> bytes:
        """Return the chunk that goes with each SACK until the peer has slowed down; nothing without marks."""
        return b"" if self._marked is None else _encode(Type.ECHO, self._marked)

    def on_reduced(self, chunk: Plain) -> None:
        """The peer has slowed down for what was sent up to a TSN."""
        if self._marked is not None and unwrapped(_tsn(chunk), self._marked) >= self._marked:
            self._marked = None

    # ------------------------------------------------------------------ sending

    def on_echo(self, chunk: Plain, path: Path, outstanding: Outstanding) -> bytes:
        """Slow down, once for each window; return the answer."""
        tsn = unwrapped(_tsn(chunk), outstanding.next_tsn)
        bundle = outstanding.bundles.find(tsn)
        if tsn < outstanding.next_tsn:
            (path if bundle is None else bundle.path).congestion_notified(tsn, outstanding.next_tsn - 1)
        return _encode(Type.REDUCED, tsn)


def _tsn(chunk: Plain) -> int:
    return int.from_bytes(chunk.value[:4], "big")


def _encode(kind: Type, tsn: int) -> bytes:
    return chunks.encode(Plain(kind, (tsn & MASK32).to_bytes(4, "big")))
