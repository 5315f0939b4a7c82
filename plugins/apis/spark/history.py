"""The history of a report: what it has found in each part of a journal, for a job that is repeated.

Each run continues at the offset at which the run before ended.  The folder has:

* ``TABLE/FIRST-END.parquet``: the rows of a table of the report, with the range of offsets that they are
  about.  So ``TABLE`` is a Parquet table of all runs.
* ``state.json``: how far the runs have come.  It is written before a run, with the end that is planned, and
  after it.  A run that was killed is repeated with the same range, and writes the same files again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from kernel.hosting.appending import replace_file
from plugins.apis.spark.errors import DataLost, SparkOptionError
from plugins.apis.spark.options import ReadOptions
from plugins.apis.spark.planning import bounds
from plugins.apis.spark.report.findings import Report, Table, Unit
from plugins.protocols.journal_format.identity import identity_of
from plugins.protocols.journal_format.reader import JournalReader

FIRST, END = "first_offset", "end_offset"
"""The columns that each table has besides its own."""
_RANGE = ("startingoffset", "endingoffset", "startingtimestamp", "endingtimestamp")
_NUMBERS: Mapping[Unit, Any] = {
    "messages": pa.int64(),
    "bytes": pa.int64(),
    "messages/s": pa.float64(),
    "bytes/s": pa.float64(),
    "seconds": pa.float64(),
    "share": pa.float64(),
}


class _State(msgspec.Struct, frozen=True):
    """The content of ``state.json``."""

    journal: str | None
    """The identity of the journal."""
    end: int
    """The offset after the last row of the runs that are done."""
    planned: int | None = None
    """That of a run that has begun."""


class History:
    """The history of one report, and the part of the journal that its next run is about."""

    def __init__(self, folder: Path, job: str, reads: Mapping[str, str]) -> None:
        """Plan the next run; ``reads`` limits the first one.

        Raises ``DataLost`` if the journal is not the one that earlier runs have read, or lacks rows that they
        have not read.
        """
        self._folder = folder
        self._job = job
        options = ReadOptions.parse(reads)
        journal = options.journal
        present = bounds(JournalReader(journal), options)
        state = self._read()
        identity = identity_of(journal)
        if state is None:
            state = _State(identity, present[0])
        elif state.journal != identity:
            raise DataLost(
                f"{journal} is not the journal that {self._path} is about: it was written anew. Begin another history"
            )
        earliest = JournalReader(journal).bounds().earliest
        if state.end < earliest and options.fail_on_data_loss:
            raise DataLost(
                f"{journal}: offsets {state.end} to {earliest - 1} have not been read and no longer exist: retention "
                "has deleted them. To go on after them, set failOnDataLoss to false"
            )
        self.first = max(state.end, earliest)
        # A run that was killed has planned its end. It is repeated with the same one, so that its tables
        # replace those that it has written.
        self.end = max(self.first, present[1] if state.planned is None else state.planned)
        self._state = state
        self._reads = reads

    @property
    def _path(self) -> Path:
        return self._folder / "state.json"

    @property
    def token(self) -> str:
        """What tells this run from all others."""
        return f"{self._job}-{self.first}-{self.end}"

    @property
    def staging(self) -> Path:
        """Where rows wait that are sent."""
        return self._folder / "staged"

    def begin(self) -> dict[str, str]:
        """Note the range, and return the options with which the run reads it."""
        self._write(msgspec.structs.replace(self._state, planned=self.end))
        others = {name: value for name, value in self._reads.items() if name.lower() not in _RANGE}
        return {**others, "startingOffset": str(self.first), "endingOffset": str(self.end)}

    def add(self, report: Report) -> None:
        """Write the tables of the report."""
        for part in report.parts:
            if isinstance(part, Table) and part.rows:
                folder = self._folder / part.name
                folder.mkdir(parents=True, exist_ok=True)
                sink = pa.BufferOutputStream()
                pq.write_table(self._as_arrow(part), sink)
                # Twenty digits, so that the files sort as their offsets do. Replaced as a whole: a run that
                # is killed leaves no half of a table.
                replace_file(folder / f"{self.first:020}-{self.end:020}.parquet", sink.getvalue())

    def finish(self) -> None:
        """The run is done: the next one continues at its end."""
        self._write(_State(self._state.journal, self.end))

    def _as_arrow(self, table: Table) -> pa.Table:
        columns = {
            name: _column([row[index] for row in table.rows], table.units.get(name, ""))
            for index, name in enumerate(table.columns)
        }
        count = len(table.rows)
        about = {name: pa.repeat(pa.scalar(offset), count) for name, offset in self._about().items()}
        return pa.table({**about, **columns})

    def _about(self) -> dict[str, int]:
        return {FIRST: self.first, END: self.end}

    def _read(self) -> _State | None:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=_State)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise SparkOptionError(
                f"{self._path}: it is not what an earlier run has written: {error}. Begin another history"
            ) from None

    def _write(self, state: _State) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        replace_file(self._path, msgspec.json.encode(state))


def _column(values: Sequence[Any], unit: Unit) -> Any:
    """Return a column whose type does not depend on the values of this run."""
    wanted = _NUMBERS.get(unit)
    if wanted is not None:
        return pa.array(values, wanted)
    found = pa.array(values)
    # Only nulls, which have no type of their own: columns without a unit are texts in most tables.
    return found.cast(pa.string()) if pa.types.is_null(found.type) else found


def alerts_of(job: str, report: Report, about: History | None) -> list[tuple[str, str, str]]:
    """Return a message for each figure that the report's page emphasizes: key, content type, body."""
    where = {} if about is None else {FIRST: about.first, END: about.end}
    return [
        (
            f"alert.{job}",
            "application/json",
            msgspec.json.encode(
                {"job": job, "figure": each.label, "value": each.value, "unit": each.unit, **where}
            ).decode(),
        )
        for each in report.figures
        if each.bad
    ]
