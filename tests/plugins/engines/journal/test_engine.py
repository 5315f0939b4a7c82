"""The journal in a running kernel: what is confirmed is safe, what a full disk does, what a restart finds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernel import EnginePlan, Envelope, Kernel, RoutePlan, TimedOut, WaterMarks
from kernel.contracts.message import Buffer, batch_of
from kernel.testing.fixtures import KernelFactory
from plugins.engines.journal import committer
from plugins.engines.journal import writer as writer_module
from plugins.engines.journal.committer import Committer, chunks
from plugins.engines.journal.options import JournalOptions
from plugins.engines.journal.writer import JournalWriter
from plugins.protocols.journal_format.envelopes import NOWHERE
from plugins.protocols.journal_format.reader import JournalReader
from tests.events import Events
from tests.plugins.engines.journal.conftest import LimitedDisk, bodies_in, numbered

TIMEOUT = 60.0


@pytest.fixture
def start(kernel_factory: KernelFactory, tmp_path: Path) -> Callable[..., Kernel]:
    def make(
        *, confirm: bool = True, marks: WaterMarks | None = None, events: Events | None = None, **options: Any
    ) -> Kernel:
        return kernel_factory(
            EnginePlan(name="app", kind="native"),
            EnginePlan(name="journal", kind="journal", options={"path": str(tmp_path / "j"), **options}),
            RoutePlan(source="app", targets=("journal",), confirm=confirm, marks=marks or WaterMarks()),
            on_event=events,
        )

    return make


def figures(kernel: Kernel) -> dict[str, Any]:
    return {engine.name: engine.counters for engine in kernel.statistics().engines}["journal"]


def went(app: Any, bodies: list[bytes]) -> bool:
    """Whether there was room for these soon."""
    try:
        app.send_many(bodies, timeout=0.5)
    except TimedOut:
        return False
    return True


@pytest.mark.parametrize("fsync", ["batch", "interval", "never"])
def test_what_is_confirmed_is_in_the_journal(
    start: Callable[..., Kernel], tmp_path: Path, fsync: str
) -> None:
    kernel = start(fsync=fsync, fsync_interval=0.05)
    with kernel.open("app") as app:
        for body in numbered(0, 5000):
            app.send(body)
        app.wait_confirmed(TIMEOUT)
    assert bodies_in(tmp_path / "j") == numbered(0, 5000)
    counted = figures(kernel)
    assert (counted["messages_in"], counted["durable"], counted["next_offset"]) == (5000, 5000, 5000)
    assert (counted["syncs"] == 0) == (fsync == "never")


def test_nothing_is_confirmed_before_it_is_synchronised(
    start: Callable[..., Kernel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, may_sync = threading.Event(), threading.Event()

    class SlowDisk(LimitedDisk):
        def sync(self, descriptor: int) -> None:
            if (tmp_path / "j" / "gate").exists():
                written.set()
                assert may_sync.wait(TIMEOUT)

    monkeypatch.setattr(writer_module, "Disk", SlowDisk)
    with start().open("app") as app:
        (tmp_path / "j" / "gate").touch()
        app.send(b"0")
        assert written.wait(TIMEOUT)
        with pytest.raises(TimedOut):
            app.wait_confirmed(0.1)
        assert bodies_in(tmp_path / "j") == [b"0"], "it is written, but not safe"
        may_sync.set()
        app.wait_confirmed(TIMEOUT)


def test_what_was_on_its_way_to_the_disk_before_a_source_came_confirms_nothing_of_it(
    kernel_factory: KernelFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_sync, may_write = threading.Event(), threading.Event()
    may_sync.set()
    may_write.set()

    class SlowDisk(LimitedDisk):
        def sync(self, descriptor: int) -> None:
            assert may_sync.wait(TIMEOUT)

        def write(self, descriptor: int, data: Buffer, position: int) -> None:
            assert may_write.wait(TIMEOUT)
            super().write(descriptor, data, position)

    monkeypatch.setattr(writer_module, "Disk", SlowDisk)
    options = {"path": str(tmp_path / "j"), "linger": 0.0}
    kernel = kernel_factory(
        EnginePlan(name="careful", kind="native"),
        EnginePlan(name="careless", kind="native"),
        EnginePlan(name="journal", kind="journal", options=options),
        RoutePlan(source="careful", targets=("journal",), confirm=True),
        RoutePlan(source="careless", targets=("journal",)),
    )
    with kernel.open("careful") as first:
        first.send(b"0")
        first.wait_confirmed(TIMEOUT)
        may_sync.clear()
        kernel.open("careless").send_many([b"1", b"2"])
        _wait_until(lambda: len(bodies_in(tmp_path / "j")) == 3)
    _wait_until(lambda: not any(pipe.name.startswith("careful") for pipe in kernel.statistics().pipes))
    with kernel.open("careful") as second:
        second.send_many([b"3", b"4"])
        _wait_until(lambda: figures(kernel)["messages_in"] == 5)
        may_write.clear()
        may_sync.set()
        _wait_until(lambda: figures(kernel)["durable"] == 3)
        with pytest.raises(TimedOut):
            second.wait_confirmed(0.1)
        may_write.set()
        second.wait_confirmed(TIMEOUT)


def _wait_until(there: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not there():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_messages_that_nobody_waits_for_share_a_commit(start: Callable[..., Kernel], tmp_path: Path) -> None:
    kernel = start(confirm=False, linger=3600)
    with kernel.open("app") as app:
        for number in range(5):
            app.send(b"%d" % number)
            _wait_until(lambda: figures(kernel)["messages_in"] == number + 1)  # noqa: B023
        app.send_many(numbered(5, 3000))
        _wait_until(lambda: figures(kernel)["messages_in"] == 3000)
    kernel.close(linger=3600)
    assert kernel.join(TIMEOUT), "it has waited for more"
    assert [batch.num_rows for batch in JournalReader(tmp_path / "j").record_batches()] == [3000]


def test_a_lone_publisher_that_waits_for_each_answer_waits_for_nobody_else(
    start: Callable[..., Kernel], tmp_path: Path
) -> None:
    with start(linger=3600).open("app") as app:
        for body in numbered(0, 20):
            app.send(body)
            app.wait_confirmed(TIMEOUT)
    assert bodies_in(tmp_path / "j") == numbered(0, 20)


def test_publishers_that_all_wait_share_a_commit_as_soon_as_the_last_of_them_has_come(
    kernel_factory: KernelFactory, tmp_path: Path
) -> None:
    kernel = kernel_factory(
        *(EnginePlan(name=name, kind="native") for name in ("one", "two")),
        EnginePlan(name="journal", kind="journal", options={"path": str(tmp_path / "j"), "linger": 3600}),
        RoutePlan(source="one", targets=("journal",), confirm=True),
        RoutePlan(source="two", targets=("journal",), confirm=True),
    )
    with kernel.open("one") as one, kernel.open("two") as two:
        one.send_many([b"1", b"1"])
        one.wait_confirmed(TIMEOUT)
        for _ in range(10):
            one.send(b"1")
            two.send(b"2")
            one.wait_confirmed(TIMEOUT)
            two.wait_confirmed(TIMEOUT)
    assert {batch.num_rows for batch in JournalReader(tmp_path / "j").record_batches()} == {2}


def test_what_comes_while_a_commit_is_on_its_way_shares_the_next(
    start: Callable[..., Kernel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncing, may_sync = threading.Event(), threading.Event()

    class SlowDisk(LimitedDisk):
        def sync(self, descriptor: int) -> None:
            if (tmp_path / "j" / "gate").exists():
                syncing.set()
                assert may_sync.wait(TIMEOUT)

    monkeypatch.setattr(writer_module, "Disk", SlowDisk)
    # What lingers would not be on its way to the disk yet.
    kernel = start(linger=0)
    with kernel.open("app") as app:
        (tmp_path / "j" / "gate").touch()
        for number in range(5):
            app.send(b"%d" % number)
            _wait_until(lambda: figures(kernel)["messages_in"] == number + 1)  # noqa: B023
            assert syncing.wait(TIMEOUT)  # of the first, alone
        figures(kernel)  # another turn of the engine's thread: what was taken in the last has been handed on
        may_sync.set()
        app.wait_confirmed(TIMEOUT)
    assert [batch.num_rows for batch in JournalReader(tmp_path / "j").record_batches()] == [1, 4]


def test_rows_say_where_they_came_from(start: Callable[..., Kernel], tmp_path: Path) -> None:
    with start().open("app") as app:
        app.send_many([b"x"], key="weather.madrid")
        app.wait_confirmed(TIMEOUT)
    (record_batch,) = JournalReader(tmp_path / "j").record_batches(columns=["engine", "route", "key"])
    assert record_batch.to_pylist() == [{"engine": "app", "route": "app -> journal", "key": "weather.madrid"}]


@pytest.mark.slow
def test_a_full_disk_holds_the_source_back_until_there_is_room(
    start: Callable[..., Kernel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = LimitedDisk()
    monkeypatch.setattr(writer_module, "Disk", lambda: disk)
    events = Events()
    kernel = start(events=events, retry=0.01, min_free_bytes=0, batch_rows=10, marks=WaterMarks(high=100))
    with kernel.open("app") as app:
        disk.room = 0
        sent = 0
        while sent < 1000 and went(app, numbered(sent, sent + 10)):
            sent += 10
        assert sent < 500, "the source was held back"
        assert "No space left" in events.wait("full").detail
        assert "No space left" in figures(kernel)["full"]
        disk.room = 1 << 40
        events.wait("room")
        app.wait_confirmed(TIMEOUT)
    assert bodies_in(tmp_path / "j") == numbered(0, sent)
    assert figures(kernel)["full"] == ""


def test_who_hears_of_a_full_disk_finds_it_in_the_figures(
    start: Callable[..., Kernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = LimitedDisk()
    monkeypatch.setattr(writer_module, "Disk", lambda: disk)
    events = Events()
    kernel = start(events=events, retry=0.01, min_free_bytes=0)
    found: list[tuple[str, bool]] = []
    kernel.events.insert(0, lambda event: found.append((event.what, bool(figures(kernel)["full"]))))
    with kernel.open("app") as app:
        disk.room = 0
        app.send(b"0")
        events.wait("full")
        disk.room = 1 << 40
        events.wait("room")
    assert [one for one in found if one[0] in ("full", "room")] == [("full", True), ("room", False)]


def test_a_full_disk_drops_if_the_route_says_so(
    start: Callable[..., Kernel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = LimitedDisk()
    monkeypatch.setattr(writer_module, "Disk", lambda: disk)
    events = Events()
    marks = WaterMarks(high=100, when_full="drop-newest")
    kernel = start(confirm=False, events=events, retry=0.01, min_free_bytes=0, batch_rows=10, marks=marks)
    with kernel.open("app") as app:
        disk.room = 0
        for number in range(0, 5000, 10):
            app.send_many(numbered(number, number + 10))
        events.wait("full")
        disk.room = 1 << 40
        events.wait("room")
    kernel.close(linger=TIMEOUT)
    kernel.join(TIMEOUT)
    kept = bodies_in(tmp_path / "j")
    dropped = sum(route.dropped for route in kernel.statistics().routes)
    assert dropped > 0
    assert len(kept) + dropped == 5000
    assert kept == sorted(kept, key=int)


def test_closing_writes_what_was_sent(start: Callable[..., Kernel], tmp_path: Path) -> None:
    kernel = start(confirm=False, linger=0.2)
    with kernel.open("app") as app:
        app.send_many(numbered(0, 777))
    kernel.close(linger=TIMEOUT)
    kernel.join(TIMEOUT)
    assert bodies_in(tmp_path / "j") == numbered(0, 777)


def test_retention_goes_on_while_the_journal_is_written(
    start: Callable[..., Kernel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committer, "HOUSEKEEPING", 0.01)
    kernel = start(roll_bytes=10_000, keep={"bytes": 30_000})
    with kernel.open("app") as app:
        number = 0
        while figures(kernel)["segments_deleted"] < 3:
            app.send(b"%d" % number)
            app.wait_confirmed(TIMEOUT)
            number += 1
    kernel.close()  # or it goes on between two looks
    assert kernel.join(TIMEOUT)
    earliest, end = JournalReader(tmp_path / "j").bounds()
    assert 0 < earliest < end == number
    assert bodies_in(tmp_path / "j") == numbered(earliest, end)


def test_a_consumer_that_cannot_be_read_keeps_what_there_is_and_stops_nothing(
    start: Callable[..., Kernel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committer, "HOUSEKEEPING", 0.01)
    file = tmp_path / "j" / "consumers" / "lost.json"
    file.parent.mkdir(parents=True)
    file.touch()
    events = Events()
    kernel = start(events=events, roll_bytes=2000, keep={"bytes": 1})
    with kernel.open("app") as app:
        for body in numbered(0, 20):
            app.send(body)
            app.wait_confirmed(TIMEOUT)
        warning = events.wait("warning").detail
        assert warning.startswith(f"nothing is deleted: {file}: not a consumer's position")
        assert bodies_in(tmp_path / "j") == numbered(0, 20)
        file.unlink()
        deadline = time.monotonic() + TIMEOUT
        while figures(kernel)["segments_deleted"] < 3:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert not events.count("failed")


def test_a_message_larger_than_a_commit_should_be_has_one_of_its_own(
    start: Callable[..., Kernel], tmp_path: Path
) -> None:
    giant = bytes(20_000_000)
    with start(batch_bytes=1_000_000).open("app") as app:
        for body in (b"before", giant, b"after"):
            app.send(body)
        app.wait_confirmed(TIMEOUT)
    assert bodies_in(tmp_path / "j") == [b"before", giant, b"after"]


def test_a_journal_that_another_writes_is_waited_for(kernel_factory: KernelFactory, tmp_path: Path) -> None:
    events = Events()
    with JournalWriter(tmp_path / "j"):
        kernel = kernel_factory(
            EnginePlan(name="journal", kind="journal", options={"path": str(tmp_path / "j")}),
            wait=False,
            on_event=events,
        )
        assert "is writing this journal; a journal has one writer" in events.wait("failed").detail
    kernel.wait_running()


def test_a_disk_that_fails_ends_the_engine_and_another_life_goes_on(
    start: Callable[..., Kernel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = threading.Event()

    class BrokenDisk(LimitedDisk):
        def sync(self, descriptor: int) -> None:
            if broken.is_set():
                broken.clear()
                raise OSError(5, "Input/output error")

    monkeypatch.setattr(writer_module, "Disk", BrokenDisk)
    events = Events()
    with start(events=events).open("app") as app:
        broken.set()
        app.send(b"0")
        assert "Input/output error" in events.wait("failed").detail
        app.send(b"1")
        app.wait_confirmed(TIMEOUT)
    kept = bodies_in(tmp_path / "j")
    assert kept[-1] == b"1"
    assert set(kept) == {b"0", b"1"}, "at least once"


def test_what_a_disk_failed_to_synchronise_is_not_called_safe_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says yes the next time, which is when the journal is closed."""
    failing: list[OSError] = []
    failed = threading.Event()

    class BrokenDisk(LimitedDisk):
        def sync(self, descriptor: int) -> None:
            if failing:
                failed.set()
                raise failing.pop()

    writer = JournalWriter(tmp_path, disk=BrokenDisk())
    failing.append(OSError(5, "Input/output error"))
    options = JournalOptions(path=str(tmp_path), fsync="interval", fsync_interval=60)
    errors: list[BaseException] = []
    looked = threading.Event()
    monkeypatch.setattr(writer, "roll_if_due", looked.set)
    working = Committer("journal", writer, options, report=lambda _: None, fail=errors.append)
    working.start()
    assert looked.wait(TIMEOUT), "a turn with nothing to synchronise does not put the next one off"
    working.submit([(batch_of([b"0"]), writer.stamp(), NOWHERE)])
    assert failed.wait(TIMEOUT)
    working.stop()
    assert (working.progress.committed, working.progress.durable) == (1, 0)
    assert [str(error) for error in errors] == ["[Errno 5] Input/output error"]


def test_what_was_recovered_is_told(start: Callable[..., Kernel], tmp_path: Path) -> None:
    JournalWriter(tmp_path / "j").close()
    data = next((tmp_path / "j").glob("*.arrows"))
    with data.open("ab") as file:
        file.write(b"torn")
    events = Events()
    kernel = start(events=events)
    assert "4 bytes that were never committed were cut off" in events.wait("recovered").detail
    assert figures(kernel)["cut_bytes"] == 4


def test_commits_are_no_larger_than_asked_for() -> None:
    batch = batch_of([b"x" * 100] * 1000, Envelope(key="k"))
    parts = list(chunks([(batch, 1, NOWHERE), (batch, 2, NOWHERE)], 250, 30_000))
    assert all(sum(len(part) for part, _, _ in chunk) <= 250 for chunk in parts)
    assert all(sum(part.size for part, _, _ in chunk) <= 30_000 for chunk in parts)
    assert [body for chunk in parts for part, _, _ in chunk for body in part.bodies] == [
        *batch.bodies,
        *batch.bodies,
    ]
    giant = batch_of([b"y" * 50_000])
    assert [len(chunk) for chunk in chunks([(giant, 1, NOWHERE), (giant, 1, NOWHERE)], 9, 30_000)] == [1, 1]
