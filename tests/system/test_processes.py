"""Engines in processes of their own: what holds for threads holds over the border."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from functools import cache
from multiprocessing import spawn
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kernel.contracts.errors import KernelError, PlanError, TimedOut
from kernel.plugins import Origin, PluginRegistry
from kernel.testing.fixtures import KernelFactory, plan_of
from kernel.threads.process_thread import ProcessThread
from kernel.topology.explaining import Question
from kernel.topology.plan import EnginePlan, ThreadPlan
from kernel.topology.system import Kernel
from kernel.topology.tap import TapWanted
from tests.events import Events
from tests.system import probe as probe_plugin
from tests.system.conftest import FAST, route
from tests.systems import lends, linux_only


@cache
def registry() -> PluginRegistry:
    """What is installed, and a plugin that is not: the processes get it by the name of its module."""
    found = PluginRegistry.load()
    found.add(probe_plugin, Origin("probe", "tests", "1"))
    return found


def process(name: str, **options: Any) -> ThreadPlan:
    return ThreadPlan(name=name, kind="process", options={"restart": FAST, **options})


def native(name: str) -> EnginePlan:
    return EnginePlan(name=name, kind="native")


def probe(name: str, thread: str | None = None, **options: Any) -> EnginePlan:
    return EnginePlan(name=name, kind="probe", thread=thread, options=options)


def hub(name: str, thread: str | None = None) -> EnginePlan:
    """It passes on what it gets, and confirms it when it is confirmed."""
    return EnginePlan(name=name, kind="hub", thread=thread)


def pid(kernel: Kernel, thread: str) -> int:
    keeper = kernel._parts.threads[thread]
    assert isinstance(keeper, ProcessThread)
    return keeper.pid


def until(done: Callable[[], Any], timeout: float = 60) -> Any:
    """Wait for something that no event tells."""
    deadline = time.monotonic() + timeout
    while not (found := done()):
        assert time.monotonic() < deadline, "it has not come about"
        time.sleep(0.005)
    return found


def seen(kernel: Kernel, name: str) -> list[str]:
    return [body for _, _, body in kernel.operate(name, "seen")]


@pytest.mark.slow
def test_messages_pass_and_are_confirmed_end_to_end(kernel_factory: KernelFactory) -> None:
    events = Events()
    kernel = kernel_factory(
        process("p"),
        process("q"),
        native("ask"),
        hub("one", "p"),
        hub("two", "q"),
        native("end"),
        route("ask", "one", confirm=True),
        route("one", "two", confirm=True),  # from one process to another
        route("two", "end", confirm=True),
        registry=registry(),
        on_event=events,
    )
    assert len({os.getpid(), pid(kernel, "p"), pid(kernel, "q")}) == 3
    with kernel.open("ask") as ask, kernel.open("end") as end:
        bodies = [b"%d" % number for number in range(1000)]
        ask.send_many(bodies)
        got: list[bytes] = []
        while len(got) < 1000:
            got += map(bytes, end.receive_many(timeout=60))
        assert got == bodies
        with pytest.raises(TimedOut):
            ask.wait_confirmed(timeout=0)  # the last destination has not confirmed yet
        end.confirm()
        ask.wait_confirmed(timeout=60)
    figures = kernel.statistics()
    written = {row.name: row.written for row in figures.routes}
    assert written == dict.fromkeys(written, 1000)
    assert set(written) == {
        "ask -> one",
        "ask -> one, second leg",
        "one -> two",
        "one -> two, second leg",
        "two -> end",
        "two -> end, second leg",
    }
    counters = {row.name: row.counters for row in figures.engines}
    assert counters["one"]["messages_in"] == counters["two"]["messages_in"] == 1000
    assert [thread.name for thread in figures.threads][:3] == ["poll-1", "p", "q"]
    # From link to engine to link, in each of the processes.
    assert [figures.matrix[i][i] for i in (1, 2)] == [2, 2]
    assert {state.name: state.state for state in kernel.engine_states()}["two"] == "running"


def test_operators_see_through_the_border(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(
        process("p"),
        probe("there", "p"),
        probe("here"),
        native("ask"),
        route("ask", "there"),
        route("there", "here"),
        registry=registry(),
    )
    assert kernel.address_of("there") == f"pid {pid(kernel, 'p')}"
    assert kernel.operate("there", "pid") == pid(kernel, "p")
    with pytest.raises(KernelError, match="engine 'there': KeyError: 'why'"):
        kernel.operate("there", "raise", "why")
    with closing(kernel.tap(TapWanted(source="there"))) as tap:
        until(
            lambda: any(
                row.name.startswith("there -> tap") and row.pipes for row in kernel.statistics().routes
            )
        )
        kernel.operate("there", "send", [["a.b", "one"]])
        rows = until(lambda: tap.read(0.1))
    assert [(row["from"], row["key"], row["body"]) for row in rows] == [("there", "a.b", "one")]
    until(lambda: seen(kernel, "here"))
    assert kernel.operate("here", "seen") == [
        ("there", "a.b", "one")
    ]  # the origin is the engine, not the link
    with kernel.open("ask") as ask:
        ask.send(b"two", key="k")
        until(lambda: seen(kernel, "there"))
    rows = sorted(kernel.inspect("seen").rows, key=lambda row: str(row["engine"]))
    assert rows == [
        {"engine": "here", "key": "a.b", "body": "one"},
        {"engine": "there", "key": "k", "body": "two"},
    ]
    explained = kernel.explain(Question(engine="there", key="x"))
    assert [(row["name"], row["gets"]) for row in explained.rows[0]["next"]] == [("here", True)]


def test_an_engine_that_fails_there_is_named_with_its_reason_and_tried_again(
    kernel_factory: KernelFactory,
) -> None:
    events = Events()
    kernel = kernel_factory(
        process("p"),
        probe("bad", "p", fails="no such place"),
        registry=registry(),
        wait=False,
        on_event=events,
    )
    failed = events.wait("failed", "bad")
    assert failed.detail.startswith("ValueError: no such place (")
    assert "Traceback" in failed.trace
    events.wait("failed", "bad", times=2)
    state = kernel.engine_states()[0]
    assert (state.name, state.last_failure) == ("bad", failed.detail)
    with pytest.raises(KernelError, match="bad is .* ValueError: no such place"):
        kernel.wait_running(0)


def test_subscriptions_replies_dead_letters_and_options_cross_the_border(
    kernel_factory: KernelFactory,
) -> None:
    kernel = kernel_factory(
        process("p"),
        native("feed"),
        native("asker"),
        probe("wants", "p", patterns=["a.#"]),
        probe("strict", "p", refuses=True),
        probe("letters"),
        hub("echo", "p"),
        route("feed", "wants", router="by-key"),
        route("feed", "strict", match=("s.*",), confirm=True, dead_letters="letters"),
        route("asker", "echo"),
        route("echo", "asker", router="reply"),
        registry=registry(),
    )
    with kernel.open("feed") as feed:
        # The pattern has come to the source when the first message with it arrives.
        def subscribed() -> bool:
            feed.send(b"first", key="a.1")
            return bool(seen(kernel, "wants"))

        until(subscribed)
        feed.send(b"not wanted", key="b.1")
        feed.send(b"refused", key="s.1")
        feed.send(b"last", key="a.2")
        until(lambda: "last" in seen(kernel, "wants"))
        assert set(seen(kernel, "wants")) == {"first", "last"}
        until(lambda: seen(kernel, "letters") == ["refused"])
        feed.wait_confirmed(timeout=60)
        changed = kernel.plan.engine("strict")
        assert changed is not None
        engines = [probe("strict", "p") if each.name == "strict" else each for each in kernel.plan.engines]
        process_before = pid(kernel, "p")
        assert kernel.apply(plan_of(*kernel.plan.threads, *engines, *kernel.plan.routes)) == [
            "~ engine strict"
        ]
        feed.send(b"taken", key="s.2")
        until(lambda: "taken" in seen(kernel, "strict"))
        assert pid(kernel, "p") == process_before
    with kernel.open("asker") as asker:
        assert bytes(asker.request(b"question", timeout=60).body) == b"question"


def test_a_full_pipe_there_stops_its_source_and_no_other(kernel_factory: KernelFactory) -> None:
    marks = {"high": 100}
    kernel = kernel_factory(
        process("p"),
        native("one"),
        native("two"),
        native("three"),
        probe("slow", "p", takes=False),
        probe("fast", "p"),
        probe("lossy", "p", takes=False),
        route("one", "slow", marks=marks),
        route("two", "fast", marks=marks),
        route("three", "lossy", marks={**marks, "when_full": "drop-newest"}),
        registry=registry(),
    )
    body = bytes(10_000)
    with kernel.open("one") as one, kernel.open("two") as two, kernel.open("three") as three:
        sent = _send_until_full(one, body)
        # What both pipes hold, and a socket and one read between them.
        assert 200 <= sent < 1000
        for _ in range(1000):
            two.send(b"passes", timeout=60)
            three.send(body, timeout=60)  # never waits
        until(lambda: len(seen(kernel, "fast")) == 1000)
        until(
            lambda: (
                sum(
                    row.dropped + row.depth
                    for row in kernel.statistics().routes
                    if row.name.startswith("three")
                )
                == 1000
            )
        )
        engines = [probe("slow", "p") if each.name == "slow" else each for each in kernel.plan.engines]
        kernel.apply(plan_of(*kernel.plan.threads, *engines, *kernel.plan.routes))
        one.send(b"last", timeout=60)
        until(lambda: len(seen(kernel, "slow")) == sent + 1)


def _send_until_full(channel: Any, body: bytes) -> int:
    for sent in range(100_000):
        try:
            channel.send(body, timeout=0.5)
        except TimedOut:
            return sent
    raise AssertionError("it is never full")


@pytest.mark.slow
def test_closing_writes_out_what_is_on_its_way(kernel_factory: KernelFactory) -> None:
    kernel = Kernel(
        plan_of(
            process("p"),
            process("q"),
            native("ask"),
            hub("one", "p"),
            hub("two", "q"),
            EnginePlan(name="end", kind="hub"),
            route("ask", "one"),
            route("one", "two"),
            route("two", "end"),
        ),
        registry(),
    )
    with kernel:
        kernel.wait_running(60)
        with kernel.open("ask") as ask:
            ask.send_many([bytes(100)] * 20_000)
    # The figures of this process remain after its end.
    assert kernel._dispatcher.past.of_route("two -> end, second leg")["written"] == 20_000


def test_what_is_not_of_the_process_is_refused_with_a_reason(kernel_factory: KernelFactory) -> None:
    with pytest.raises(PlanError, match=r"\[engines.app\] is opened by application code"):
        kernel_factory(process("p"), EnginePlan(name="app", kind="native", thread="p"))
    kernel = kernel_factory(process("p"), registry=registry())
    with pytest.raises(KernelError, match="made by code of this process, and thread 'p' is another process"):
        kernel.host("made", probe_plugin.Probe, thread="p")


@pytest.mark.parametrize("frozen, executable", [(True, "/opt/app"), (False, "")])
def test_a_program_that_is_no_interpreter_is_not_started(
    kernel_factory: KernelFactory, monkeypatch: pytest.MonkeyPatch, frozen: bool, executable: str
) -> None:
    """A frozen one would start itself, and that one itself again."""
    kernel_factory(process("p"))
    monkeypatch.setattr(sys, "frozen", frozen, raising=False)
    monkeypatch.setattr(sys, "executable", executable)
    monkeypatch.setattr(spawn, "_python_exe", os.fsencode(executable))
    with pytest.raises(KernelError, match=r"multiprocessing\.set_executable"):
        kernel_factory(process("p"))
    # What the program names is started.
    monkeypatch.setattr(spawn, "_python_exe", b"/usr/bin/python")
    kernel_factory(process("p"))


def links(kernel: Kernel) -> list[Any]:
    """Return the link ends of the main process."""
    return [row for row in kernel.statistics().engines if row.name.startswith("link ")]


@lends
@pytest.mark.slow
def test_lone_messages_cross_the_border_without_the_poll_thread(kernel_factory: KernelFactory) -> None:
    events = Events()
    kernel = kernel_factory(
        ThreadPlan(name="one"),
        ThreadPlan(name="two"),
        process("p"),
        native("ask"),
        probe("echo", "p", answers=True),
        route("ask", "echo"),
        route("echo", "ask"),
        registry=registry(),
        on_event=events,
    )
    with kernel.open("ask") as ask:

        def exchange(what: str) -> None:
            """Until the channel reads and writes the sockets of both links; each body is another one."""
            ask._lone_from = 8  # as at the beginning: a channel that has given leases back asks less often
            for number in range(40_000):
                body = f"{what} {number}".encode()
                ask.send(body)
                assert ask.receive(timeout=60) == body
                lease = ask.leased
                if lease is not None and lease.active and lease.received > 8:
                    return
            raise AssertionError("no lease")

        exchange("before")
        lease = ask.leased
        assert lease is not None
        os.kill(pid(kernel, "p"), signal.SIGKILL)
        events.wait("failed", "echo")
        events.wait("running", "echo")
        until(lambda: not lease.active)
        # Sent to the process that was killed, a message would be lost: no route here confirms.
        until(lambda: [row.counters["reconnects"] for row in links(kernel)] == [1, 1])
        until(lambda: [row.counters["connections"] for row in links(kernel)] == [1, 1])
        exchange("after")
    written = {row.name: row.written for row in kernel.statistics().routes}
    assert written["ask -> echo"] == written["echo -> ask, second leg"]


class TestChanges:
    """A running kernel gets and loses processes."""

    def test_a_process_is_added_with_an_engine_that_has_routes_already(
        self, kernel_factory: KernelFactory
    ) -> None:
        kernel = kernel_factory(native("ask"), probe("end"), route("ask", "end"), registry=registry())
        with kernel.open("ask") as ask:
            ask.send(b"one")
            until(lambda: seen(kernel, "end") == ["one"])
            there = plan_of(process("p"), native("ask"), probe("end", "p"), route("ask", "end"))
            assert kernel.apply(there) == [
                "- route ask -> end",
                "- engine end",
                "+ thread p",
                "+ engine end",
                "+ route ask -> end",
            ]
            kernel.wait_running(60)
            gone = pid(kernel, "p")
            ask.send(b"two")
            until(lambda: seen(kernel, "end") == ["two"])
            assert kernel.operate("end", "pid") == gone
            kernel.apply(plan_of(native("ask"), probe("end"), route("ask", "end")))
            kernel.wait_running(60)
            ask.send(b"three")
            until(lambda: seen(kernel, "end") == ["three"])
        assert [thread.name for thread in kernel.plan.threads] == ["poll-1"]
        assert not Path(f"/proc/{gone}").exists()

    def test_an_engine_is_added_and_removed_and_its_routes_follow(
        self, kernel_factory: KernelFactory
    ) -> None:
        kernel = kernel_factory(process("p"), native("ask"), route("ask", "end"), registry=registry())
        kernel.add_engine(probe("end", "p"))
        kernel.wait_running(60)
        with kernel.open("ask") as ask:
            ask.send(b"one")
            until(lambda: seen(kernel, "end") == ["one"])
            gone = threading.Event()
            kernel.remove_engine("end", on_gone=gone.set)
            assert gone.wait(60)
            kernel.add_engine(probe("end"))
            kernel.wait_running(60)
            ask.send(b"two")
            until(lambda: seen(kernel, "end") == ["two"])
        assert kernel.operate("end", "pid") == os.getpid()


class TestEnds:
    """Processes end, by themselves or not."""

    @pytest.mark.slow
    def test_a_killed_process_comes_back_and_nothing_confirmed_is_lost(
        self, kernel_factory: KernelFactory
    ) -> None:
        _kill_at_random(kernel_factory, Random(16), kills=6, total=20_000)

    def test_one_that_never_comes_up_is_ended_and_tried_again(
        self, kernel_factory: KernelFactory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("kernel.threads.process_thread.MODULE", "tests.system.sleeper")
        events = Events()
        kernel_factory(
            process("p", start_timeout=0.05),
            probe("end", "p"),
            registry=registry(),
            wait=False,
            on_event=events,
        )
        assert "did not come up within 0.05 s" in events.wait("failed", "end").detail
        events.wait("failed", "end", times=2)

    def test_one_that_is_killed_while_it_starts_is_started_again(self, kernel_factory: KernelFactory) -> None:
        events = Events()
        kernel = kernel_factory(
            process("p"), probe("end", "p"), registry=registry(), wait=False, on_event=events
        )
        os.kill(until(lambda: pid(kernel, "p")), signal.SIGKILL)
        assert "was ended by SIGKILL" in events.wait("failed", "end").detail
        events.wait("running", "end")

    def test_signals_of_a_terminal_do_not_end_it(self, kernel_factory: KernelFactory) -> None:
        kernel = kernel_factory(process("p"), probe("end", "p"), registry=registry())
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(pid(kernel, "p"), number)
        assert kernel.operate("end", "pid") == pid(kernel, "p")

    @linux_only
    @pytest.mark.slow
    def test_it_ends_with_the_process_that_has_started_it(self, tmp_path: Path) -> None:
        file = tmp_path / "plan.toml"
        file.write_text('[threads.p]\nkind = "process"\n[engines.end]\nkind = "hub"\nthread = "p"\n')
        reading, writing = os.pipe()
        main = subprocess.Popen(
            [sys.executable, "-m", "kernel", "run", str(file), "--no-control", "--ready-fd", str(writing)],
            pass_fds=[writing],
            stdout=subprocess.DEVNULL,
        )
        os.close(writing)
        with os.fdopen(reading) as ready:
            assert ready.read() == "ready\n"
        # The keeper, a thread of its own, is the parent.
        tasks = Path(f"/proc/{main.pid}/task").iterdir()
        children = [child for task in tasks for child in (task / "children").read_text().split()]
        assert len(children) == 1
        watched = os.pidfd_open(int(children[0]))
        main.kill()
        main.wait()
        _wait_for_end(watched)


def _wait_for_end(watched: int) -> None:
    import select

    poll = select.poll()
    poll.register(watched, select.POLLIN)
    assert poll.poll(60_000), "the process has not ended"
    os.close(watched)


def _descriptors(kernel: Kernel) -> dict[str, int]:
    """How many descriptors each process has open."""
    pids = {"main": os.getpid(), **{name: pid(kernel, name) for name in "pq"}}
    return {name: len(os.listdir(f"/proc/{number}/fd")) for name, number in pids.items()}


def _children() -> set[str]:
    """The processes that this one has started, and that have not been waited for."""
    while True:
        tasks = list(Path("/proc/self/task").iterdir())
        # A thread that ends meanwhile hands its children to another one, which may have been read before.
        with suppress(FileNotFoundError, ProcessLookupError):
            return {child for task in tasks for child in (task / "children").read_text().split()}


def _kill_at_random(kernel_factory: KernelFactory, random: Random, kills: int, total: int) -> None:
    """Kill one of two processes after a number of messages.

    Every message arrives at the end all the same, and neither processes nor descriptors are left behind.
    """
    # Servers that other tests share.
    others = _children()
    kernel = kernel_factory(
        process("p"),
        process("q"),
        native("ask"),
        hub("one", "p"),
        hub("two", "q"),
        native("end"),
        native("other"),
        probe("undisturbed"),
        route("ask", "one", confirm=True),
        route("one", "two", confirm=True),
        route("two", "end", confirm=True),
        route("other", "undisturbed"),
        registry=registry(),
    )
    before: dict[str, int] = {}
    killed: dict[str, int] = {}
    # The reader's channel has descriptors as well.
    opened, over = threading.Event(), threading.Event()
    arrived: set[int] = set()
    wrong: list[BaseException] = []

    def kill() -> bool:
        """Kill one, whether it is up or starts; False if it has not been started again yet."""
        victim = random.choice("pq")
        found = pid(kernel, victim)
        # Not all numbers so far: the system gives them again.
        if found in (0, killed.get(victim)):
            return False
        killed[victim] = found
        os.kill(found, signal.SIGKILL)
        return True

    def read() -> None:
        try:
            with kernel.open("end") as end:
                opened.set()
                while len(arrived) < total:
                    arrived.update(map(int, end.receive_many(timeout=60)))
                    end.confirm()
                assert over.wait(600)
        except BaseException as error:
            wrong.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    when = sorted(random.sample(range(0, total, 100), kills))
    with kernel.open("ask") as ask, kernel.open("other") as other:
        assert opened.wait(60)
        # Not before a message has gone all the way: the processes connect to each other meanwhile.
        ask.send(b"0")
        ask.wait_confirmed(timeout=60)
        before = _descriptors(kernel)
        for first in range(0, total, 100):
            ask.send_many([b"%d" % number for number in range(first, first + 100)], timeout=60)
            if first in when:
                until(kill)
                other.send(b"%d" % first)
        ask.wait_confirmed(timeout=60)
        # Sockets that close in good order take a few seconds.
        with suppress(AssertionError):
            until(lambda: _descriptors(kernel) == before, timeout=30)
        assert _descriptors(kernel) == before
        over.set()
    reader.join()
    assert not wrong
    assert arrived == set(range(total))
    assert seen(kernel, "undisturbed") == [str(first) for first in when]
    kernel.close()
    assert kernel.join(60)
    assert _children() <= others


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_killed_a_thousand_times(kernel_factory: KernelFactory) -> None:
    kills = int(os.environ.get("KERNEL_KILLS", "15"))
    random = Random(int(os.environ.get("KERNEL_SEED", "1000")))
    _kill_at_random(kernel_factory, random, kills=kills, total=kills * 2000)


def test_what_is_logged_there_is_logged_here(
    kernel_factory: KernelFactory, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        kernel = kernel_factory(process("p"), probe("end", "p"), registry=registry())
        kernel.operate("end", "log", "a line")
        until(lambda: "a line" in caplog.messages)
