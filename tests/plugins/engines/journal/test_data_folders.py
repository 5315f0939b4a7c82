"""Whatever happens to one file of a journal: all rows are served, or somebody says which file it was."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner

from plugins.engines.journal.commands.group import command
from plugins.engines.journal.compaction import compact
from plugins.engines.journal.moving import finish_move
from plugins.engines.journal.positions import positions, write_position
from plugins.engines.journal.writer import JournalWriter, WriterSettings
from plugins.protocols.journal_format.errors import Damaged, JournalError
from plugins.protocols.journal_format.identity import identity_of
from plugins.protocols.journal_format.names import INDEX
from plugins.protocols.journal_format.reader import JournalReader
from tests.folder_damage import Damage, damaged, files_of
from tests.plugins.engines.journal.conftest import LimitedDisk, append

CONSUMERS = {"billing": 2, "search": 17}


class Served(NamedTuple):
    """What a journal has, and what was said of it."""

    rows: dict[int, bytes]
    consumers: dict[str, int]
    words: list[str]


def served(journal: Path) -> Served:
    """Read all that there is, as a consumer does and as ``kernel journal verify`` does."""
    damage: list[Damaged] = []
    rows: dict[int, bytes] = {}
    columns = ["offset", "body"]
    start = JournalReader(journal).bounds().earliest
    for batch in JournalReader(journal).record_batches(start, columns=columns, on_damage=damage.append):
        rows |= dict(zip(batch.column("offset").to_pylist(), batch.column("body").to_pylist(), strict=True))
    words = [str(one) for one in damage]
    verified = CliRunner().invoke(command, ["verify", str(journal)])
    if verified.exception is not None and not isinstance(verified.exception, SystemExit):
        raise verified.exception
    words.append(verified.output)
    consumers: dict[str, int] = {}
    try:
        consumers = positions(journal)
        identity_of(journal)
    except JournalError as error:
        words.append(str(error))
    return Served(rows, consumers, words)


def fill(path: Path, name: str) -> None:
    """Make a journal of a compacted segment and of others, with consumers."""

    def write(first: int, stop: int) -> None:
        with JournalWriter(path, WriterSettings(roll_bytes=8000), disk=LimitedDisk()) as writer:
            for number in range(first, stop):
                append(writer, b"%s %d" % (name.encode(), number))

    write(0, 14)
    assert compact(path)
    write(14, 30)
    for consumer, position in CONSUMERS.items():
        write_position(path, consumer, position + len(name))


@pytest.fixture(scope="module")
def journals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    journals = tmp_path_factory.mktemp("journals")
    for name in ("ours", "the others'"):
        fill(journals / name, name)
    return journals


@pytest.mark.slow
def test_nothing_is_lost_silently(journals: Path, tmp_path: Path) -> None:
    ours = journals / "ours"
    indexes = [name for name in files_of(ours) if name.endswith(INDEX)]
    assert len(indexes) >= 4
    assert "-0001" in indexes[0]
    whole = served(ours)
    assert whole.rows == {number: b"ours %d" % number for number in range(30)}
    assert len(whole.words) == 1
    assert whole.consumers == {consumer: position + 4 for consumer, position in CONSUMERS.items()}
    wrong = []
    for damage in damaged(ours, journals / "the others'", tmp_path):
        try:
            wrong += [f"{damage}: {what}" for what in faults_of(damage, whole)]
        except Exception as error:
            wrong.append(f"{damage}: {error!r}")
    assert not wrong, "\n".join(wrong)


def faults_of(damage: Damage, whole: Served) -> Iterator[str]:
    """Yield what is wrong about how a damaged journal is read, and how a new writer goes on with it."""
    before = served(damage.folder)
    if before[:2] != whole[:2] and not damage.is_told_in(before.words):
        yield f"readers are not told: {before.words}"
    refused = []
    added = -1
    try:
        with JournalWriter(damage.folder, disk=LimitedDisk()) as writer:
            added = writer.next_offset
            append(writer, b"new")
    except JournalError as error:
        refused.append(str(error))
    after = served(damage.folder)
    if added >= 0 and after.rows.pop(added, None) != b"new":
        yield f"what is added is not served: {after.rows}"
    if after[:2] != whole[:2] and not damage.is_told_in([*before.words, *after.words, *refused]):
        yield f"nobody is told: {after.words}, {refused}"
    if not before.rows.items() <= after.rows.items():
        yield f"the new writer has taken {before.rows.keys() - after.rows.keys()}"
    if damage.name.endswith(INDEX):
        CliRunner().invoke(command, ["repair", str(damage.folder)], catch_exceptions=False)
        if not whole.rows.items() <= served(damage.folder).rows.items():
            yield "it cannot be repaired"


@pytest.mark.parametrize("octets", [b"", b'{"directory": "/somewhere"', b'{"directory": "/somewhere"}', b"7"])
def test_a_damaged_record_of_a_move_is_named(tmp_path: Path, octets: bytes) -> None:
    (tmp_path / "moved.json").write_bytes(octets)
    with pytest.raises(JournalError, match=r"moved\.json: not the record of a move"):
        finish_move(tmp_path)
