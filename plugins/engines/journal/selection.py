"""Selects rows of a journal by key, exchange and engine.  It decides once per envelope, not per row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from kernel.contracts.key_trie import key_filter


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The conditions for a row.  A condition that is empty or None holds for every row."""

    match: tuple[str, ...] = ()
    """Patterns, one of which must match the key, as in a route's ``match``: ``*``, ``#``, and
    ``prefix:...``."""
    exchange: str | None = None
    engine: str | None = None
    """The name of the port that sent the message; the name of an engine stands for all its connections."""

    def everything(self) -> bool:
        """Return whether every row is selected."""
        return not self.match and self.exchange is None and self.engine is None

    @cached_property
    def fits(self) -> Callable[[str], bool]:
        """The function that says whether a key matches."""
        return key_filter(self.match) if self.match else _any

    def wants(self, envelopes: pa.StructArray) -> list[bool]:
        """Return for each envelope of a batch whether its messages are selected."""
        # Of the envelopes of one commit only, usually a few, so Python's loop is no cost.
        keys, exchanges, engines = (
            envelopes.field(name).to_pylist() for name in ("key", "exchange", "engine")
        )
        # The ports of a listener are named ``ENGINE/PEER``.
        return [
            self.fits(key)
            and self.exchange in (None, exchange)
            and (self.engine is None or engine == self.engine or engine.startswith(f"{self.engine}/"))
            for key, exchange, engine in zip(keys, exchanges, engines, strict=True)
        ]

    def of(self, stored: pa.RecordBatch) -> pa.RecordBatch:
        """Return the selected rows of a stored batch."""
        if self.everything():
            return stored
        column = stored.column("envelope")
        wanted = pa.array(self.wants(column.dictionary), pa.bool_())
        # Decided once for each envelope of the commit; ``take`` gives each row the answer of its envelope.
        return stored if all(wanted.to_pylist()) else stored.filter(wanted.take(column.indices))


def _any(_: str) -> bool:
    return True


EVERYTHING = Selection()
