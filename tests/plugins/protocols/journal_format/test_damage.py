"""Every byte of a small journal cut off, and every byte flipped: what a reader still serves, and what it says.

``KERNEL_SEEDS`` below 1 tries every n-th byte.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel.contracts.message import Envelope, batch_of
from plugins.protocols.journal_format.errors import Damaged, UnknownVersion
from plugins.protocols.journal_format.index import SIZE, Header, decode_entries, encode_header
from plugins.protocols.journal_format.names import SegmentName
from plugins.protocols.journal_format.reader import JournalReader
from plugins.protocols.journal_format.schema import STORED_BYTES
from plugins.protocols.journal_format.segment import Segment
from tests.plugins.protocols.journal_format.conftest import write_segment
from tests.seeds import spread

NAME = SegmentName(0, 0)
BATCHES = [
    [batch_of([b"first"], Envelope(key="a")), batch_of([b"second"], Envelope(key="b"))],
    [batch_of([b"third"], Envelope(key="a"))],
    [batch_of([b"fourth", b"fifth"], Envelope(key="c"))],
]
BODIES = [b"first", b"second", b"third", b"fourth", b"fifth"]


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    write_segment(tmp_path, BATCHES)
    return tmp_path


def read(journal: Path) -> tuple[list[tuple[int, bytes]], list[Damaged]]:
    damage: list[Damaged] = []
    rows: list[tuple[int, bytes]] = []
    for record_batch in JournalReader(journal).record_batches(
        columns=["offset", "body"], on_damage=damage.append
    ):
        rows += zip(
            record_batch.column("offset").to_pylist(), record_batch.column("body").to_pylist(), strict=True
        )
    return rows, damage


def commits(journal: Path) -> list[range]:
    """Return the offsets of each commit."""
    raw = NAME.index_path(journal).read_bytes()[SIZE:]
    return [range(entry.offset, entry.end) for entry in decode_entries(raw) if entry]


def check(journal: Path, lost: list[int]) -> None:
    """Whatever is not lost is served, in order and unchanged; what is lost is named, and nothing else."""
    rows, damage = read(journal)
    assert rows == [(offset, body) for offset, body in enumerate(BODIES) if offset not in lost]
    assert [offset for one in damage for offset in range(one.start, one.stop)] == lost
    assert all(str(journal) in str(one) for one in damage)


@pytest.mark.slow
@pytest.mark.parametrize("start,stop", [(0, 1), (0, 5), (1, 2), (2, 3), (2, 9), (3, 4), (4, 5)])
def test_a_flipped_bit_in_the_index_costs_nothing_of_any_range(journal: Path, start: int, stop: int) -> None:
    path = NAME.index_path(journal)
    good = path.read_bytes()
    for at in spread(range(len(good))):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1 << at % 8]) + good[at + 1 :])
        record_batches = JournalReader(journal).record_batches(start, stop, ["body"])
        assert [
            body for record_batch in record_batches for body in record_batch.column(0).to_pylist()
        ] == BODIES[start:stop]


@pytest.mark.slow
def test_a_flipped_bit_in_the_data_costs_its_commit_and_is_named(journal: Path) -> None:
    path = NAME.data_path(journal)
    good = path.read_bytes()
    entries = Segment(journal, NAME).entries()
    for at in spread(range(len(good))):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1 << at % 8]) + good[at + 1 :])
        hit = [
            entry
            for entry in entries
            if entry.position <= at < entry.stop
            and at - entry.position - entry.check_at not in range(8)  # the CRC is in the index, too
        ]
        check(journal, [offset for entry in hit for offset in range(entry.offset, entry.end)])


@pytest.mark.slow
def test_a_flipped_bit_in_the_index_costs_nothing(journal: Path) -> None:
    path = NAME.index_path(journal)
    good = path.read_bytes()
    for at in spread(range(len(good))):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1 << at % 8]) + good[at + 1 :])
        check(journal, [])


@pytest.mark.slow
def test_data_that_is_cut_off_costs_the_commits_that_it_had(journal: Path) -> None:
    path = NAME.data_path(journal)
    good = path.read_bytes()
    entries = Segment(journal, NAME).entries()
    for size in spread(range(len(good))):
        path.write_bytes(good[:size])
        check(
            journal,
            [offset for entry in entries if entry.stop > size for offset in range(entry.offset, entry.end)],
        )


@pytest.mark.slow
def test_an_index_that_is_cut_off_ends_the_journal_there(journal: Path) -> None:
    path = NAME.index_path(journal)
    good = path.read_bytes()
    there = commits(journal)
    for size in spread(range(len(good))):
        path.write_bytes(good[:size])
        whole = max(size - SIZE, 0) // SIZE
        rows, damage = read(journal)
        assert [offset for offset, _ in rows] == [offset for commit in there[:whole] for offset in commit]
        assert damage == []


def test_an_entry_and_its_commit_that_are_both_damaged_are_named(journal: Path) -> None:
    entry = Segment(journal, NAME).entries()[1]
    for path, at in (
        (NAME.index_path(journal), 2 * SIZE + 3),
        (NAME.data_path(journal), entry.position + 20),
    ):
        good = path.read_bytes()
        path.write_bytes(good[:at] + bytes([good[at] ^ 255]) + good[at + 1 :])
    rows, damage = read(journal)
    assert [body for _, body in rows] == [b"first", b"second", b"fourth", b"fifth"]
    assert [(one.start, one.stop) for one in damage] == [(2, 3)]
    assert "entry 1" in str(damage[0])


def test_damage_that_nobody_takes_is_raised_with_file_and_offset(journal: Path) -> None:
    entry = Segment(journal, NAME).entries()[2]
    path = NAME.data_path(journal)
    good = path.read_bytes()
    path.write_bytes(good[: entry.stop - 9] + b"?" + good[entry.stop - 8 :])
    with pytest.raises(
        Damaged, match=r"00000000000000000000-0000.arrows: offsets 3 to 4: the CRC does not agree"
    ):
        list(JournalReader(journal).record_batches())


def test_zeros_where_data_were_lost_are_no_end_and_no_message(journal: Path) -> None:
    path = NAME.data_path(journal)
    entry = Segment(journal, NAME).entries()[-1]
    path.write_bytes(path.read_bytes()[: entry.position] + bytes(entry.length))
    check(journal, [3, 4])


def test_a_later_version_is_refused(journal: Path) -> None:
    path = NAME.index_path(journal)
    header = encode_header(Header(0, 0, len(STORED_BYTES), 0, 0, version=2))
    path.write_bytes(header + path.read_bytes()[SIZE:])
    with pytest.raises(UnknownVersion, match="format 2; this version reads up to format 1"):
        list(JournalReader(journal).record_batches())


@pytest.mark.parametrize("start,stop", [(0, 1), (0, 2), (1, 2)])
def test_entries_that_are_cut_out_of_an_index_cost_nothing(journal: Path, start: int, stop: int) -> None:
    """The entry behind them proves that their rows were committed."""
    index = NAME.index_path(journal)
    raw = index.read_bytes()
    index.write_bytes(raw[: SIZE + SIZE * start] + raw[SIZE + SIZE * stop :])
    check(journal, [])
    for first in range(len(BODIES)):
        record_batches = JournalReader(journal).record_batches(first, first + 1, ["body"])
        assert [row for one in record_batches for row in one.column("body").to_pylist()] == [BODIES[first]]


def test_a_data_file_that_is_missing_is_named_with_its_rows_and_does_not_stop_the_reader(
    tmp_path: Path,
) -> None:
    ends = [write_segment(tmp_path, BATCHES)]
    ends += [write_segment(tmp_path, BATCHES, base=ends[0])]
    ends += [write_segment(tmp_path, BATCHES, base=ends[1])]
    SegmentName(ends[0], 0).data_path(tmp_path).unlink()
    rows, damage = read(tmp_path)
    assert [offset for offset, _ in rows] == [*range(ends[0]), *range(ends[1], ends[2])]
    (missing,) = damage
    assert (missing.start, missing.stop) == (ends[0], ends[1])
    assert str(missing).startswith(str(SegmentName(ends[0], 0).data_path(tmp_path)))
    assert "the file is missing" in str(missing)
    with pytest.raises(Damaged, match="the file is missing"):
        list(JournalReader(tmp_path).record_batches(ends[0], ends[1]))
