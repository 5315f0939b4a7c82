"""Which rows of a journal are wanted: by key, exchange and engine, decided once an envelope."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyarrow import compute

from kernel.contracts.message import Envelope, Run
from plugins.protocols.journal_format.envelopes import fields_of

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
    def fits(self) -> Callable[[str], object]:
        """Tells whether a key fits: returns None if not."""
        return re.compile("|".join(map(key_regex, self.match)) or ".*", re.DOTALL).fullmatch

    def wants(self, envelopes: pa.StructArray) -> list[bool]:
        """Say of each envelope of a batch whether its messages are wanted."""
        keys, exchanges, engines = (
            envelopes.field(name).to_pylist() for name in ("key", "exchange", "engine")
        )
        fits = self.fits
        return [
            fits(key) is not None
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
    """Return the regular expression for a key pattern (AMQP 0-9-1, 3.1.3.3; or ``prefix:``)."""
    if pattern.startswith(PREFIX):
        return re.escape(pattern.removeprefix(PREFIX)) + ".*"
    # each word is followed by a dot, in the pattern and, by the look ahead, in the key
    words = ["[^.]*" if word == "*" else re.escape(word) for word in pattern.split(".")]
    text = ""
    for number, word in enumerate(words):
        last = number == len(words) - 1
        if word == re.escape("#"):
            if last:
                text = text.removesuffix(r"\.") + (r"(?:\..*)?" if number else ".*")
            else:
                text += r"(?:[^.]*\.)*"
        else:
            text += word if last else word + r"\."
    return f"(?:{text})"


def runs_of(stored: pa.RecordBatch, envelopes: dict[Any, Envelope]) -> list[tuple[int, Run]]:
    """Return the messages of a stored batch as runs, each with its time in microseconds.

    ``envelopes`` remembers what was made before, so that equal envelopes are the same object.
    """
    if not stored.num_rows:
        return []
    column = stored.column("envelope")
    indices, stamps = column.indices, stored.column("ts").cast(pa.int64())
    made = [_envelope(row, envelopes) for row in column.dictionary.to_pylist()]
    bodies = stored.column("body").to_pylist()
    parts = stored.column("parts")
    sizes: Sequence[Any] = parts.to_pylist() if parts.null_count < len(parts) else ()
    runs: list[tuple[int, Run]] = []
    borders = _borders(indices, stamps)
    for start, stop in zip(borders, [*borders[1:], len(bodies)], strict=True):
        envelope, ts = made[indices[start].as_py()], stamps[start].as_py()
        runs += [(ts, run) for run in _runs(bodies[start:stop], sizes[start:stop], envelope)]
    return runs


def _borders(*columns: pa.Array) -> list[int]:
    """Return where a new run begins: at 0, and wherever one of these columns, which are not empty, changes."""
    count = len(columns[0])
    changes = None
    for column in columns:
        here = compute.not_equal(column.slice(1), column.slice(0, count - 1))
        changes = here if changes is None else compute.or_(changes, here)
    return [0, *(at + 1 for at in compute.indices_nonzero(changes).to_pylist())]


def _runs(bodies: list[bytes], sizes: Sequence[Any], envelope: Envelope) -> list[Run]:
    if not any(size is not None for size in sizes):
        return [Run(bodies, sum(map(len, bodies)), envelope)]
    runs: list[Run] = []
    for body, size in zip(bodies, sizes, strict=True):
        if size is None:
            runs.append(Run([body], len(body), envelope))
        else:
            runs.append(Run([_split(body, size)], len(body), envelope, multipart=True))
    return runs


def _split(body: bytes, sizes: list[int]) -> tuple[bytes, ...]:
    parts = []
    at = 0
    for size in sizes:
        parts.append(body[at : at + size])
        at += size
    return tuple(parts)


def _envelope(row: dict[str, Any], known: dict[Any, Envelope]) -> Envelope:
    identity = tuple(row.values())
    envelope = known.get(identity)
    if envelope is None:
        if len(known) >= 10_000:
            known.clear()
        envelope = known[identity] = Envelope(**fields_of(row))
    return envelope
