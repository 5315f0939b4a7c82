"""Whatever happens to one file of the sink: each row is written once, or the driver says which file it was."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from plugins.apis.spark.publishing import publish
from plugins.apis.spark.staging import stage
from plugins.engines.journal.writer import JournalWriter
from plugins.protocols.journal_format.errors import JournalError
from plugins.protocols.journal_format.reader import JournalReader
from tests.folder_damage import damaged, files_of

PRODUCERS = ("first", "second")
PARTS = 3


class Killed(BaseException):
    """What the driver is killed with."""


def staged_files(journal: Path, producer: str, epoch: int) -> list[str]:
    """Stage an epoch of some files, each of two batches."""
    parts = [
        [
            pa.RecordBatch.from_pydict({"body": [f"{producer} {epoch} {part} {batch}".encode()]})
            for batch in range(2)
        ]
        for part in range(PARTS)
    ]
    names = [stage(journal, producer, epoch, number, part) for number, part in enumerate(parts)]
    return [name for name in names if name is not None]


def rows(journal: Path) -> list[bytes]:
    return [
        body
        for batch in JournalReader(journal).record_batches(columns=["body"])
        for body in batch.column(0).to_pylist()
    ]


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Two journals, in which two producers have written an epoch, and were killed in the middle of the next."""
    real = JournalWriter.append_stored
    for journal in (tmp_path / "ours", tmp_path / "theirs"):
        journal.mkdir()
        for producer in PRODUCERS:
            publish(journal, producer, 0, staged_files(journal, producer, 0))
            appended = iter(range(100))

            def append(self: JournalWriter, *batch: Any, appended: Iterator[int] = appended) -> Any:
                if next(appended) == 3:
                    raise Killed
                return real(self, *batch)

            with monkeypatch.context() as patch:
                patch.setattr(JournalWriter, "append_stored", append)
                with pytest.raises(Killed):
                    publish(journal, producer, 1, staged_files(journal, producer, 1))
    return tmp_path / "ours", tmp_path / "theirs"


def go_on(journal: Path) -> list[str]:
    """Have new drivers repeat the epoch, as Spark does; return what they complain of."""
    complaints = []
    for producer in PRODUCERS:
        try:
            publish(journal, producer, 1, staged_files(journal, producer, 1))
        except JournalError as error:
            complaints.append(str(error))
    return complaints


@pytest.mark.slow
def test_no_row_is_lost_or_doubled_silently(folders: tuple[Path, Path], tmp_path: Path) -> None:
    ours, theirs = folders
    whole = Path(shutil.copytree(ours, tmp_path / "whole"))
    assert len([name for name in files_of(whole) if name.startswith("staged")]) == PARTS * len(PRODUCERS)
    assert go_on(whole) == []
    wanted = sorted(rows(whole))
    assert len(wanted) == len(set(wanted)) == 2 * 2 * PARTS * len(PRODUCERS)
    wrong = []
    for damage in damaged(ours, theirs, tmp_path, within=("staged", "producers")):
        try:
            complaints = go_on(damage.folder)
        except Exception as error:
            wrong.append(f"{damage}: {error!r}")
            continue
        if sorted(rows(damage.folder)) != wanted and not damage.is_told_in(complaints):
            wrong.append(f"{damage}: {complaints}")
    assert not wrong, "\n".join(wrong)
