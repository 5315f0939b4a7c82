"""A journal played back in a running kernel: to its end, from where a consumer was, and on as it grows."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from kernel import EnginePlan, Envelope, Kernel, Plan, RoutePlan, ThreadPlan, WaterMarks
from kernel.contracts.engine import EngineEvent
from kernel.testing.fixtures import KernelFactory
from kernel.topology.parts import Parts
from plugins.apis.native.channel import Channel
from plugins.engines.journal import replay as replay_module
from plugins.engines.journal import replay_reader
from plugins.engines.journal.options import KeepOptions
from plugins.engines.journal.positions import positions, write_position
from plugins.engines.journal.replay_reader import CHUNK_ROWS, ReplayReader
from plugins.engines.journal.retention import delete, expired
from plugins.engines.journal.selection import EVERYTHING
from plugins.engines.journal.writer import JournalWriter
from plugins.protocols.journal_format.names import SegmentName
from tests.events import Events
from tests.plugins.engines.journal.conftest import append, bodies_in, numbered

TIMEOUT = 60.0
APP = EnginePlan(name="app", kind="native")


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    path = tmp_path / "j"
    with JournalWriter(path) as writer:
        for first in range(0, 1000, 100):
            append(writer, *numbered(first, first + 100))
    return path


@pytest.fixture
def play(kernel_factory: KernelFactory, journal: Path) -> Callable[..., Kernel]:
    def make(**options: Any) -> Kernel:
        return kernel_factory(APP, replay(journal, **options), route())

    return make


def replay(journal: Path, **options: Any) -> EnginePlan:
    return EnginePlan(
        name="journal", kind="journal-replay", options={"path": str(journal), "speed": 0, **options}
    )


def route(*, confirm: bool = True, high: int = 1000) -> RoutePlan:
    return RoutePlan(source="journal", targets=("app",), confirm=confirm, marks=WaterMarks(high=high))


def receive(kernel: Kernel, count: int) -> list[bytes]:
    with kernel.open("app") as app:
        return receive_from(app, count)


def receive_from(app: Channel, count: int) -> list[bytes]:
    got: list[bytes] = []
    while len(got) < count:
        got += map(bytes, app.receive_many(timeout=TIMEOUT))
    app.confirm()
    return got


def until(happened: Callable[[], bool]) -> None:
    """The end of an engine's life is told to nobody in particular."""
    deadline = time.monotonic() + TIMEOUT
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def state_of(kernel: Kernel) -> str:
    return next(str(state.state) for state in kernel.engine_states() if state.name == "journal")


@pytest.mark.parametrize("confirm", [False, True])
@pytest.mark.parametrize("high", [10, 100_000])
def test_all_of_it_comes_in_order_and_then_the_replay_ends(
    kernel_factory: KernelFactory, journal: Path, confirm: bool, high: int
) -> None:
    kernel = kernel_factory(APP)
    with kernel.open("app") as app:  # without confirmations, what comes before is nobody's
        kernel.add_route(route(confirm=confirm, high=high))
        kernel.add_engine(replay(journal))
        assert receive_from(app, 1000) == numbered(0, 1000)
    until(lambda: state_of(kernel) == "ended")


def test_a_journal_that_is_not_there_is_an_error_until_it_is(
    kernel_factory: KernelFactory, journal: Path, tmp_path: Path
) -> None:
    events = Events()
    kernel = kernel_factory(APP, replay(tmp_path / "jornal"), route(), wait=False, on_event=events)
    assert "jornal: No such file or directory" in events.wait("failed", "journal").detail
    journal.rename(tmp_path / "jornal")
    assert receive(kernel, 1000) == numbered(0, 1000)


def test_a_journal_that_is_written_in_the_same_system_may_be_missing_at_first(
    kernel_factory: KernelFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events, has_looked = Events(), threading.Event()
    add_engine = Parts.add_engine

    def added(self: Parts, plan: EnginePlan, bound: Any) -> None:
        if plan.name == "log":
            assert has_looked.wait(TIMEOUT)
        add_engine(self, plan, bound)

    def tell(event: EngineEvent) -> None:
        events(event)
        has_looked.set()

    monkeypatch.setattr(Parts, "add_engine", added)
    kernel_factory(
        replay(tmp_path / "new"),
        # Started later.
        EnginePlan(name="log", kind="journal", options={"path": str(tmp_path / "new")}),
        EnginePlan(name="app", kind="native"),
        route(),
        on_event=tell,
    )
    events.wait("ended", "journal")
    assert not events.all("failed")


def test_who_waits_for_a_replay_may_come_when_it_has_ended(play: Callable[..., Kernel]) -> None:
    kernel = play()
    receive(kernel, 1000)
    until(lambda: state_of(kernel) == "ended")
    kernel.wait_running(0)


def test_a_consumer_goes_on_where_everything_was_confirmed(
    play: Callable[..., Kernel], journal: Path
) -> None:
    write_position(journal, "reader", 300)
    kernel = play(consumer="reader", end=700)
    assert receive(kernel, 400) == numbered(300, 700)
    until(lambda: positions(journal) == {"reader": 700})
    assert receive(play(consumer="reader"), 300) == numbered(700, 1000)


@pytest.mark.parametrize("confirm", [False, True])
def test_rows_that_are_not_wanted_hold_no_consumer_back(
    kernel_factory: KernelFactory, journal: Path, confirm: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_module, "_WRITE_POSITION", 0.01)
    with JournalWriter(journal) as writer:
        append(writer, b"wanted", envelope=Envelope(key="k"))
        append(writer, *numbered(0, 10))
    options = {"consumer": "reader", "match": ["k"], "follow": True}
    kernel = kernel_factory(APP, replay(journal, **options), route(confirm=confirm))
    assert receive(kernel, 1) == [b"wanted"]
    until(lambda: positions(journal) == {"reader": 1011})
    with JournalWriter(journal) as writer:
        append(writer, *numbered(0, 10))
    until(lambda: positions(journal) == {"reader": 1021})


def test_a_journal_that_is_deleted_while_it_is_followed_leaves_no_watch_behind(
    play: Callable[..., Kernel], journal: Path
) -> None:
    kernel = play(consumer="reader", follow=True)
    assert len(receive(kernel, 1000)) == 1000
    shutil.rmtree(journal)
    kernel.close()
    assert kernel.join(TIMEOUT)
    # ``kernel_factory`` looks for descriptors.


@pytest.mark.slow
def test_a_position_that_takes_its_time_is_written_before_the_last_one(
    play: Callable[..., Kernel], journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing = threading.Event()

    def slowly(path: Path, consumer: str, position: int) -> None:
        if 0 < position < 1000:
            writing.set()
            time.sleep(0.5)  # while the replay ends
        write_position(path, consumer, position)

    monkeypatch.setattr(replay_module, "write_position", slowly)
    monkeypatch.setattr(replay_module, "_WRITE_POSITION", 0.01)
    kernel = play(consumer="reader")
    with kernel.open("app") as app:
        for count in (900, 100):
            for _ in range(count):
                app.receive(timeout=TIMEOUT)
            app.confirm()
            assert writing.wait(TIMEOUT)
    until(lambda: state_of(kernel) == "ended")
    assert positions(journal) == {"reader": 1000}


def test_a_consumer_is_waited_for_from_its_beginning(play: Callable[..., Kernel], journal: Path) -> None:
    options = {"consumer": "reader", "start": "latest", "follow": True}
    kernel = play(**options)
    until(lambda: positions(journal) == {"reader": 1000})
    kernel.close()
    kernel.join(TIMEOUT)
    with JournalWriter(journal) as writer:
        append(writer, *numbered(1000, 1010))
    assert receive(play(**options), 10) == numbered(1000, 1010), "nothing had been confirmed before"


def test_a_consumer_that_may_miss_what_retention_takes_goes_on_behind_it(
    kernel_factory: KernelFactory, journal: Path
) -> None:
    write_position(journal, "reader", 300)
    with JournalWriter(journal) as writer:
        writer.roll()
        append(writer, *numbered(1000, 1010))
    delete(journal, expired(journal, KeepOptions(bytes=1, for_consumers=False), 0))
    events = Events()
    kernel = kernel_factory(APP, replay(journal, consumer="reader"), route(), on_event=events)
    assert receive(kernel, 10) == numbered(1000, 1010)
    assert "offsets 300 to 999" in events.wait("damaged").detail
    until(lambda: state_of(kernel) == "ended")
    assert positions(journal) == {"reader": 1010}


def test_a_consumer_misses_nothing_after_a_loss_of_power_has_taken_what_it_has_had(
    kernel_factory: KernelFactory, journal: Path
) -> None:
    """Readers see what is not synchronised yet, and ``fsync = "interval"`` leaves a second of that."""
    index, data = next(journal.glob("*.index")), next(journal.glob("*.arrows"))
    before = index.stat().st_size, data.stat().st_size
    with JournalWriter(journal) as writer:
        append(writer, *numbered(1000, 1100))
    write_position(journal, "reader", 1100)
    write_position(journal, "late", 990)
    os.truncate(index, before[0])
    os.truncate(data, before[1])
    with JournalWriter(journal) as writer:
        assert (writer.recovered.lost, writer.next_offset) == (100, 1100)
        append(writer, *numbered(1100, 1110))
    with JournalWriter(journal) as writer:
        assert not any(writer.recovered)
    events = Events()
    kernel = kernel_factory(APP, replay(journal, consumer="reader"), route(), on_event=events)
    assert receive(kernel, 10) == numbered(1100, 1110)
    assert not events.count("damaged")
    kernel = kernel_factory(APP, replay(journal, consumer="late"), route(), on_event=events)
    assert receive(kernel, 20) == numbered(990, 1000) + numbered(1100, 1110)
    assert "offsets 1000 to 1099" in events.wait("damaged").detail


def test_a_start_that_is_still_to_come_is_not_noted_as_read(
    play: Callable[..., Kernel], journal: Path
) -> None:
    kernel = play(consumer="reader", start=1005, follow=True)
    kernel.wait_running()
    with JournalWriter(journal) as writer:
        append(writer, *numbered(1000, 1010))
    assert receive(kernel, 5) == numbered(1005, 1010)


def test_what_is_not_confirmed_is_not_passed_over(play: Callable[..., Kernel], journal: Path) -> None:
    kernel = play(consumer="reader")
    with kernel.open("app") as app:
        got = app.receive_many(timeout=TIMEOUT)
        assert got[0] == b"0"
        kernel.close(linger=0)
        kernel.join(TIMEOUT)
    assert positions(journal).get("reader", 0) == 0


@pytest.mark.slow
def test_following_goes_on_with_what_is_added(play: Callable[..., Kernel], journal: Path) -> None:
    kernel = play(follow=True, start=900)
    got: list[bytes] = []
    with JournalWriter(journal) as writer, kernel.open("app") as app:
        for number in range(1000, 1050):
            append(writer, b"%d" % number)
            while not got or got[-1] != b"%d" % number:
                got += map(bytes, app.receive_many(timeout=TIMEOUT))
    assert got == numbered(900, 1050)
    assert state_of(kernel) == "running"


def test_following_passes_over_nothing_that_is_added_while_it_catches_up(tmp_path: Path) -> None:
    with JournalWriter(tmp_path) as writer:
        append(writer, *numbered(0, CHUNK_ROWS))
        append(writer, b"%d" % CHUNK_ROWS)
        source = ReplayReader(tmp_path, start=0, end="latest", selection=EVERYTHING, follow=True)
        got: list[bytes] = []
        for number in range(CHUNK_ROWS + 1, CHUNK_ROWS + 6):
            for batches, _ in source.read().record_batches:
                got += [body for _, batch in batches for body in batch.bodies]
            append(writer, b"%d" % number)
    assert got == numbered(0, CHUNK_ROWS + 5)


@pytest.mark.slow
def test_large_messages_are_not_all_read_ahead(
    kernel_factory: KernelFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (replay_reader, replay_module):
        monkeypatch.setattr(module, "CHUNK_BYTES", 10_000)
    with JournalWriter(tmp_path) as writer:
        for number in range(100):
            append(writer, b"%01000d" % number)
    source = ReplayReader(tmp_path, start=0, end="latest", selection=EVERYTHING)
    assert source.read().offset == 10
    assert source.read().offset == 20
    kernel = kernel_factory(APP, replay(tmp_path, speed=0.00001), route())
    with kernel.open("app") as app:
        assert int(app.receive(timeout=TIMEOUT)) == 0
        time.sleep(0.2)
        (figures,) = (engine.counters for engine in kernel.statistics().engines if engine.name == "journal")
        assert figures["read_to"] <= 20


def test_damage_is_told_and_passed_over(play: Callable[..., Kernel], journal: Path) -> None:
    path = SegmentName(0, 0).data_path(journal)
    good = path.read_bytes()
    half = len(good) // 2
    path.write_bytes(good[:half] + b"?" + good[half + 1 :])
    kernel = play()
    got = receive(kernel, 900)
    assert len(got) == len(set(got)) == 900
    until(lambda: state_of(kernel) == "ended")
    figures = {engine.name: engine.counters for engine in kernel.statistics().engines}["journal"]
    assert figures == {} or figures["damaged_rows"] == 100


def test_a_journal_may_be_copied_through_the_kernel(
    kernel_factory: KernelFactory, journal: Path, tmp_path: Path
) -> None:
    kernel = kernel_factory(
        EnginePlan(name="old", kind="journal-replay", options={"path": str(journal), "speed": 0}),
        EnginePlan(name="new", kind="journal", options={"path": str(tmp_path / "copy")}),
        RoutePlan(source="old", targets=("new",), confirm=True),
    )
    until(lambda: any(state.state == "ended" for state in kernel.engine_states()))
    assert bodies_in(tmp_path / "copy") == bodies_in(journal)


def test_a_journal_may_be_copied_in_the_applications_own_run(journal: Path, tmp_path: Path) -> None:
    """What a task of the replay sends has to wake the loop, which is another task there."""
    old = EnginePlan(name="old", kind="journal-replay", options={"path": str(journal), "speed": 0})
    new = EnginePlan(name="new", kind="journal", options={"path": str(tmp_path / "copy")})
    plan = Plan(
        threads=(ThreadPlan(name="here", kind="guest"),),
        engines=(old, new),
        routes=(RoutePlan(source="old", targets=("new",), confirm=True),),
    )

    async def copy() -> None:
        with trio.fail_after(TIMEOUT):
            async with Kernel(plan) as kernel:
                while all(state.state != "ended" for state in kernel.engine_states()):  # noqa: ASYNC110 - see ``until``
                    await trio.sleep(0.01)

    trio.run(copy)
    assert bodies_in(tmp_path / "copy") == bodies_in(journal)
