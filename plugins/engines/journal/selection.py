"""Which rows of a journal are wanted: by key, exchange and engine, decided once an envelope."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

PREFIX = "prefix:"


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
    def _pattern(self) -> re.Pattern[str]:
        return re.compile("|".join(map(key_regex, self.match)) or ".*", re.DOTALL)

    def fits(self, key: str) -> bool:
        """Whether a key fits."""
        return self._pattern.fullmatch("." + key) is not None

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


EVERYTHING = Selection()


def key_regex(pattern: str) -> str:
    """Return the regular expression for a key, with a dot in front, that fits a pattern.

    A pattern is words with dots between them (AMQP 0-9-1, 3.1.3.3), or ``prefix:`` and the beginning of a key.
    """
    if pattern.startswith(PREFIX):
        return r"\." + re.escape(pattern.removeprefix(PREFIX)) + ".*"
    return "".join(_WORDS.get(word) or r"\." + re.escape(word) for word in pattern.split("."))


_WORDS = {"*": r"\.[^.]*", "#": r"(?:\.[^.]*)*"}
