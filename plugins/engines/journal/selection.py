"""Which rows of a journal are wanted: by key, exchange and engine, decided once an envelope."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from kernel.contracts.key_trie import key_filter


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What has to hold; what is empty or None always does."""

    match: tuple[str, ...] = ()
    """Patterns of which one has to fit the key, as a route's ``match``: ``*``, ``#``, and ``prefix:...``."""
    exchange: str | None = None
    engine: str | None = None
    """The port that sent it; or the engine, for which its connections count."""

    def everything(self) -> bool:
        """Whether nothing is left out."""
        return not self.match and self.exchange is None and self.engine is None

    @cached_property
    def fits(self) -> Callable[[str], bool]:
        """Whether a key fits."""
        return key_filter(self.match) if self.match else _any

    def wants(self, envelopes: pa.StructArray) -> list[bool]:
        """Say of each envelope of a batch whether its messages are wanted."""
        keys, exchanges, engines = (
            envelopes.field(name).to_pylist() for name in ("key", "exchange", "engine")
        )
        return [
            self.fits(key)
            and self.exchange in (None, exchange)
            and (self.engine is None or engine == self.engine or engine.startswith(f"{self.engine}/"))
            for key, exchange, engine in zip(keys, exchanges, engines, strict=True)
        ]

    def of(self, stored: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of a stored batch that are wanted."""
        if self.everything():
            return stored
        column = stored.column("envelope")
        wanted = pa.array(self.wants(column.dictionary), pa.bool_())
        return stored if all(wanted.to_pylist()) else stored.filter(wanted.take(column.indices))


def _any(_: str) -> bool:
    return True


EVERYTHING = Selection()
