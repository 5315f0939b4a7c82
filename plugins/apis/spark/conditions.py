"""Conditions on the texts of an envelope, which a reader applies before rows are passed to Spark.

They are decided once for each envelope of a commit, and most commits have few.  What does not fit is never
passed to the JVM, which is the most expensive part of reading.  This module does not need Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import compute

COLUMNS = frozenset(("engine", "route", "exchange", "key"))
"""Columns of text that are never null: for them "does not fit" and "is not known to fit" are the same."""

_TESTS: dict[str, Callable[[Any, Any], Any]] = {
    "is": compute.equal,
    "in": lambda texts, values: compute.is_in(texts, value_set=pa.array(values, pa.string())),
    "begins": compute.starts_with,
    "ends": compute.ends_with,
    "contains": compute.match_substring,
}


class Condition(NamedTuple):
    """One condition; a row has to fit all of them."""

    column: str
    """One of ``COLUMNS``."""
    test: str
    """One of ``_TESTS``."""
    value: str | tuple[str, ...]
    """A text; for ``in`` several."""
    negated: bool = False


def fitting(stored: pa.RecordBatch, conditions: Sequence[Condition]) -> pa.RecordBatch | None:
    """Return the rows of a stored batch that fit all conditions; None if there are none."""
    column = stored.column("envelope")
    fits = None
    for condition in conditions:
        texts = column.dictionary.field(condition.column)
        found = _TESTS[condition.test](texts, condition.value)
        found = compute.invert(found) if condition.negated else found
        fits = found if fits is None else compute.and_(fits, found)
    # Often all envelopes of a commit give the same answer, and no row has to be looked at.
    if fits is None or compute.all(fits).as_py():
        return stored
    if not compute.any(fits).as_py():
        return None
    chosen = stored.filter(fits.take(column.indices))
    return chosen if chosen.num_rows else None
