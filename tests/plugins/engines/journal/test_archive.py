"""Segments in an archive: moved whole, read from both places, deleted by retention, and lost in no step."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path

import pytest
from click.testing import CliRunner

from kernel import EnginePlan, RoutePlan
from kernel.contracts.message import Envelope
from kernel.testing.fixtures import KernelFactory
from plugins.engines.journal import archiving, committer
from plugins.engines.journal.archive_folder import Stopped
from plugins.engines.journal.archiving import Moved, archive_sealed
from plugins.engines.journal.commands.group import command
from plugins.engines.journal.compaction import compact
from plugins.engines.journal.options import JournalOptions, KeepOptions
from plugins.engines.journal.retention import delete, expired
from plugins.engines.journal.writer import JournalWriter, WriterSettings
from plugins.protocols.journal_format.errors import Damaged, JournalError, OutOfRange
from plugins.protocols.journal_format.folders import ArchiveUnavailable, Location, archive_at
from plugins.protocols.journal_format.identity import identity_of
from plugins.protocols.journal_format.names import segment_names
from plugins.protocols.journal_format.reader import Bounds, JournalReader
from tests.events import Events
from tests.object_store import CREDENTIALS, ObjectStore, object_store
from tests.plugins.engines.journal.conftest import LimitedDisk, append, numbered
from tests.plugins.engines.journal.test_engine import TIMEOUT, figures

COUNT = 30
MISSING = b"missing"


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def store() -> Iterator[ObjectStore]:
    with object_store() as store:
        # What pyarrow opens for its first request stays open.
        archive_at(store.address()).files()
        archive_at.cache_clear()
        yield store


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Rows that are their offsets, in some segments; all have an envelope."""
    write(tmp_path / "j", COUNT)
    return tmp_path / "j"


def write(journal: Path, count: int, *, compacted: bool = False) -> None:
    with JournalWriter(journal, WriterSettings(roll_bytes=8000), disk=LimitedDisk()) as writer:
        first = writer.next_offset
        for body in numbered(first, first + count):
            append(writer, body, envelope=Envelope(key="k"))
    if compacted:
        compact(journal)


def bodies(location: Location, start: int | None = None) -> list[bytes]:
    """Read with nothing in memory; damage raises."""
    archive_at.cache_clear()
    return bodies_from(location, start)


def bodies_from(location: Location, start: int | None = None) -> list[bytes]:
    reader = JournalReader(location)
    first = reader.bounds().earliest if start is None else start
    return [
        body
        for record_batch in reader.record_batches(first, columns=["body"])
        for body in record_batch.column(0).to_pylist()
    ]


def sealed_end(journal: Path) -> int:
    return JournalReader(journal, with_archive=False).sealed()[-1].end


@pytest.mark.parametrize("kind", ["object store", "mounted"])
def test_sealed_segments_are_read_from_both_places(
    store: ObjectStore, journal: Path, tmp_path: Path, kind: str
) -> None:
    address = store.address() if kind == "object store" else (tmp_path / "far" / "away").as_uri()
    end = sealed_end(journal)
    assert archive_sealed(journal, address) == Moved(1, ()), "they were compacted into one"
    assert segment_names(journal)[0].base == end, "only what is written stays"
    assert JournalReader(journal).bounds() == (0, COUNT)
    assert bodies(journal) == numbered(0, COUNT)
    assert bodies(journal, 7) == numbered(7, COUNT)
    alone = address if kind == "object store" else tmp_path / "far" / "away"
    assert JournalReader(alone).bounds() == Bounds(0, end)
    assert bodies(alone) == numbered(0, end)
    assert identity_of(alone) == identity_of(journal)
    assert archive_sealed(journal, address) == Moved(0, ())


def test_a_journal_goes_on_after_its_segments_were_moved(store: ObjectStore, journal: Path) -> None:
    for _ in range(3):
        archive_sealed(journal, store.address())
        write(journal, COUNT)
    assert bodies(journal) == numbered(0, 4 * COUNT)
    assert len(store.named(".index")) == 3


def test_the_archive_is_listed_only_when_something_has_changed(store: ObjectStore, journal: Path) -> None:
    archive_sealed(journal, store.address())
    reader = JournalReader(journal)
    reader.bounds()
    store.requests.clear()
    write(journal, 1)
    assert reader.bounds() == (0, COUNT + 1)
    assert not store.requests


@pytest.mark.slow
def test_readers_find_every_row_at_every_moment(
    store: ObjectStore, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before each request and each local deletion all is read, from the directory and from the archive alone."""
    moments = ends = 0
    looking = False

    def look() -> None:
        nonlocal moments, ends, looking
        if looking:
            return
        looking = True
        moments += 1
        assert bodies_from(journal) == numbered(0, COUNT + 20)
        if store.named("record.json"):
            alone = bodies_from(store.address())
            assert alone == numbered(0, len(alone))
            assert ends <= len(alone)
            ends = len(alone)
        looking = False

    archive_sealed(journal, store.address())
    write(journal, 20)
    failures: list[BaseException] = []

    def before(method: str, key: str) -> None:
        try:
            look()
        except BaseException as error:
            failures.append(error)

    store.before = before
    real = archiving.sync_directory

    def sync_directory(path: Path) -> None:
        look()
        real(path)

    monkeypatch.setattr(archiving, "sync_directory", sync_directory)
    assert archive_sealed(journal, store.address()).segments
    store.before = lambda method, key: None
    assert not failures
    assert moments > 10
    assert bodies(journal) == numbered(0, COUNT + 20)


_MOVER = """
import os, signal, sys
from pathlib import Path
from plugins.engines.journal.archiving import archive_sealed

number, real = int(sys.argv[3]), Path.unlink

def unlink(path, missing_ok=False):
    global number
    if path.suffix in (".index", ".arrows"):
        number -= 1
        if not number:
            os.kill(os.getpid(), signal.SIGKILL)
    real(path, missing_ok)

Path.unlink = unlink
archive_sealed(Path(sys.argv[1]), sys.argv[2])
"""


def mover(journal: Path, address: str, unlink: int = 0) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _MOVER, str(journal), address, str(unlink)],
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> int:
    _, told = process.communicate(timeout=60)
    assert process.returncode in (0, -signal.SIGKILL), told
    return process.returncode


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_kill_at_any_step_loses_nothing(store: ObjectStore, tmp_path: Path) -> None:
    write(tmp_path / "whole", COUNT, compacted=True)
    write(tmp_path / "whole", COUNT, compacted=True)
    write(tmp_path / "whole", 3)
    rows = numbered(0, 2 * COUNT + 3)

    def try_with(name: str, unlink: int, at: int) -> bool:
        """Kill at a local deletion, or before the request ``at``; return whether it was killed."""
        journal = tmp_path / name
        shutil.copytree(tmp_path / "whole", journal)
        address = store.address(name)
        count = 0
        process: subprocess.Popen[str] | None = None

        def before(method: str, key: str) -> None:
            nonlocal count
            count += 1
            if count == at:
                assert process is not None
                process.kill()

        store.before = before
        process = mover(journal, address, unlink)
        killed = ended(process) == -signal.SIGKILL
        store.before = lambda method, key: None
        assert bodies(journal) == rows, name
        # A new writer, as after a restart, and then the rest.
        with JournalWriter(journal, disk=LimitedDisk()) as writer:
            assert writer.next_offset == len(rows)
        archive_sealed(journal, address)
        assert bodies(journal) == rows, name
        alone = bodies(address)
        assert alone == numbered(0, len(alone))
        assert len(alone) == segment_names(journal)[0].base > COUNT
        # Nothing of a copy that was cut short is left.
        files = store.named(".arrows") + store.named(".index")
        assert len([each for each in files if each.startswith(f"{name}/")]) % 2 == 0
        return killed

    deletions = 1
    while try_with(f"deletion{deletions}", deletions, 0):
        deletions += 1
    requests = 1
    while try_with(f"request{requests}", 0, requests):
        # The second segment's are those of the first.
        requests += 4
    assert deletions > 4
    assert requests > 15


def test_a_store_that_is_away_loses_nothing(store: ObjectStore, journal: Path) -> None:
    archive_sealed(journal, store.address())
    write(journal, COUNT)
    for refused in ("GET", "PUT", "POST", "HEAD"):
        store.refuses = lambda method, key, refused=refused: method == refused  # type: ignore[misc]
        archive_at.cache_clear()
        with pytest.raises(ArchiveUnavailable, match="s3://bucket/journal"):
            archive_sealed(journal, store.address())
        store.refuses = lambda method, key: False
        assert bodies(journal) == numbered(0, 2 * COUNT)
    archive_sealed(journal, store.address())
    assert bodies(journal) == numbered(0, 2 * COUNT)


def test_a_reader_says_that_the_archive_is_away(store: ObjectStore, journal: Path) -> None:
    archive_sealed(journal, store.address())
    store.refuses = lambda method, key: True
    for location in (journal, store.address()):
        with pytest.raises(ArchiveUnavailable, match="s3://bucket/journal/"):
            bodies(location)


def test_a_copy_is_abandoned_when_the_engine_ends(store: ObjectStore, journal: Path) -> None:
    with pytest.raises(Stopped):
        archive_sealed(journal, store.address(), going=lambda: False)
    assert bodies(journal) == numbered(0, COUNT)
    archive_sealed(journal, store.address())
    assert bodies(journal) == numbered(0, COUNT)


# ------------------------------------------------------------------ objects that are missing, cut, swapped


@pytest.fixture
def archived(store: ObjectStore, journal: Path) -> Path:
    """A journal with three segments in the archive."""
    for _ in range(2):
        archive_sealed(journal, store.address())
        write(journal, COUNT)
    archive_sealed(journal, store.address())
    assert len(store.named(".index")) == 3
    return journal


def told(location: Location) -> tuple[dict[int, bytes], list[str]]:
    """Return all rows that can be read, and what was said."""
    archive_at.cache_clear()
    words: list[str] = []
    rows: dict[int, bytes] = {}
    try:
        reader = JournalReader(location)
        identity_of(location)
        damage: list[Damaged] = []
        for batch in reader.record_batches(
            reader.bounds().earliest, columns=["offset", "body"], on_damage=damage.append
        ):
            rows |= dict(
                zip(batch.column("offset").to_pylist(), batch.column("body").to_pylist(), strict=True)
            )
        words += map(str, damage)
    except JournalError as error:
        words.append(str(error))
    return rows, words


@pytest.mark.slow
def test_objects_that_are_missing_cut_or_swapped_are_told(store: ObjectStore, archived: Path) -> None:
    whole = dict(store.objects)
    wrong = []
    for location in (archived, store.address()):
        rows, words = told(location)
        assert not words
        assert list(rows.values()) == numbered(0, len(rows))
        for name, changes in damages(whole):
            store.objects.update(changes)
            for key in [key for key, content in store.objects.items() if content == MISSING]:
                del store.objects[key]
            left, words = told(location)
            # An archive in which nothing is and that is read alone is no journal, which whoever opens it says.
            if left != rows and not words and store.objects:
                wrong.append(f"{name}: {len(rows) - len(left)} rows are missing, read from {location}")
            if not left.items() <= rows.items():
                wrong.append(f"{name}: rows are wrong, read from {location}")
            store.objects.clear()
            store.objects.update(whole)
    assert not wrong, "\n".join(wrong)


def damages(whole: dict[str, bytes]) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Yield what may happen to objects: a name for it, and their contents afterwards."""
    segments = sorted(key for key in whole if key.endswith((".arrows", ".index")))
    for key, content in whole.items():
        yield f"{key} is missing", {key: MISSING}
        yield f"{key} is cut", {key: content[: len(content) // 2]}
        yield f"{key} is empty", {key: b""}
    for one, other in combinations(segments, 2):
        yield f"{one} and {other} are swapped", {one: whole[other], other: whole[one]}
    for number in range(0, len(segments), 2):
        pair = segments[number : number + 2]
        yield f"{pair} are missing", dict.fromkeys(pair, MISSING)
    yield "all segments are missing", dict.fromkeys(segments, MISSING)
    yield "everything is missing", dict.fromkeys(whole, MISSING)


@pytest.mark.parametrize("content", [None, b"", b"{}"], ids=["missing", "empty", "another"])
def test_the_file_that_names_the_archive_is_told_and_made_again(
    store: ObjectStore, archived: Path, content: bytes | None
) -> None:
    file = archived / "archive.json"
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(JournalError, match=r"archive\.json"):
        bodies(archived)
    archive_sealed(archived, store.address())
    assert bodies(archived) == numbered(0, 3 * COUNT)


def test_a_damaged_segment_stays_where_it_can_be_repaired(store: ObjectStore, journal: Path) -> None:
    first = segment_names(journal)[0]
    data = first.data_path(journal).read_bytes()
    first.data_path(journal).write_bytes(data[:-10])
    moved = archive_sealed(journal, store.address())
    assert moved.segments
    assert any(str(first) in text for text in moved.damaged)
    assert first in segment_names(journal)
    first.data_path(journal).write_bytes(data)
    assert archive_sealed(journal, store.address()).damaged == ()
    assert bodies(journal) == numbered(0, COUNT)


def test_commands_read_a_directory_with_its_archive_and_an_archive_alone(
    store: ObjectStore, archived: Path
) -> None:
    end = segment_names(archived)[0].base
    for location, stop in ((str(archived), 3 * COUNT), (store.address(), end)):
        listed = json.loads(CliRunner().invoke(command, ["ls", location, "--json"]).output)
        assert (listed["earliest"], listed["end"]) == (0, stop)
        assert [segment["in"] for segment in listed["segments"]][:3] == ["archive"] * 3
        shown = CliRunner().invoke(command, ["cat", location, "--format", "raw"])
        assert shown.stdout_bytes == b"".join(body + b"\n" for body in numbered(0, stop))
        verified = CliRunner().invoke(command, ["verify", location], standalone_mode=False)
        assert verified.return_value == 0, verified.output
    for key in store.named(".index")[:1]:
        del store.objects[key]
    for location in (str(archived), store.address()):
        archive_at.cache_clear()
        verified = CliRunner().invoke(command, ["verify", location], standalone_mode=False)
        assert verified.return_value == 1
        assert "the file is missing" in verified.output
    assert CliRunner().invoke(command, ["repair", store.address()]).exit_code == 2
    assert CliRunner().invoke(command, ["cat", store.address("nothing")]).exit_code == 2


# ------------------------------------------------------------------ retention


def test_retention_deletes_in_the_archive(store: ObjectStore, archived: Path) -> None:
    segments = JournalReader(archived).summaries()
    keep = KeepOptions(bytes=sum(segment.bytes for segment in segments) - 1)
    found = expired(archived, keep, 0)
    assert found == segments[:1]
    delete(archived, found)
    assert len(store.named(".index")) == len(store.named(".arrows")) == 2
    for location in (archived, store.address()):
        archive_at.cache_clear()
        assert JournalReader(location).bounds().earliest == found[0].end
        with pytest.raises(OutOfRange):
            bodies(location, 0)
    assert bodies(archived) == numbered(found[0].end, 3 * COUNT)


def test_a_deletion_that_is_cut_short_is_none_for_readers_and_is_finished(
    store: ObjectStore, archived: Path
) -> None:
    first = JournalReader(archived).summaries()[0]
    store.refuses = lambda method, key: method == "DELETE"
    with pytest.raises(ArchiveUnavailable):
        delete(archived, [first])
    store.refuses = lambda method, key: False
    for location in (archived, store.address()):
        archive_at.cache_clear()
        assert JournalReader(location).bounds().earliest == first.end
        assert told(location)[1] == []
    archive_sealed(archived, store.address())
    assert len(store.named(".index")) == len(store.named(".arrows")) == 2
    assert bodies(archived) == numbered(first.end, 3 * COUNT)


def test_an_archive_belongs_to_one_journal(store: ObjectStore, journal: Path, tmp_path: Path) -> None:
    archive_sealed(journal, store.address())
    write(tmp_path / "other", COUNT)
    with pytest.raises(JournalError, match="another journal"):
        archive_sealed(tmp_path / "other", store.address())
    with pytest.raises(JournalError, match="the option archive is"):
        archive_sealed(journal, store.address("elsewhere"))
    assert bodies(journal) == numbered(0, COUNT)
    assert bodies(tmp_path / "other") == numbered(0, COUNT)


@pytest.mark.parametrize("address", ["far", "/far/away", "s3://", "s3://me:secret@bucket/folder"])
def test_an_address_that_cannot_be_one_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="archive"):
        JournalOptions(path="j", archive=address)


# ------------------------------------------------------------------ the engine


@pytest.mark.slow
def test_an_engine_moves_its_segments_and_goes_on_when_the_store_is_away(
    store: ObjectStore, kernel_factory: KernelFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committer, "HOUSEKEEPING", 0.01)
    store.refuses = lambda method, key: True
    events = Events()
    path = tmp_path / "j"
    options = {"path": str(path), "roll_bytes": 8000, "archive": store.address()}
    kernel = kernel_factory(
        EnginePlan(name="app", kind="native"),
        EnginePlan(name="journal", kind="journal", options=options),
        RoutePlan(source="app", targets=("journal",), confirm=True),
        on_event=events,
    )
    count = 0

    def send_until(done: Callable[[], bool]) -> None:
        nonlocal count
        while not done():
            app.send(b"%d" % count)
            app.wait_confirmed(TIMEOUT)
            count += 1

    with kernel.open("app") as app:
        send_until(lambda: figures(kernel)["archive_failures"] > 1)
        assert "no segment is moved to the archive" in events.wait("warning").detail
        assert "ACCESS_DENIED" in figures(kernel)["archive_error"]
        send_until(lambda: count >= 20)
        assert not store.objects
        store.refuses = lambda method, key: False
        # The segments are counted before retention is applied, after which the error is over.
        send_until(lambda: figures(kernel)["segments_archived"] >= 3 and not figures(kernel)["archive_error"])
    kernel.close()
    assert kernel.join(TIMEOUT)
    assert not events.count("failed")
    assert bodies(path) == numbered(0, count)
    alone = bodies(store.address())
    assert alone == numbered(0, len(alone))
    assert len(alone) > 20
    # With its connections.
    archive_at.cache_clear()
