"""The sinks as plain objects: rows become messages, and each epoch is in the journal exactly once, whatever is killed when."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import (
    ArrayType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kernel import EnginePlan, Kernel, Plan, RoutePlan
from kernel.contracts.message import Batch, Envelope, batch_of
from kernel.hosting.registered import KNOWN
from plugins.apis.spark import bus_writer
from plugins.apis.spark.bus_writer import TOKEN, batches_of, send_epoch
from plugins.apis.spark.errors import NotTaken, RowError, SparkOptionError
from plugins.apis.spark.messages import check_columns, prepare
from plugins.apis.spark.options import WriteOptions
from plugins.apis.spark.producers import last_epoch
from plugins.apis.spark.publishing import publish
from plugins.apis.spark.source import KernelDataSource
from plugins.apis.spark.staging import stage
from plugins.apis.spark.writers import BatchWriter, Staged, StreamWriter, folder_of
from plugins.engines.journal.lock import JournalBusy
from plugins.engines.journal.positions import write_position
from plugins.engines.journal.writer import JournalWriter
from plugins.protocols.journal_format.envelopes import Source, row_of
from plugins.protocols.journal_format.index import SIZE
from plugins.protocols.journal_format.names import DATA, INDEX
from plugins.protocols.journal_format.reader import JournalReader
from plugins.protocols.journal_format.schema import ENVELOPE_FIELDS, STORED_BYTES, TIMESTAMP
from tests.notes import for_each


def _batch(**columns: Sequence[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(dict(columns))


def _rows(journal: Path, *columns: str) -> list[tuple[Any, ...]]:
    return [
        tuple(row.values())
        for chunk in JournalReader(journal).record_batches(columns=list(columns))
        for row in chunk.to_pylist()
    ]


def _bodies(journal: Path) -> list[bytes]:
    return [body for (body,) in _rows(journal, "body")]


# ------------------------------------------------------------------ rows become messages


def test_rows_with_the_same_envelope_share_it() -> None:
    keys = ["a", "b", "a", None, "a"]
    exchanges = ["x", "x", "y", "x", "x"]
    prepared = prepare(_batch(key=keys, exchange=exchanges, body=[b"1", b"2", b"3", b"4", b"5"]), "here", 0)
    column = prepared.column("envelope")
    assert len(column.dictionary) == 4
    told = [(row["key"], row["exchange"]) for row in column.to_pylist()]
    assert told == [("a", "x"), ("b", "x"), ("a", "y"), ("", "x"), ("a", "x")]


def test_what_is_not_said_has_its_default() -> None:
    (row,) = prepare(_batch(body=["text"]), "here", 0).column("envelope").to_pylist()
    assert row == {
        "engine": "spark",
        "route": "",
        "exchange": "",
        "key": "",
        "reply_to": None,
        "priority": 0,
        "persistent": False,
        "expiration": None,
        "sent": None,
        "content_type": None,
        "headers": None,
        "properties": None,
    }


@pytest.mark.parametrize(
    "columns,complaint",
    [
        ({"body": [b"1", None]}, "epoch 7, row 101: body is null"),
        (
            {"body": [b"1", b"2"], "headers": ["{}", "[]"]},
            "row 101: headers is '\\[\\]', which is not a JSON object",
        ),
        ({"body": [b"1", b"2"], "properties": ["{", None]}, "row 100: properties is '{'"),
        (
            {"body": [b"1", b"2"], "properties": ["{}", '{"timestamp":{"$time":"noon"}}']},
            "row 101: properties is .* or has a wrong value behind a name with",
        ),
        ({"body": [b"1", b"2"], "priority": [1, 1 << 20]}, "rows 100 to 101: priority"),
    ],
)
def test_a_row_that_cannot_be_a_message_is_named(columns: dict[str, Any], complaint: str) -> None:
    with pytest.raises(RowError, match=complaint):
        prepare(_batch(**columns), "epoch 7", 100)


@for_each(
    "schema,complaint",
    [
        ([("body", StringType()), ("offset", LongType())], "a message has no column offset"),
        ([("key", StringType())], "a message needs a body"),
        (
            [("body", StringType()), ("headers", MapType(StringType(), StringType()))],
            "column headers .*to_json",
        ),
        (
            [("body", LongType())],
            "column body has the type bigint; it must be string or binary: use cast, or to_json",
        ),
        ([("body", StructType([StructField("a", LongType())]))], "column body has the type struct<a:bigint>"),
        (
            [("body", StringType()), ("key", ArrayType(StringType()))],
            "column key has the type array<string>; it must be string: use cast",
        ),
        ([("body", StringType()), ("persistent", ArrayType(LongType()))], "persistent .*must be boolean"),
        ([("body", StringType()), ("sent", TimestampType())], "no column sent.*header timestamp_in_ms"),
    ],
)
def test_columns_that_messages_have_not_are_refused_before_anything_is_run(
    schema: list[tuple[str, Any]], complaint: str
) -> None:
    with pytest.raises(SparkOptionError, match=complaint):
        check_columns(StructType([StructField(*field) for field in schema]))


def test_types_that_can_be_converted_are_taken() -> None:
    types = {"body": StringType(), "key": LongType(), "priority": LongType(), "expiration": StringType()}
    check_columns(StructType([StructField(name, kind) for name, kind in types.items()]))


def test_a_token_that_nobody_would_remember_is_refused(tmp_path: Path) -> None:
    schema = StructType([StructField("body", StringType())])
    options = {"address": "backend+tcp://127.0.0.1:1", "token": "load 1"}
    with pytest.raises(SparkOptionError, match="its token in the directory of the option staging"):
        KernelDataSource(options).writer(schema, False)
    for remembers in ({"staging": str(tmp_path)}, {"deduplicate": "true"}):
        KernelDataSource({**options, **remembers}).writer(schema, False)
    for wrong, words in (
        ({"address": options["address"], "deduplicate": "true"}, "knows a batch write by its token"),
        ({"path": str(tmp_path), "deduplicate": "true"}, "give it with address"),
        ({**options, "deduplicate": "true", "token": "n" * 256}, "more than 255 octets"),
    ):
        with pytest.raises(SparkOptionError, match=words):
            KernelDataSource(wrong).writer(schema, False)


@pytest.mark.parametrize(
    "properties",
    [
        {"headers": {"timestamp_in_ms": 1_700_000_000_123, "n": 1}},
        {"timestamp": datetime(2026, 11, 23, tzinfo=UTC), "app_id": "a"},
        {"timestamp": datetime(2026, 11, 23, tzinfo=UTC), "headers": {"n": 1}},
        {"app_id": "a"},
    ],
)
def test_the_time_at_which_a_message_was_sent_is_the_same_when_it_is_written_back(
    properties: dict[str, Any],
) -> None:
    row = dict(
        zip([field.name for field in ENVELOPE_FIELDS], row_of(Envelope(properties=properties)), strict=True)
    )
    given = {name: [row[name]] for name in ("headers", "properties") if row[name] is not None}
    (back,) = prepare(_batch(body=[b"1"], **given), "here", 0).column("envelope").to_pylist()
    expected = pa.scalar(row["sent"], TIMESTAMP).as_py()
    assert (back["sent"], back["headers"], back["properties"]) == (
        expected,
        row["headers"],
        row["properties"],
    )


def test_nothing_is_ever_overwritten(tmp_path: Path) -> None:
    source = KernelDataSource({"path": str(tmp_path)})
    schema = StructType([StructField("body", StringType())])
    for make in (source.writer, source.streamWriter):
        with pytest.raises(SparkOptionError, match="only appends messages"):
            make(schema, True)


@pytest.mark.parametrize("options", [{}, {"path": "/j", "address": "backend+tcp://127.0.0.1:1"}])
def test_a_sink_has_one_target(options: dict[str, str]) -> None:
    with pytest.raises(SparkOptionError, match="one of the options path .* and address"):
        WriteOptions.parse(options)


def test_every_message_to_a_kernel_has_a_token_of_its_own() -> None:
    headers = ['{"n":1}', '{"n":1}', None]
    prepared = prepare(_batch(body=[b"1", b"2", b"3"], key=["a", "a", "b"], headers=headers), "here", 0)
    batches = list(batches_of(prepared, "query/3/0", 10))
    assert [(batch.bodies, batch.envelope.key) for batch in batches] == [
        ([b"1"], "a"),
        ([b"2"], "a"),
        ([b"3"], "b"),
    ]
    assert [batch.envelope.properties["headers"] for batch in batches] == [
        {"n": 1, TOKEN: "query/3/0/10"},
        {"n": 1, TOKEN: "query/3/0/11"},
        {TOKEN: "query/3/0/12"},
    ]


# ------------------------------------------------------------------ exactly once


@pytest.fixture
def usual_umask() -> Iterator[None]:
    """Files may be read by everybody unless whoever creates them says otherwise."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def _stage(journal: Path, epoch: int, *parts: Sequence[Sequence[bytes]]) -> list[str]:
    """Stage one file a part, each with batches of bodies."""
    journal.mkdir(exist_ok=True)
    names = [
        stage(
            journal, "query", epoch, number, [_batch(body=bodies, key=["k"] * len(bodies)) for bodies in part]
        )
        for number, part in enumerate(parts)
    ]
    return [name for name in names if name is not None]


def _left(journal: Path) -> list[str]:
    return [path.name for path in (journal / "staged").rglob("*.arrows")]


def test_an_epoch_is_published_in_the_order_of_its_parts(tmp_path: Path) -> None:
    files = _stage(tmp_path, 0, [[b"1", b"2"], [b"3"]], [], [[b"4"]])
    assert len(files) == 2
    assert publish(tmp_path, "query", 0, files)
    assert _bodies(tmp_path) == [b"1", b"2", b"3", b"4"]
    assert _rows(tmp_path, "offset", "engine", "key") == [(n, "spark", "k") for n in range(4)]
    assert _left(tmp_path) == []


def test_an_epoch_that_is_there_is_not_published_again(tmp_path: Path) -> None:
    for epoch in (0, 1):
        publish(tmp_path, "query", epoch, _stage(tmp_path, epoch, [[b"%d" % epoch]]))
    for epoch in (1, 0):
        assert not publish(tmp_path, "query", epoch, _stage(tmp_path, epoch, [[b"%d" % epoch]]))
    assert _bodies(tmp_path) == [b"0", b"1"]
    assert _left(tmp_path) == []


def test_rows_and_what_is_noted_of_them_are_not_for_everybody_on_the_computer(
    tmp_path: Path, usual_umask: None
) -> None:
    journal = tmp_path / "journal"
    publish(journal, "query", 0, _stage(journal, 0, [[b"1"]]))
    _stage(journal, 1, [[b"2"]])
    write_position(journal, "consumer", 1)
    files = {path.relative_to(journal).as_posix(): path for path in journal.rglob("*") if path.is_file()}
    assert {name.partition("/")[0] for name in files} >= {"staged", "producers", "consumers"}
    assert [name for name, path in files.items() if path.stat().st_mode & 0o007] == []


def test_an_epoch_without_rows_leaves_no_trace(tmp_path: Path) -> None:
    assert publish(tmp_path, "query", 0, _stage(tmp_path, 0, []))
    assert last_epoch(tmp_path, "query") is None
    assert _bodies(tmp_path) == []


@pytest.mark.parametrize("token", ["", "mine"])
@pytest.mark.parametrize("ends", ["commit", "abort", "failed commit"])
def test_a_batch_write_is_remembered_only_by_its_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token: str, ends: str
) -> None:
    writer = BatchWriter(publish, WriteOptions(path=str(tmp_path), token=token))
    file = stage(tmp_path, writer.producer, 0, 0, [_batch(body=[b"row"])])
    told: list[WriterCommitMessage | None] = [Staged(writer.producer, file)]
    if ends == "commit":
        writer.commit(told)
    else:
        if ends == "failed commit":
            _kill_at(2, monkeypatch)
            with pytest.raises(Killed):
                writer.commit(told)
        writer.abort(told)
    left = [
        path.stem
        for name in ("producers", "staged")
        for path in tmp_path.glob(f"{name}/*")
        if path.suffix != KNOWN
    ]
    assert left == (["mine"] * (1 if ends == "abort" else 2) if token else [])


def test_what_a_failed_task_left_is_not_published_and_goes(tmp_path: Path) -> None:
    _stage(tmp_path, 0, [[b"of the first try"]])
    publish(tmp_path, "query", 0, _stage(tmp_path, 0, [[b"of the second try"]]))
    assert _bodies(tmp_path) == [b"of the second try"]
    assert _left(tmp_path) == []


def test_a_task_that_fails_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(RowError):
        stage(tmp_path, "query", 0, 0, [_batch(body=[b"good"]), _batch(body=pa.array([None], pa.binary()))])
    assert _left(tmp_path) == []


class Killed(BaseException):
    """What a test kills the driver with."""


PARTS = ([[b"1", b"2"], [b"3"]], [[b"4"], [b"5", b"6"]])
WANTED = [b"1", b"2", b"3", b"4", b"5", b"6"]


def _kill_at(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the ``step``-th of the steps of publishing (appends, notes) not happen, nor any after it."""
    steps = iter(range(100))

    def killing(name: str, owner: Any) -> None:
        real = getattr(owner, name)

        def dying(*arguments: Any) -> Any:
            if next(steps) >= step:
                raise Killed
            return real(*arguments)

        monkeypatch.setattr(owner, name, dying)

    killing("append_encoded", JournalWriter)
    killing("note", __import__("plugins.apis.spark.publishing", fromlist=["_note"]))


@pytest.mark.slow
@pytest.mark.parametrize("strangers", [0, 3], ids=["alone", "another writer comes in between"])
@pytest.mark.parametrize("again", [True, False], ids=["the epoch comes again", "the next one comes"])
@pytest.mark.parametrize("step", range(7))
def test_a_driver_that_is_killed_at_any_step_loses_nothing_and_doubles_nothing(
    step: int, again: bool, strangers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(tmp_path, "query", 0, _stage(tmp_path, 0, [[b"0"]]))
    files = _stage(tmp_path, 1, *PARTS)
    with monkeypatch.context() as patch:
        _kill_at(step, patch)
        if step < 6:
            with pytest.raises(Killed):
                publish(tmp_path, "query", 1, files)
        else:
            publish(tmp_path, "query", 1, files)
    if strangers:
        with JournalWriter(tmp_path) as writer:
            writer.append([(batch_of([b"stranger"] * strangers), writer.stamp(), Source())])
    noted = step > 0
    if again or not noted:  # Spark repeats a batch that it has no commit of
        publish(tmp_path, "query", 1, _stage(tmp_path, 1, *PARTS))
    publish(tmp_path, "query", 2, _stage(tmp_path, 2, [[b"7"]]))
    found = _bodies(tmp_path)
    assert [body for body in found if body != b"stranger"] == [b"0", *WANTED, b"7"]
    assert found.count(b"stranger") == strangers
    times = _rows(tmp_path, "ts")
    assert times == sorted(times)
    assert _left(tmp_path) == []


def test_an_epoch_that_was_begun_can_go_on_though_spark_aborts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Spark does with each that fails, in committing as well: on a full disk, for one."""
    writer = StreamWriter(tmp_path, publish)
    told: list[WriterCommitMessage | None] = [Staged("query", name) for name in _stage(tmp_path, 0, *PARTS)]
    with monkeypatch.context() as patch:
        _kill_at(2, patch)  # after the note, and one batch
        with pytest.raises(Killed):
            writer.commit(told, 0)
    late = _stage(tmp_path, 0, [[b"of a task that was not told of"]])
    writer.abort([*told, Staged("query", late[0])], 0)
    assert sorted(_left(tmp_path)) == sorted(each.file or "" for each in told if isinstance(each, Staged))
    publish(tmp_path, "query", 0, _stage(tmp_path, 0, *PARTS))
    assert _bodies(tmp_path) == WANTED
    assert _left(tmp_path) == []


def test_an_epoch_may_be_cut_short_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = _stage(tmp_path, 0, *PARTS)
    for _ in range(4):
        with monkeypatch.context() as patch:
            _kill_at(2, patch)  # the note, and one batch
            with pytest.raises(Killed):
                publish(tmp_path, "query", 0, files)
        with JournalWriter(tmp_path) as writer:
            writer.append([(batch_of([b"stranger"]), writer.stamp(), Source())])
    publish(tmp_path, "query", 0, files)
    parts = [chunk for part in PARTS for chunk in part]
    assert _bodies(tmp_path) == [body for part in parts for body in (*part, b"stranger")]
    times = _rows(tmp_path, "ts")
    assert times == sorted(times)


def test_rows_of_two_epochs_never_have_one_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its time, its place and its bodies an epoch finds out whether its rows are there: also when clocks stand still."""
    monkeypatch.setattr(JournalWriter, "_now", lambda _: 1000)
    for epoch in range(3):
        publish(tmp_path, "query", epoch, _stage(tmp_path, epoch, [[b"the same"]]))
    assert len(set(_rows(tmp_path, "ts"))) == 3


def test_what_retention_has_taken_meanwhile_is_not_appended_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = _stage(tmp_path, 0, [[b"1"], [b"2"]])
    with monkeypatch.context() as patch:
        _kill_at(2, patch)  # after the first batch
        with pytest.raises(Killed):
            publish(tmp_path, "query", 0, files)
    with JournalWriter(tmp_path) as writer:
        writer.roll()
    for path in tmp_path.glob("00000000000000000000-0000.*"):
        path.unlink()
    publish(tmp_path, "query", 0, _stage(tmp_path, 0, [[b"1"], [b"2"]]))
    assert [row.as_py() for row in _column(tmp_path, 1, "body")] == [b"2"]


@pytest.mark.parametrize("strangers", [1, 2, 5])
def test_what_retention_has_taken_is_appended_if_it_cannot_have_been_the_epoch(
    strangers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    files = _stage(tmp_path, 0, [[b"1", b"2", b"3"], [b"4", b"5", b"6"]])
    with monkeypatch.context() as patch:
        _kill_at(1, patch)  # after the record, before the first batch
        with pytest.raises(Killed):
            publish(tmp_path, "query", 0, files)
    with JournalWriter(tmp_path) as writer:
        writer.append([(batch_of([b"stranger"] * strangers), writer.stamp(), Source())])
        writer.roll()
    for path in tmp_path.glob("00000000000000000000-0000.*"):
        path.unlink()
    publish(tmp_path, "query", 0, files)
    bodies = [row.as_py() for row in _column(tmp_path, strangers, "body")]
    if strangers < 3:  # a row is left that would be inside the first batch
        assert bodies == WANTED
        assert not caplog.records
    else:  # the first batch may have been there
        assert bodies == [b"4", b"5", b"6"]
        assert "retention has deleted the rows from offset 0 to 3" in caplog.text
        assert "3 rows of the epoch are lost" in caplog.text


class Power:
    """What of a journal is on the disk: what was synchronised, and the headers of its files."""

    def __init__(self, journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._journal = journal
        self._safe: dict[Path, int] = {}
        real = JournalWriter.sync

        def sync(writer: JournalWriter) -> bool:
            done = real(writer)
            self._safe |= {path: path.stat().st_size for path in self._files()}
            return done

        monkeypatch.setattr(JournalWriter, "sync", sync)

    def fails(self) -> None:
        for path in self._files():
            os.truncate(path, self._safe.get(path, SIZE if path.suffix == INDEX else len(STORED_BYTES)))

    def _files(self) -> list[Path]:
        return [path for path in self._journal.iterdir() if path.suffix in (DATA, INDEX)]


def _dies_at(
    step: int, journal: Path, epoch: int, files: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Publish up to a step, and synchronise nothing then, as one that is killed does not."""

    def leave(writer: JournalWriter) -> None:
        writer._segment.close()
        writer._lock.release()

    with monkeypatch.context() as patch:
        patch.setattr(JournalWriter, "close", leave)
        _kill_at(step, patch)
        with pytest.raises(Killed):
            publish(journal, "query", epoch, files)


def test_what_is_noted_as_appended_outlives_a_loss_of_power(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    power = Power(tmp_path, monkeypatch)
    files = _stage(tmp_path, 0, *PARTS)
    _dies_at(2, tmp_path, 0, files, monkeypatch)  # after the note, and one batch
    _dies_at(1, tmp_path, 0, files, monkeypatch)  # after the next note, which counts that batch
    power.fails()
    publish(tmp_path, "query", 0, files)
    assert _bodies(tmp_path) == WANTED


def test_an_epoch_goes_on_though_its_rows_were_lost_and_somebody_had_read_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their offsets are not used again: where they were there is nothing."""
    power = Power(tmp_path, monkeypatch)
    publish(tmp_path, "query", 0, _stage(tmp_path, 0, [[b"0"]]))
    files = _stage(tmp_path, 1, *PARTS)
    _dies_at(3, tmp_path, 1, files, monkeypatch)  # after the note, and two batches
    write_position(tmp_path, "reader", JournalReader(tmp_path).bounds().end)
    power.fails()
    with JournalWriter(tmp_path) as writer:
        writer.append([(batch_of([b"stranger"]), writer.stamp(), Source())])
    publish(tmp_path, "query", 1, files)
    assert [row.as_py() for row in _column(tmp_path, 4, "body")] == [b"stranger", *WANTED]


def _column(journal: Path, first: int, name: str) -> list[Any]:
    return [
        value
        for chunk in JournalReader(journal).record_batches(first, columns=[name])
        for value in chunk.column(name)
    ]


def test_a_journal_that_a_kernel_writes_is_not_written_behind_its_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plugins.apis.spark.publishing.TIMEOUT", 0.1)
    files = _stage(tmp_path, 0, [[b"1"]])
    with JournalWriter(tmp_path), pytest.raises(JournalBusy, match="give the sink the kernel's address"):
        publish(tmp_path, "query", 0, files)
    assert publish(tmp_path, "query", 0, files)


# ------------------------------------------------------------------ to a running kernel


@pytest.fixture
def listener() -> Iterator[tuple[WriteOptions, Any]]:
    """A running kernel: the options with its address, and the channel where messages come out."""
    listening = {
        "mode": "listen",
        "address": "backend+tcp://127.0.0.1:0",
        "protocol": {"max_message": 1000},
    }
    plan = Plan(
        engines=(
            EnginePlan(name="in", kind="stream", options=listening),
            EnginePlan(name="out", kind="native"),
        ),
        routes=(RoutePlan(source="in", targets=("out",)),),
    )
    with Kernel(plan) as kernel, kernel.open("out") as channel:
        kernel.wait_running()
        address = f"backend+tcp://{kernel.address_of('in')}"
        yield WriteOptions(address=address, timeout=60), channel


def _sent(channel: Any, count: int) -> list[tuple[bytes, str]]:
    messages = [channel.receive_message(timeout=60) for _ in range(count)]
    return [(bytes(m.body), m.envelope.properties["headers"][TOKEN]) for m in messages]


def test_an_epoch_is_sent_once_it_is_complete_and_never_again(
    listener: tuple[WriteOptions, Any], tmp_path: Path
) -> None:
    options, channel = listener
    _stage(tmp_path, 0, [[b"of a task that was tried again"]])
    names = _stage(tmp_path, 0, [[b"a"], [b"b", b"c"]], [[b"d"]])
    assert send_epoch(options, tmp_path, "query", 0, names)
    assert not send_epoch(options, tmp_path, "query", 0, _stage(tmp_path, 0, [[b"a"]]))
    assert send_epoch(options, tmp_path, "query", 1, _stage(tmp_path, 1, [[b"e"]]))
    assert sorted(_sent(channel, 5)) == [  # each epoch has a connection of its own
        (b"a", "query/0/0/0"),
        (b"b", "query/0/0/1"),
        (b"c", "query/0/0/2"),
        (b"d", "query/0/1/0"),
        (b"e", "query/1/0/0"),
    ]
    assert _left(tmp_path) == []


def test_an_epoch_that_was_not_confirmed_is_sent_again_with_the_same_tokens(
    listener: tuple[WriteOptions, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, channel = listener

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    names = _stage(tmp_path, 0, [[b"a", b"b"]])
    with monkeypatch.context() as patch:
        patch.setattr("plugins.apis.spark.bus_writer.note", killed)
        with pytest.raises(KeyboardInterrupt):
            send_epoch(options, tmp_path, "query", 0, names)
    assert send_epoch(options, tmp_path, "query", 0, _stage(tmp_path, 0, [[b"a", b"b"]]))
    sent = sorted(_sent(channel, 4))
    assert sent[::2] == sent[1::2] == [(b"a", "query/0/0/0"), (b"b", "query/0/0/1")]


def test_an_epoch_with_a_row_that_is_too_large_is_not_taken_for_sent(
    listener: tuple[WriteOptions, Any], tmp_path: Path
) -> None:
    options, channel = listener
    names = _stage(tmp_path, 0, [[b"a", bytes(1001), b"b"]])
    with pytest.raises(NotTaken, match="1001 bytes; the peer takes 1000.*leave these rows out"):
        send_epoch(options, tmp_path, "query", 0, names)
    assert last_epoch(tmp_path, "query") is None
    assert _sent(channel, 2) == [(b"a", "query/0/0/0"), (b"b", "query/0/0/2")]
    assert _left(tmp_path) == names


@pytest.fixture
def broker() -> Iterator[tuple[WriteOptions, Any]]:
    """A kernel with a broker behind its listener: the options for it, and a client of the broker."""
    plan = Plan(
        engines=(
            EnginePlan(
                name="in", kind="stream", options={"mode": "listen", "address": "backend+tcp://127.0.0.1:0"}
            ),
            EnginePlan(name="broker", kind="broker"),
            EnginePlan(name="mine", kind="broker-client", options={"broker": "broker"}),
        ),
        routes=(RoutePlan(source="in", targets=("broker",), confirm=True),),
    )
    with Kernel(plan) as kernel, kernel.open("mine", "broker-client") as client:
        kernel.wait_running()
        client.declare_queue("rows")
        address = f"backend+tcp://{kernel.address_of('in')}"
        yield WriteOptions(address=address, timeout=60, deduplicate=True), client


def _queued(client: Any) -> list[bytes]:
    bodies = []
    while (delivery := client.get("rows", auto_ack=True)) is not None:
        assert set(delivery.envelope.properties["headers"]) == {TOKEN}
        bodies.append(bytes(delivery.body))
    return bodies


def _stage_rows(folder: Path, epoch: int, *partitions: Sequence[bytes]) -> list[str]:
    return [
        str(stage(folder, "query", epoch, number, [_batch(body=bodies, key=["rows"] * len(bodies))]))
        for number, bodies in enumerate(partitions)
    ]


@pytest.mark.parametrize("sent", range(6))
def test_a_driver_that_is_killed_while_it_sends_to_a_broker_doubles_nothing(
    broker: tuple[WriteOptions, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: int
) -> None:
    options, client = broker
    rows = [[b"a", b"b"], [b"c", b"d", b"e"]]
    names = _stage_rows(tmp_path, 0, *rows)
    whole = bus_writer._send

    def killed(options: WriteOptions, chunks: Iterator[Iterator[Batch]]) -> None:
        """Send so many messages, and be no more."""
        messages = list(chain.from_iterable(chunks))[:sent]
        whole(options, iter([iter(messages)]))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(bus_writer, "_send", killed)
        with pytest.raises(KeyboardInterrupt):
            send_epoch(options, tmp_path, "query", 0, names)
    # What Spark makes of it again has its rows in another order.
    again = _stage_rows(tmp_path, 0, *[part[::-1] for part in rows[::-1]])
    assert not send_epoch(options, tmp_path, "query", 0, again)
    assert send_epoch(options, tmp_path, "query", 1, _stage_rows(tmp_path, 1, [b"f"]))
    assert _queued(client) == [b"a", b"b", b"c", b"d", b"e", b"f"]
    assert _left(tmp_path) == []


def test_a_batch_write_without_staging_reaches_a_broker_once(
    broker: tuple[WriteOptions, Any], tmp_path: Path
) -> None:
    options, client = broker
    for attempt in range(2):
        # A temporary folder each time, so that nothing but the broker remembers.
        folder = tmp_path / str(attempt)
        assert send_epoch(options, folder, "query", 0, _stage_rows(folder, 0, [b"a", b"b"]))
    assert _queued(client) == [b"a", b"b"]


def test_rows_for_a_kernel_wait_in_the_checkpoint_or_where_the_option_says(tmp_path: Path) -> None:
    options = WriteOptions(address="backend+tcp://127.0.0.1:1")
    assert folder_of(options, f"file:{tmp_path}/checkpoint") == tmp_path / "checkpoint" / "kernel"
    elsewhere = WriteOptions(address="backend+tcp://127.0.0.1:1", staging=str(tmp_path / "shared"))
    assert folder_of(elsewhere, f"file:{tmp_path}/checkpoint") == tmp_path / "shared"
    with pytest.raises(SparkOptionError, match="set the option checkpointLocation, or .* option staging"):
        folder_of(options, None)


@pytest.mark.parametrize("token", ["a/b", "../x", "."])
def test_a_token_is_the_name_of_a_file(token: str) -> None:
    with pytest.raises(SparkOptionError, match="token .* becomes the name of a file"):
        WriteOptions(path="/j", token=token)
