"""What a reader finds: bounds, ranges, times, generations, and files that go while it reads."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from kernel.contracts.message import batch_of
from plugins.engines.journal.positions import forget, positions, write_position
from plugins.protocols.journal_format.errors import Damaged, JournalError, OutOfRange
from plugins.protocols.journal_format.identity import encode_identity, identity_of
from plugins.protocols.journal_format.index import SIZE
from plugins.protocols.journal_format.names import SegmentName
from plugins.protocols.journal_format.reader import Bounds, JournalReader
from tests.plugins.protocols.journal_format.conftest import write_segment
from tests.systems import linux_only


def record_batches(first: int, count: int, size: int = 2) -> list[list]:
    """Batches of ``size`` messages that say their offset."""
    return [
        [batch_of([b"%d" % offset for offset in range(start, start + size)])]
        for start in range(first, first + count * size, size)
    ]


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Offsets 0 to 5, 6 to 11 and 12 to 15, in batches of two a second apart."""
    write_segment(tmp_path, record_batches(0, 3), base=0, ts=1_000_000)
    write_segment(tmp_path, record_batches(6, 3), base=6, ts=4_000_000)
    write_segment(tmp_path, record_batches(12, 2), base=12, ts=7_000_000)
    return tmp_path


def offsets(reader: JournalReader, *span: int) -> list[int]:
    found = []
    for record_batch in reader.record_batches(*span):
        assert record_batch.column("body").to_pylist() == [
            b"%d" % n for n in record_batch.column("offset").to_pylist()
        ]
        found += record_batch.column("offset").to_pylist()
    return found


def test_a_journal_that_is_not_there_is_empty(tmp_path: Path) -> None:
    reader = JournalReader(tmp_path / "none")
    assert reader.bounds() == Bounds(0, 0)
    assert offsets(reader) == []
    assert reader.offset_at(5) == 0


@pytest.mark.slow
def test_any_range_is_read_exactly(journal: Path) -> None:
    reader = JournalReader(journal)
    assert reader.bounds() == Bounds(0, 16)
    for start in range(17):
        for stop in range(start, 18):
            assert offsets(reader, start, stop) == list(range(start, min(stop, 16)))


def test_a_time_is_found_by_batch(journal: Path) -> None:
    reader = JournalReader(journal)
    seconds = {0: 0, 1: 0, 2: 2, 3: 4, 4: 6, 6: 10, 7: 12, 8: 14, 9: 16}
    assert {second: reader.offset_at(second * 1_000_000) for second in seconds} == seconds
    assert reader.offset_at(1_000_001) == 2


def test_the_time_of_a_row_is_that_of_its_batch(journal: Path) -> None:
    reader = JournalReader(journal)
    times = [1_000_000 * (1 + offset // 2) for offset in range(16)]
    assert [reader.time_at(offset) for offset in range(17)] == [*times, None]
    index = SegmentName(6, 0).index_path(journal)
    index.write_bytes(index.read_bytes()[: 2 * SIZE] + bytes(SIZE) + index.read_bytes()[3 * SIZE :])
    assert reader.time_at(8) == times[8], "a damaged entry is rebuilt"
    for path in journal.glob(f"{SegmentName(0, 0)}.*"):
        path.unlink()
    assert reader.time_at(3) is None


def test_a_journal_has_the_identity_of_its_file(tmp_path: Path) -> None:
    assert identity_of(tmp_path) is None
    (tmp_path / "identity.json").write_bytes(encode_identity("a1"))
    assert identity_of(str(tmp_path)) == "a1"
    (tmp_path / "identity.json").write_text("{}")
    with pytest.raises(JournalError, match=r"identity.json: not the identity of a journal.* Delete the file"):
        identity_of(tmp_path)


def test_rows_that_retention_has_taken_are_named(journal: Path) -> None:
    name = SegmentName(0, 0)
    name.index_path(journal).unlink()
    reader = JournalReader(journal)
    assert reader.bounds() == Bounds(6, 16)
    with pytest.raises(
        OutOfRange, match="offsets 2 to 5 are no longer there; the journal begins at offset 6"
    ) as gone:
        offsets(reader, 2)
    assert (gone.value.start, gone.value.stop) == (2, 6)


def test_rows_that_are_in_no_segment_are_named_and_do_not_end_the_journal(journal: Path) -> None:
    SegmentName(6, 0).index_path(journal).unlink()
    reader = JournalReader(journal)
    damage: list[Damaged] = []
    found = [
        row
        for record_batch in reader.record_batches(3, on_damage=damage.append)
        for row in record_batch["offset"].to_pylist()
    ]
    assert found == [3, 4, 5, *range(12, 16)]
    assert [(one.start, one.stop) for one in damage] == [(6, 12)]
    with pytest.raises(Damaged, match=r"6-0000.index: offsets 8 to 11: the file is missing"):
        offsets(reader, 8)
    assert offsets(reader, 0, 6) == list(range(6))
    with pytest.raises(Damaged, match=r"6-0000.index: offset 8: the file is missing"):
        offsets(reader, 8, 9)


def test_a_new_generation_supersedes_all_that_it_stands_for(journal: Path) -> None:
    write_segment(journal, record_batches(0, 3, size=4), base=0, generation=1)
    reader = JournalReader(journal)
    assert [segment.name for segment in reader.segments()] == [SegmentName(0, 1), SegmentName(12, 0)]
    assert offsets(reader) == list(range(16))
    assert sum(info.end - info.start for info in reader.summaries()) == 16


def test_a_reader_goes_on_when_what_it_reads_is_compacted_or_deleted(journal: Path) -> None:
    reading = JournalReader(journal).record_batches()
    got = next(reading).column("offset").to_pylist()
    write_segment(journal, record_batches(0, 3, size=4), base=0, generation=1)
    for base in (0, 6):
        SegmentName(base, 0).index_path(journal).unlink()
        SegmentName(base, 0).data_path(journal).unlink()
    for record_batch in reading:
        got += record_batch.column("offset").to_pylist()
    assert got == list(range(16))


def test_what_is_added_is_seen_by_the_next_look(journal: Path) -> None:
    reader = JournalReader(journal)
    segment = reader.segments()[-1]
    assert not segment.refresh()
    write_segment(journal, record_batches(12, 5), base=12)
    assert segment.refresh()
    assert segment.end == reader.bounds().end == 22


def test_positions_of_consumers(journal: Path) -> None:
    assert positions(journal) == {}
    write_position(journal, "spark-1", 5)
    write_position(journal, "spark-1", 9)
    write_position(journal, "b@c", 2)
    assert positions(journal) == {"spark-1": 9, "b@c": 2}
    forget(journal, "b@c")
    assert positions(journal) == {"spark-1": 9}
    for name in ("", "a/b", ".hidden", "x" * 300):
        with pytest.raises(JournalError, match="cannot be the name of a consumer"):
            write_position(journal, name, 1)
    (journal / "consumers" / "bad.json").write_text("{}")
    with pytest.raises(JournalError, match="bad.json: not a consumer's position"):
        positions(journal)


@linux_only
def test_a_position_is_safe_before_it_takes_the_place_of_the_last_one(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a loss of power leaves a file that is empty."""
    synced: list[tuple[object, dict[str, int]]] = []

    def sync(descriptor: int) -> None:
        place = Path(f"/proc/self/fd/{descriptor}")
        said = "folder" if place.is_dir() else json.loads(place.read_bytes())["next_offset"]
        synced.append((said, positions(journal)))

    write_position(journal, "spark", 5)
    for call in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, call, sync)
    write_position(journal, "spark", 9)
    assert synced == [(9, {"spark": 5}), ("folder", {"spark": 9})]
