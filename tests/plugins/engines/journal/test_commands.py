"""``kernel journal``, as it is typed."""

from __future__ import annotations

import csv
import io
import json
import re
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from kernel import EnginePlan, Envelope, RoutePlan
from kernel.cli.main import run
from kernel.contracts.message import batch_of
from kernel.testing.fixtures import KernelFactory
from plugins.engines.journal import export, moving
from plugins.engines.journal.commands import packing
from plugins.engines.journal.commands.group import COMMANDS
from plugins.engines.journal.positions import positions, write_position
from plugins.engines.journal.writer import JournalWriter, WriterSettings
from plugins.protocols.journal_format.envelopes import Source
from plugins.protocols.journal_format.index import SIZE
from plugins.protocols.journal_format.names import SegmentName
from plugins.protocols.journal_format.reader import JournalReader
from plugins.protocols.journal_format.segment import Segment
from tests.plugins.engines.journal.conftest import Clock, append, bodies_in, numbered
from tests.ports import free_port

FIRST = SegmentName(0, 0)


@pytest.fixture
def journal(tmp_path: Path, small: WriterSettings) -> Path:
    """20 messages of two keys, and one that is no text."""
    path = tmp_path / "j"
    with JournalWriter(path, small) as writer:
        for number, body in enumerate([*numbered(0, 20), b"\xff\x00"]):
            envelope = Envelope(
                key=f"weather.{number % 2}", exchange="feed", properties={"headers": {"n": number}}
            )
            writer.append([(batch_of([body], envelope), writer.stamp(), Source("broker", "r"))])
    return path


@pytest.fixture
def typed(capfdbinary: pytest.CaptureFixture[bytes]) -> Any:
    """Run ``kernel journal ...``; return the exit status, what it printed, and what it complained of."""

    def call(*words: object) -> tuple[int, bytes, str]:
        status = run(["journal", *map(str, words)])
        sys.stdout.flush()
        out, err = capfdbinary.readouterr()
        return status, out, err.decode()

    return call


def spoil(journal: Path) -> None:
    path = FIRST.data_path(journal)
    at = Segment(journal, FIRST).entries()[1].position + 50
    good = path.read_bytes()
    path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])


@pytest.mark.slow
def test_help_names_every_command(typed: Any) -> None:
    _, out, _ = typed("--help")
    assert all(f"\n  {name} " in out.decode() for name in COMMANDS)
    for name in COMMANDS:
        status, out, _ = typed(name, "--help")
        assert (status, b"Usage: kernel journal" in out) == (0, True)


def test_ls(typed: Any, journal: Path) -> None:
    write_position(journal, "spark", 15)
    _, out, _ = typed("ls", journal, "--json")
    answer = json.loads(out)
    assert (answer["earliest"], answer["end"]) == (0, 21)
    assert sum(segment["rows"] for segment in answer["segments"]) == 21
    assert answer["consumers"] == [{"consumer": "spark", "next_offset": 15, "lag": 6}]
    _, out, _ = typed("ls", journal)
    assert b"00000000000000000000-0000" in out
    assert b"spark" in out


def test_head_and_tail(typed: Any, journal: Path) -> None:
    _, out, _ = typed("head", journal, "-n", 3, "--format", "raw")
    assert out == b"0\n1\n2\n"
    _, out, _ = typed("tail", journal, "-n", 3, "--format", "raw")
    assert out == b"18\n19\n\xff\x00\n"
    _, out, _ = typed("tail", journal, "-n", 7, "--format", "raw", "--key", "weather.1")
    assert out == b"".join(b"%d\n" % number for number in range(7, 20, 2))
    _, out, _ = typed("tail", journal, "-n", 1)
    offset, _, key, size, _ = out.decode().split(" ", 4)
    assert (offset, key, size) == ("20", "weather.0", "2")


def test_cat_in_every_form(typed: Any, journal: Path) -> None:
    _, out, _ = typed("cat", journal, "--from", 19, "--format", "json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["offset"] for row in rows] == [19, 20]
    assert (rows[0]["body"], rows[0]["headers"], rows[0]["exchange"]) == ("19", {"n": 19}, "feed")
    assert rows[1]["body_base64"] == "/wA="
    _, out, _ = typed("cat", journal, "--to", 2, "--format", "csv")
    table = list(csv.DictReader(io.StringIO(out.decode())))
    assert [(row["offset"], row["key"], row["body"]) for row in table] == [
        ("0", "weather.0", "0"),
        ("1", "weather.1", "1"),
    ]
    _, out, _ = typed("cat", journal, "--exchange", "other")
    assert out == b""


def test_times_bound_what_is_shown_to_the_row(typed: Any, tmp_path: Path, clock: Clock) -> None:
    """Also within a commit: compaction makes one of days."""
    with JournalWriter(tmp_path, clock=clock) as writer:
        for first in (0, 5):
            batches = []
            for body in numbered(first, first + 5):
                batches.append((batch_of([body]), writer.stamp(), Source()))
                clock.now += 1
            writer.append(batches)

    def shown(start: int, end: int) -> list[bytes]:
        times = (datetime.fromtimestamp(1000 + second, UTC).isoformat() for second in (start, end))
        bounds = zip(("--from", "--to"), times, strict=True)
        _, out, _ = typed("cat", tmp_path, "--format", "raw", *(word for bound in bounds for word in bound))
        return list(out.split())

    assert shown(1, 3) == numbered(1, 3)
    assert shown(3, 7) == numbered(3, 7)
    spoil(tmp_path)
    assert shown(7, 10) == [], "nobody knows which of them are later"
    assert shown(2, 8) == numbered(2, 5)


def test_what_is_typed_wrong_is_said(typed: Any, journal: Path, tmp_path: Path) -> None:
    assert "is not a journal" in typed("ls", tmp_path)[2]
    status, _, err = typed("cat", journal, "--from", "soon")
    assert status == 2
    assert "'soon' is neither an offset nor a time" in err


def test_rows_that_are_gone_are_said(typed: Any, journal: Path) -> None:
    FIRST.index_path(journal).unlink()
    status, _, err = typed("cat", journal, "--from", 0)
    assert status == 1
    assert "are no longer there; the journal begins at offset" in err


def test_stat_counts(typed: Any, journal: Path) -> None:
    _, out, _ = typed("stat", journal, "--json")
    assert [json.loads(line) for line in out.splitlines()] == [
        {"key": "weather.0", "messages": 11, "bytes": 17},
        {"key": "weather.1", "messages": 10, "bytes": 15},
    ]
    _, out, err = typed("stat", journal, "--by", "engine", "--from", 20)
    assert out.split()[-3:] == [b"broker", b"1", b"2"]
    assert "1 message, 1 of engine" in err
    assert typed("stat", journal, "--from", 21)[0] == 0


def test_verify_names_damage(typed: Any, journal: Path) -> None:
    assert typed("verify", journal)[0] == 0
    spoil(journal)
    status, out, err = typed("verify", journal)
    assert status == 1
    assert f"{FIRST.data_path(journal)}: offset 1: the CRC does not agree" in err
    assert b"20 rows in" in out


def test_verify_and_cat_name_a_data_file_that_is_missing(typed: Any, journal: Path) -> None:
    FIRST.data_path(journal).unlink()
    for command in ("verify", "cat", "stat"):
        _, _, err = typed(command, journal)
        assert f"{FIRST.data_path(journal)}: offset" in err
        assert "the file is missing" in err
    assert typed("verify", journal)[0] == 1


def test_verify_counts_entries_that_were_cut_out_of_an_index_and_repair_writes_them_again(
    typed: Any, journal: Path
) -> None:
    index = FIRST.index_path(journal)
    good = index.read_bytes()
    assert len(good) >= 4 * SIZE
    index.write_bytes(good[:SIZE] + good[2 * SIZE :])
    status, out, _ = typed("verify", journal)
    assert status == 1
    assert b"0000.index: 1 entry or header is damaged or missing" in out
    assert typed("repair", journal)[0] == 0
    assert index.read_bytes() == good


def test_what_goes_while_it_is_verified_is_no_damage(
    typed: Any, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segments = JournalReader(journal).segments()
    monkeypatch.setattr(JournalReader, "segments", lambda _: segments)
    assert typed("compact", journal)[0] == 0
    status, out, err = typed("verify", journal)
    assert (status, err) == (0, "")
    assert out.startswith(b"00000000000000000000-0000 was deleted or compacted while it was read\n")


def test_repair_makes_indexes_good(typed: Any, journal: Path) -> None:
    index = FIRST.index_path(journal)
    good = index.read_bytes()
    index.write_bytes(good[:SIZE] + b"?" + good[SIZE + 1 : -SIZE])
    SegmentName(JournalReader(journal).segments()[-1].name.base, 0).index_path(journal).unlink()
    assert typed("verify", journal)[0] == 1
    status, out, _ = typed("repair", journal)
    assert status == 0
    assert b"1 row and 1 index entry were repaired" in out
    assert index.read_bytes() == good
    assert bodies_in(journal) == [*numbered(0, 20), b"\xff\x00"]
    assert typed("verify", journal)[0] == 0


def test_repair_wants_the_journal_for_itself(typed: Any, journal: Path) -> None:
    with JournalWriter(journal):
        status, _, err = typed("repair", journal)
    assert status == 1
    assert "is writing this journal" in err


def test_compact(typed: Any, journal: Path) -> None:
    status, out, _ = typed("compact", journal)
    assert status == 0
    assert b"are now 1 batch," in out
    assert typed("compact", journal)[1] == b"there is nothing to compact\n"
    assert bodies_in(journal)[:20] == numbered(0, 20)


def test_compact_to_parquet_takes_what_is_sealed_out(typed: Any, journal: Path, tmp_path: Path) -> None:
    status, _, _ = typed("compact", journal, "--parquet", tmp_path / "pq")
    assert status == 0
    earliest = JournalReader(journal).bounds().earliest
    assert earliest > 0
    moved = sorted(ds.dataset(tmp_path / "pq").to_table().column("offset").to_pylist())
    assert moved == list(range(earliest))


class Killed(BaseException):
    """What a test kills a command with."""


def _kill_at(owner: Any, name: str, call: int, patch: pytest.MonkeyPatch) -> None:
    """Have a call of this function, counted from 0, and all that come after it, not happen."""
    real, calls = getattr(owner, name), iter(range(100))

    def dying(*arguments: Any, **options: Any) -> Any:
        if next(calls) >= call:
            raise Killed
        return real(*arguments, **options)

    patch.setattr(owner, name, dying)


@pytest.mark.slow
@pytest.mark.parametrize("again", [True, False], ids=["moved again", "compacted"])
@pytest.mark.parametrize(
    "owner,name,call",
    [
        (packing, "record_move", 0),
        (packing, "finish_move", 1),
        (Path, "replace", 1),
        (Path, "replace", 2),
        (Path, "unlink", 1),
        (Path, "unlink", 2),
        (moving.shutil, "rmtree", 1),
    ],
)
def test_a_move_to_parquet_that_was_killed_leaves_each_row_in_one_place(
    typed: Any,
    journal: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    owner: Any,
    name: str,
    call: int,
    again: bool,
) -> None:
    words = ["compact", journal, "--parquet", tmp_path / "pq", "--by", "key"]
    with monkeypatch.context() as patch:
        _kill_at(owner, name, call, patch)
        patch.setattr(packing, "abandon_move", lambda *_: None)  # who is killed tidies nothing
        with pytest.raises(Killed):
            typed(*words)
    with JournalWriter(journal) as writer:
        writer.roll()
        append(writer, b"last")
    assert typed(*(words if again else words[:2]))[0] == 0
    reader = JournalReader(journal)
    left = [
        row
        for record_batch in reader.record_batches(reader.bounds().earliest)
        for row in record_batch["offset"].to_pylist()
    ]
    assert sorted(_offsets(tmp_path / "pq") + left) == list(range(22))
    assert not again or left == [21]


def test_a_move_to_parquet_deletes_rows_only_when_the_names_of_the_files_are_durable(
    typed: Any, journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a loss of power could undo the renames and keep the deletions."""
    directory = tmp_path / "pq"
    calls: list[str] = []
    sync, delete, unlink = moving.sync_directory, moving.delete, Path.unlink

    def synced(path: Path) -> None:
        calls.append(f"sync {path.relative_to(tmp_path)}")
        sync(path)

    def deleted(*arguments: Any) -> None:
        calls.append("delete")
        delete(*arguments)

    def unlinked(path: Path, missing_ok: bool = False) -> None:
        if path.name == "moved.json":
            calls.append("forget")
        unlink(path, missing_ok)

    monkeypatch.setattr(moving, "sync_directory", synced)
    monkeypatch.setattr(moving, "delete", deleted)
    monkeypatch.setattr(Path, "unlink", unlinked)
    assert typed("compact", journal, "--parquet", directory, "--by", "key")[0] == 0
    at = calls.index("delete")
    assert "sync pq" in calls[:at]
    keys = {f"sync {path.relative_to(tmp_path)}" for path in directory.iterdir()}
    assert keys
    assert keys <= set(calls[:at])
    assert calls[at + 1 :] == [f"sync {journal.relative_to(tmp_path)}", "forget"]


def _offsets(directory: Path) -> list[int]:
    """Return those that readers of Parquet find."""
    table = ds.dataset(directory, partitioning="hive").to_table()
    return list(table.column("offset").to_pylist()) if "offset" in table.schema.names else []


def test_nothing_is_taken_out_that_could_not_be_written(typed: Any, journal: Path, tmp_path: Path) -> None:
    spoil(journal)
    assert typed("compact", journal, "--parquet", tmp_path / "pq")[0] == 1
    assert JournalReader(journal).bounds().earliest == 0


def test_large_messages_are_not_all_put_together_before_they_are_exported(
    typed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gathered: list[int] = []

    def noted(derived: Any, table: Any) -> Any:
        gathered.append(table.num_rows)
        return table

    monkeypatch.setattr(export, "_BATCH_BYTES", 10_000)
    monkeypatch.setattr(export, "_with", noted)
    with JournalWriter(tmp_path / "large") as writer:
        for number in range(25):
            append(writer, b"%01000d" % number)
    assert typed("export", tmp_path / "large", tmp_path / "pq")[0] == 0
    assert gathered == [10, 10, 5]
    assert ds.dataset(tmp_path / "pq").count_rows() == 25


def test_export_is_read_by_others(typed: Any, journal: Path, tmp_path: Path) -> None:
    for _ in range(2):  # again: the same files
        status, out, _ = typed("export", journal, tmp_path / "pq", "--by", "date", "--by", "key")
        assert (status, out.startswith(b"21 rows")) == (0, True)
    table = ds.dataset(tmp_path / "pq", partitioning="hive").to_table().sort_by("offset")
    assert table.column("offset").to_pylist() == list(range(21))
    assert table.column("body").to_pylist()[:20] == numbered(0, 20)
    assert set(table.column("key").to_pylist()) == {"weather.0", "weather.1"}
    typed("export", journal, tmp_path / "some", "--key", "weather.1", "--from", 10)
    assert sorted(ds.dataset(tmp_path / "some").to_table().column("offset").to_pylist()) == [
        11,
        13,
        15,
        17,
        19,
    ]


@pytest.mark.slow
def test_replay_to_another_kernel(journal: Path, kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(
        EnginePlan(
            name="net", kind="stream", options={"address": "backend+tcp://127.0.0.1:0", "mode": "listen"}
        ),
        EnginePlan(name="log", kind="journal", options={"path": str(journal.with_name("copy"))}),
        RoutePlan(source="net", targets=("log",), confirm=True),
    )
    address = f"backend+tcp://{kernel.address_of('net')}"
    command = [sys.executable, "-m", "kernel", "journal", "replay", str(journal), address, "--speed", "0"]
    done = subprocess.run([*command, "--consumer", "copy"], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("everything up to offset 21 was confirmed\n", "")
    assert positions(journal) == {"copy": 21}
    (first, *_) = JournalReader(journal.with_name("copy")).record_batches(columns=["key", "headers", "body"])
    assert first.to_pylist()[0] == {"key": "weather.0", "headers": '{"n":0}', "body": b"0"}


@pytest.mark.usefixtures("short_login_delay")
@pytest.mark.parametrize(
    "user, vhost, into, error",
    [
        ("guest:wrong", "", "feed", "ACCESS_REFUSED.* check user, password and vhost of 'guest'"),
        ("guest:guest", "nowhere", "feed", "530 NOT_ALLOWED - vhost nowhere not found"),
        ("guest:guest", "", "nosuch", "404 NOT_FOUND - no exchange 'nosuch' in vhost '/'"),
        # Their own exchange.
        ("guest:guest", "", None, "404 NOT_FOUND - no exchange 'feed' in vhost '/'"),
    ],
)
def test_a_broker_that_refuses_a_replay_ends_it(
    kernel_factory: KernelFactory,
    journal: Path,
    capsys: pytest.CaptureFixture[str],
    user: str,
    vhost: str,
    into: str | None,
    error: str,
) -> None:
    kernel = kernel_factory(EnginePlan(name="broker", kind="amqp", options={"address": "127.0.0.1:0"}))
    place = kernel.address_of("broker")
    options = [] if into is None else ["--into", into]
    address = f"amqp://{user}@{place}/{vhost}"
    assert run(["journal", "replay", str(journal), address, "--speed", "0", *options]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(rf"kernel: amqp\+tcp://{place}: .*{error}.*; nothing is confirmed\n", err)


@pytest.mark.slow
def test_a_replay_says_that_it_waits_for_its_target(journal: Path, kernel_factory: KernelFactory) -> None:
    address = f"backend+tcp://127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "kernel", "journal", "replay", str(journal), address, "--speed", "0"]
    program = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert program.stderr is not None
    try:
        line = program.stderr.readline()
        assert re.search(
            rf" retrying +target cannot connect to {re.escape(address)}: .* \(next try in 0\.1 s\)", line
        )
        kernel_factory(
            EnginePlan(name="net", kind="stream", options={"address": address, "mode": "listen"}),
            EnginePlan(name="log", kind="journal", options={"path": str(journal.with_name("copy"))}),
            RoutePlan(source="net", targets=("log",), confirm=True),
        )
        out, err = program.communicate(timeout=60)
    finally:
        program.kill()
        program.communicate()
    assert (program.returncode, out) == (0, "everything up to offset 21 was confirmed\n")
    assert re.search(rf" connected +target {re.escape(address)}\n$", err)


@pytest.mark.slow
def test_tail_follows_until_ctrl_c(journal: Path) -> None:
    program = subprocess.Popen(
        [sys.executable, "-m", "kernel", "journal", "tail", str(journal), "-n", "1", "-f", "--format", "raw"],
        stdout=subprocess.PIPE,
    )
    assert program.stdout is not None
    try:
        assert program.stdout.readline() == b"\xff\x00\n"
        with JournalWriter(journal) as writer:
            for body in numbered(0, 3):
                append(writer, body)
                assert program.stdout.readline() == body + b"\n"
        program.send_signal(signal.SIGINT)
        assert program.wait(60) == 130
    finally:
        program.kill()
        program.communicate()
