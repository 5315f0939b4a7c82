"""A writer that begins after a crash, or after worse: cut and flipped at bytes all over (every byte: the reader's test_damage.py)."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kernel.hosting.appending import Disk
from plugins.engines.journal.positions import write_position
from plugins.engines.journal.writer import JournalWriter, WriterSettings
from plugins.protocols.journal_format.errors import Damaged, JournalError
from plugins.protocols.journal_format.index import SIZE
from plugins.protocols.journal_format.names import DATA, INDEX, SegmentName
from plugins.protocols.journal_format.reader import JournalReader
from plugins.protocols.journal_format.segment import Segment
from tests.plugins.engines.journal.conftest import LimitedDisk, append, bodies_in, descriptors_in, numbered

FIRST = SegmentName(0, 0)


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Three commits of a message each."""
    path = tmp_path / "journal"
    with JournalWriter(path) as writer:
        for body in numbered(0, 3):
            append(writer, body)
    return path


def served(journal: Path) -> tuple[dict[int, bytes], list[Damaged]]:
    damage: list[Damaged] = []
    rows: dict[int, bytes] = {}
    for record_batch in JournalReader(journal).record_batches(
        columns=["offset", "body"], on_damage=damage.append
    ):
        rows |= dict(
            zip(
                record_batch.column("offset").to_pylist(),
                record_batch.column("body").to_pylist(),
                strict=True,
            )
        )
    return rows, damage


def reopen(journal: Path) -> tuple[dict[int, bytes], list[Damaged]]:
    """Have a new writer go on, and return what is served then, without its own message."""
    with JournalWriter(journal, disk=LimitedDisk()) as writer:
        added = writer.next_offset
        append(writer, b"new")
    rows, damage = served(journal)
    assert rows.pop(added) == b"new", "what is added after damage is served"
    return rows, damage


def all_over(
    journal: Path, name: str, spoil: Callable[[bytes, int], bytes], check: Callable[[int], None], step: int
) -> None:
    """Spoil a copy of the journal at every so many bytes, and check it."""
    good = (journal / name).read_bytes()
    kept = journal.with_name("kept")
    journal.rename(kept)
    for at in range(0, len(good), step):
        shutil.copytree(kept, journal)
        (journal / name).write_bytes(spoil(good, at))
        check(at)
        shutil.rmtree(journal)


def flipped(good: bytes, at: int) -> bytes:
    return good[:at] + bytes([good[at] ^ 1 << at % 8]) + good[at + 1 :]


def cut(good: bytes, at: int) -> bytes:
    return good[:at]


@pytest.mark.slow
@pytest.mark.parametrize("spoil", [flipped, cut])
def test_an_index_may_be_spoilt_anywhere_and_nothing_is_lost(
    journal: Path, spoil: Callable[[bytes, int], bytes]
) -> None:
    def check(_: int) -> None:
        assert reopen(journal) == (dict(enumerate(numbered(0, 3))), [])
        assert bodies_in(journal) == [*numbered(0, 3), b"new"]

    all_over(journal, f"{FIRST}{INDEX}", spoil, check, step=3)


@pytest.mark.slow
@pytest.mark.parametrize("spoil", [flipped, cut])
def test_data_may_be_spoilt_anywhere_and_only_what_was_hit_is_lost(
    journal: Path, spoil: Callable[[bytes, int], bytes]
) -> None:
    entries = Segment(journal, FIRST).entries()

    def check(at: int) -> None:
        hit = {
            entry.offset
            for entry in entries
            if at < entry.stop and (spoil is cut or at >= entry.position)
            and (spoil is cut or at - entry.position - entry.check_at not in range(8))
        }  # fmt: skip
        rows, damage = reopen(journal)
        assert rows == {offset: b"%d" % offset for offset in range(3) if offset not in hit}
        assert {offset for one in damage for offset in range(one.start, one.stop)} == hit

    all_over(journal, f"{FIRST}{DATA}", spoil, check, step=23)


def test_an_index_that_is_gone_is_made_anew(journal: Path) -> None:
    FIRST.index_path(journal).unlink()
    with JournalWriter(journal) as writer:
        assert writer.next_offset == 3
    assert bodies_in(journal) == numbered(0, 3)


@pytest.mark.parametrize("call", ["reopen", "open_direct"])
def test_a_journal_that_cannot_be_opened_leaves_nothing_open(
    journal: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    class BrokenDisk(LimitedDisk):
        calls = 0

    def fail(self: BrokenDisk, path: Path) -> int | None:
        self.calls += 1
        if call == "open_direct" or self.calls == 2:
            raise OSError(errno.EMFILE, "Too many open files")
        return Disk.reopen(self, path)

    monkeypatch.setattr(BrokenDisk, call, fail)
    with pytest.raises(OSError, match="Too many open files"):
        JournalWriter(journal, disk=BrokenDisk())
    assert not descriptors_in(journal)
    JournalWriter(journal).close()


def test_what_was_never_committed_is_cut_off(journal: Path) -> None:
    path = FIRST.data_path(journal)
    good = path.read_bytes()
    last = Segment(journal, FIRST).entries()[-1]
    for tail in (b"\0" * 5000, good[last.position : -1], b"\xff" * 11, good[last.position :]):
        path.write_bytes(good + tail)
        with JournalWriter(journal) as writer:
            assert writer.recovered == (0, 0, len(tail), 0), "a commit with an offset that was is no commit"
        assert path.read_bytes() == good


def test_a_commit_that_is_whole_is_taken_in(journal: Path) -> None:
    index = FIRST.index_path(journal)
    index.write_bytes(index.read_bytes()[: -2 * SIZE])
    with JournalWriter(journal) as writer:
        assert writer.recovered == (2, 0, 0, 0)
    assert bodies_in(journal) == numbered(0, 3)


def test_nothing_is_appended_to_a_segment_that_is_not_whole(journal: Path) -> None:
    path = FIRST.data_path(journal)
    good = path.read_bytes()
    path.write_bytes(good[:-100])
    with JournalWriter(journal) as writer:
        assert writer.segment == SegmentName(3, 0)
    assert path.read_bytes() == good[:-100], "whatever is there stays"


def test_a_segment_of_which_nothing_can_be_read_is_named(journal: Path) -> None:
    FIRST.index_path(journal).write_bytes(b"\0" * 4 * SIZE)
    data = FIRST.data_path(journal)
    data.write_bytes(b"\0" * data.stat().st_size)
    with pytest.raises(JournalError, match="nothing of this segment can be read; move it away"):
        JournalWriter(journal)
    JournalWriter(journal.with_name("other")).close()


def test_leftovers_of_a_compaction_go(journal: Path) -> None:
    SegmentName(0, 1).data_path(journal).write_bytes(b"half")
    (journal / ".00000000000000000000-0001.index.new").write_bytes(b"half")
    JournalWriter(journal).close()
    assert {path.suffix for path in journal.iterdir()} == {DATA, INDEX, ".lock", ".json"}
    assert bodies_in(journal) == numbered(0, 3)


def test_settings_may_change_between_writers(journal: Path) -> None:
    with JournalWriter(journal, WriterSettings(compression="zstd")) as writer:
        append(writer, b"3")
    assert bodies_in(journal) == numbered(0, 4)


def test_a_journal_without_its_rows_begins_where_its_consumers_are(tmp_path: Path) -> None:
    """Somebody has deleted the segments, and an offset stands for one row for ever."""
    write_position(tmp_path, "reader", 700)
    write_position(tmp_path, "unread", 1 << 62)
    (tmp_path / "consumers" / "lost.json").touch()
    with JournalWriter(tmp_path) as writer:
        append(writer, b"700")
    assert JournalReader(tmp_path).bounds() == (700, 701)
    assert [path.name for path in tmp_path.glob("*.index")] == [f"{700:020d}-0000.index"]
