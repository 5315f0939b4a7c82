"""Engines, connections and routes that come and go while messages flow."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from kernel.contracts.errors import KernelError, PlanError, TimedOut
from kernel.contracts.kinds import ThreadKind
from kernel.contracts.message import Envelope, Message
from kernel.contracts.thread import EngineThread, ThreadSetup
from kernel.plugins import Installed, Origin, PluginRegistry
from kernel.testing.fixtures import KernelFactory, plan_of
from kernel.threads.options import PollThreadOptions
from kernel.threads.poll_thread import PollThread
from kernel.topology.plan import EnginePlan, Plan, ThreadPlan
from tests.events import Events
from tests.ports import free_port
from tests.system.conftest import dialler, held_up, listener, route


def receive_until(channel: Any, last: bytes) -> list[bytes]:
    got: list[bytes] = []
    while not got or got[-1] != last:
        got += map(bytes, channel.receive_many(timeout=60))
    return got


def test_a_listener_that_comes_back_is_found_again_and_nothing_is_lost(kernel_factory: KernelFactory) -> None:
    address = f"backend+tcp://127.0.0.1:{free_port()}"
    receiving = kernel_factory(listener(address=address), route("net", "app", confirm=True))
    events = Events()
    sending = kernel_factory(dialler(address), route("app", "net", confirm=True), on_event=events)
    events.wait("connected")
    a, b = sending.open("app"), receiving.open("app")
    total = 0
    got: set[bytes] = set()
    for attempt in range(3):
        for _ in range(200):
            a.send(b"%d" % total, timeout=60)
            total += 1
        if attempt < 2:
            receiving.remove_engine("net")
            events.wait("disconnected", times=attempt + 1)
            a.send_many([b"%d" % number for number in range(total, total + 100)], timeout=60)
            total += 100
            receiving.add_engine(listener(address=address))
            events.wait("connected", times=attempt + 2)
    expected = {b"%d" % number for number in range(total)}
    while got < expected:
        got.update(map(bytes, b.receive_many(timeout=60)))
    with pytest.raises(TimedOut):
        b.receive(0)
    a.wait_confirmed(60)


def test_messages_wait_for_a_dialler_that_is_not_connected_yet(kernel_factory: KernelFactory) -> None:
    address = f"backend+tcp://127.0.0.1:{free_port()}"
    receiving = kernel_factory(route("net", "app"))
    events = Events()
    sending = kernel_factory(dialler(address), route("app", "net"), on_event=events)
    events.wait("retrying")
    sending.open("app").send_many([b"1", b"2"])
    receiving.add_engine(listener(address=address))
    assert receive_until(receiving.open("app"), b"2") == [b"1", b"2"]


def test_attempts_are_spaced_and_visible(kernel_factory: KernelFactory) -> None:
    events = Events()
    plan = dialler("backend+tcp://127.0.0.1:1")
    plan.options["reconnect"] = {"first": 0.01, "most": 0.04, "jitter": 0}
    kernel = kernel_factory(plan, route("app", "net"), on_event=events)
    events.wait("retrying", times=5)
    waits = [event.next_try for event in events.seen if event.what == "retrying"][:5]
    assert waits == [0.01, 0.02, 0.04, 0.04, 0.04]
    (engine,) = kernel.statistics().engines
    assert engine.counters["attempts"] >= 5
    assert "refused" in events.wait("retrying").detail


@pytest.mark.slow
def test_routes_that_stay_lose_nothing_while_others_change(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(listener(), listener("second"), route("app", "stays"))
    enough = threading.Event()
    sent: list[bytes] = []

    def write() -> None:
        channel = kernel.open("app")
        while not enough.is_set():
            body = b"%d" % len(sent)
            channel.send(body, timeout=60)
            sent.append(body)

    stays = kernel.open("stays")
    writer = threading.Thread(target=write)
    writer.start()
    got: list[bytes] = []
    change = route("app", "net", marks={"when_full": "drop-newest"})
    for number in range(30):
        kernel.add_route(change)
        got += map(bytes, stays.receive_many(timeout=60))
        if number % 3 == 0:
            kernel.remove_engine("net")
            kernel.add_engine(listener())
        got += map(bytes, stays.receive_many(timeout=60))
        kernel.remove_route(change)
    enough.set()
    while writer.is_alive() or len(got) < len(sent):
        try:
            got += map(bytes, stays.receive_many(timeout=0.05))
        except TimedOut:
            pass
    writer.join()
    assert got == sent


@pytest.mark.parametrize("transport", ["tcp", "inproc"])
def test_a_route_that_confirms_may_come_after_one_that_does_not(
    kernel_factory: KernelFactory, transport: str
) -> None:
    if transport == "tcp":
        receiving = kernel_factory(listener(), route("net", "plain"))
        sending = kernel_factory(
            dialler(f"backend+tcp://{receiving.address_of('net')}"), route("app", "net", confirm=True)
        )
        plain = receiving.open("plain")
    else:
        receiving = sending = kernel_factory(
            listener(address="backend+inproc://x"),
            dialler("backend+inproc://x", name="out"),
            route("net", "plain"),
            route("app", "out", confirm=True),
        )
        plain = receiving.open("plain")
    app = sending.open("app")
    app.send_many([b"%d" % number for number in range(10)], timeout=60)
    assert len(receive_until(plain, b"9")) == 10
    app.wait_confirmed(60)
    receiving.add_engine(EnginePlan(name="sink", kind="native"))
    sink = receiving.open("sink")
    receiving.add_route(route("net", "sink", confirm=True))
    receiving.inspect("connections", 60)  # its thread answers when it has heard of the route
    app.send_many([b"a", b"b"], timeout=60)
    receive_until(plain, b"b")
    assert receive_until(sink, b"b") == [b"a", b"b"]
    with pytest.raises(TimedOut):
        app.wait_confirmed(0.05)
    with pytest.raises(TimedOut):
        sink.receive(0)
    app.wait_confirmed(60)


@pytest.mark.parametrize("transport", ["tcp", "inproc"])
def test_what_comes_when_the_only_route_that_confirms_has_gone_is_confirmed(
    kernel_factory: KernelFactory, transport: str
) -> None:
    confirming = route("net", "sink", confirm=True)
    if transport == "tcp":
        receiving = kernel_factory(listener(), route("net", "plain"), confirming)
        sending = kernel_factory(
            dialler(f"backend+tcp://{receiving.address_of('net')}"), route("app", "net", confirm=True)
        )
    else:
        receiving = sending = kernel_factory(
            listener(address="backend+inproc://x"),
            dialler("backend+inproc://x", name="out"),
            route("net", "plain"),
            confirming,
            route("app", "out", confirm=True),
        )
    plain = receiving.open("plain", api="native")
    app = sending.open("app")
    with receiving.open("sink", api="native") as sink:
        app.send(b"1", timeout=60)
        assert sink.receive(60) == b"1"
        sink.confirm()
        app.wait_confirmed(60)
        receiving.remove_route(confirming)
    app.send(b"2", timeout=60)
    receive_until(plain, b"2")
    app.wait_confirmed(60)


@pytest.mark.parametrize("transport", ["tcp", "inproc"])
def test_old_confirmations_are_not_taken_for_those_of_a_source_that_came_later(
    kernel_factory: KernelFactory, transport: str
) -> None:
    parts = listener(), EnginePlan(name="app", kind="native", options={"auto_confirm": False})
    way_out = route("careful", "out", confirm=True), route("careless", "out")
    if transport == "tcp":
        receiving = kernel_factory(*parts, route("net", "app", confirm=True))
        address = f"backend+tcp://{receiving.address_of('net')}"
        sending = kernel_factory(dialler(address, name="out"), *way_out)
    else:
        receiving = sending = kernel_factory(
            listener(address="backend+inproc://x"),
            parts[1],
            route("net", "app", confirm=True),
            dialler("backend+inproc://x", name="out"),
            *way_out,
        )
    app = receiving.open("app")
    with sending.open("careful") as first:
        first.send(b"1", timeout=60)
        assert app.receive(60) == b"1"
        app.confirm()
        first.wait_confirmed(60)
        careless = sending.open("careless")
        careless.send_many([b"2", b"3"], timeout=60)
        assert [app.receive(60), app.receive(60)] == [b"2", b"3"]
    while any(pipe.name.startswith("careful") for pipe in sending.statistics().pipes):
        time.sleep(0.001)
    with sending.open("careful") as second:
        second.send_many([b"4", b"5"], timeout=60)
        while sum(pipe.written for pipe in receiving.statistics().pipes if pipe.name.endswith("> app")) < 5:
            time.sleep(0.001)
        app.confirm()
        with pytest.raises(TimedOut):
            second.wait_confirmed(0.1)
        assert [app.receive(60), app.receive(60)] == [b"4", b"5"]
        app.confirm()
        second.wait_confirmed(60)


def test_waiting_for_a_kernel_leaves_nothing_behind(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(listener())
    before = list(kernel.events)
    kernel.wait_running()
    assert kernel.events == before


def test_an_engine_removed_as_soon_as_it_is_added_is_gone(kernel_factory: KernelFactory) -> None:
    events = Events()
    kernel = kernel_factory(on_event=events)
    with held_up(kernel):
        for number in range(20):
            kernel.add_engine(listener(f"brief{number}"))
            kernel.remove_engine(f"brief{number}")
    kernel.add_engine(listener("last"))
    events.wait("running", "last")
    assert [state.name for state in kernel.engine_states()] == ["last"]
    assert not any(port.ports for port in kernel.statistics().ports)
    assert events.count("failed") == 0
    running = {event.engine for event in events.seen if event.what == "running"}
    assert running == {"last"}, "an engine that was removed came to life"


def test_an_engine_may_be_replaced_by_one_at_the_same_address(kernel_factory: KernelFactory) -> None:
    events = Events()
    address = f"backend+tcp://127.0.0.1:{free_port()}"
    kernel = kernel_factory(listener(address=address), on_event=events)
    for _ in range(10):
        kernel.remove_engine("net")
        kernel.add_engine(listener(address=address))
        kernel.wait_running()
    assert events.count("failed") == 0, "the new one began before the old one had let go of the address"


def test_an_engine_of_the_same_name_is_refused(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(listener())
    with pytest.raises(KernelError, match="already"):
        kernel.add_engine(listener())


def test_applying_a_plan_touches_only_what_changes(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(
        ThreadPlan(name="one"), ThreadPlan(name="two"), listener("kept"), route("kept", "app")
    )
    address = kernel.address_of("kept")
    plan = kernel.plan
    assert kernel.apply(plan) == []
    more = plan_of(*plan.threads, *plan.engines, *plan.routes, listener("new"), route("new", "app"))
    assert sorted(kernel.apply(more)) == ["+ engine new", "+ route new -> app"]
    kernel.wait_running()
    assert sorted(kernel.apply(plan)) == ["- engine new", "- route new -> app"]
    fewer = plan_of(plan.threads[0], *plan.engines, *plan.routes)
    kernel.apply(fewer)
    kernel.wait_running()
    assert kernel.plan.threads == fewer.threads
    assert kernel.address_of("kept") == address


def test_what_a_running_engine_takes_reaches_it_without_a_restart(kernel_factory: KernelFactory) -> None:
    def broker(*users: str) -> EnginePlan:
        options = {"address": "127.0.0.1:0", "users": {name: {"password": "secret"} for name in users}}
        return EnginePlan(name="broker", kind="amqp", options=options)

    kernel = kernel_factory(broker("first"))
    address = kernel.address_of("broker")
    kernel.apply(plan_of(broker("first", "second")))
    assert kernel.address_of("broker") == address  # a broker that starts again gets another port
    rows = kernel.inspect("accounts").rows
    assert [row["name"] for row in rows] == ["first", "second"], rows


def test_of_routes_with_one_label_the_right_one_is_replaced(kernel_factory: KernelFactory) -> None:
    def plan(*exchanges: str) -> Plan:
        return plan_of(*(route("a", "b", exchange=exchange) for exchange in exchanges))

    kernel = kernel_factory(*plan("x", "y").routes)
    a, b = kernel.open("a"), kernel.open("b")
    kernel.apply(plan("z", "y"))
    for exchange in ("x", "y", "z"):
        a.send_message(Message(exchange.encode(), Envelope(exchange=exchange)), timeout=60)
    assert receive_until(b, b"z") == [b"y", b"z"]


def test_engines_without_a_thread_of_their_own_survive_the_one_they_live_in(
    kernel_factory: KernelFactory,
) -> None:
    parts = listener("first"), listener("second"), route("first", "app"), route("second", "app")
    kernel = kernel_factory(ThreadPlan(name="one"), ThreadPlan(name="two"), *parts)
    threads: tuple[tuple[ThreadPlan, ...], ...] = (
        (ThreadPlan(name="one"),),
        (ThreadPlan(name="one", options={"spin": 0.001}),),
        (ThreadPlan(name="two"),),
    )
    for changed in threads:
        kernel.apply(plan_of(*changed, *parts))
        kernel.wait_running()
        assert {state.name for state in kernel.engine_states()} == {"first", "second"}
        app = kernel.open("app")
        for name in ("first", "second"):
            with kernel.open("line", "direct", address=f"backend+tcp://{kernel.address_of(name)}") as line:
                line.send(name.encode())
                assert app.receive(timeout=60) == name.encode()
        app.close()


@pytest.mark.slow
def test_a_thread_that_is_added_while_the_kernel_closes_is_stopped_too(kernel_factory: KernelFactory) -> None:
    making, go_on = threading.Event(), threading.Event()
    made: list[PollThread] = []

    def make(setup: ThreadSetup) -> PollThread:
        making.set()
        assert go_on.wait(60)
        made.append(PollThread(setup.name, setup.dispatcher, setup.report))
        return made[0]

    kernel = kernel_factory(registry=with_thread_kind("slow", make))
    adding = threading.Thread(target=kernel.add_thread, args=(ThreadPlan(name="late", kind="slow"),))
    adding.start()
    assert making.wait(60)
    closing = threading.Thread(target=kernel.close, kwargs={"linger": 0})
    closing.start()
    closing.join(0.2)  # it waits for the thread that is being added
    go_on.set()
    adding.join(60)
    closing.join(60)
    try:
        assert kernel.join(10)
    finally:
        made[0].stop()


def test_a_thread_that_the_system_does_not_give_is_in_no_list(kernel_factory: KernelFactory) -> None:
    class Refused(PollThread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    kinds = with_thread_kind("refused", lambda setup: Refused(setup.name, setup.dispatcher, setup.report))
    kernel = kernel_factory(registry=kinds)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        kernel.add_thread(ThreadPlan(name="late", kind="refused"))
    assert [thread.name for thread in kernel.plan.threads] == ["poll-1"]
    # In the thread with the fewest engines, which must not be the one that does not run.
    for name in ("one", "two"):
        kernel.add_engine(listener(name))
    kernel.wait_running(60)
    kernel.add_thread(ThreadPlan(name="late"))


def test_a_thread_of_the_same_name_is_refused(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(ThreadPlan(name="one"))
    with pytest.raises(KernelError, match="there is a thread 'one' already"):
        kernel.add_thread(ThreadPlan(name="one"))


def with_thread_kind(name: str, make: Callable[[ThreadSetup], EngineThread]) -> PluginRegistry:
    registry = PluginRegistry.load()
    kind = ThreadKind(name=name, summary="for a test", options=PollThreadOptions, create=make)
    registry.thread_kinds[name] = Installed(kind, Origin(name, "test", "1"))
    return registry


def test_a_listener_of_events_that_raises_takes_nothing_down(kernel_factory: KernelFactory) -> None:
    def raises(_: object) -> None:
        raise ZeroDivisionError

    events = Events()
    kernel = kernel_factory(on_event=raises, wait=False)
    kernel.events.append(events)
    kernel.add_engine(listener())
    kernel.wait_running()
    assert events.count("failed") == 0


def test_a_first_thread_in_the_file_leaves_the_engines_where_they_are(kernel_factory: KernelFactory) -> None:
    """Their thread was the one that a plan without threads gets.  Without it they would be started anew."""
    one, two = listener("one"), listener("two")
    kernel = kernel_factory(one)
    (before,) = kernel.statistics().engines
    extra = ThreadPlan(name="extra")
    changes = kernel.apply(plan_of(extra, one, msgspec.structs.replace(two, thread="extra")))
    assert changes == ["+ thread extra", "+ engine two"]
    kernel.wait_running(60)
    assert {thread.name for thread in kernel.plan.threads} == {"poll-1", "extra"}
    after = next(engine for engine in kernel.statistics().engines if engine.name == "one")
    assert after.address == before.address, "its port was free for it to choose, and it has not chosen again"
    assert kernel.apply(plan_of(extra, one)) == ["- engine two"]
    named = ThreadPlan(name="poll-1", options={"spin": 0.00006})
    assert "- thread poll-1" in kernel.apply(plan_of(named, one)), (
        "a file may name it, and then it is the file's"
    )


def test_an_option_that_a_part_does_not_have_is_named_with_the_part_and_its_options(
    kernel_factory: KernelFactory,
) -> None:
    kernel = kernel_factory()
    with pytest.raises(
        PlanError, match=r"engine 'net': .*`adress`; the options of 'stream' are: address, auth"
    ):
        kernel.add_engine(
            EnginePlan(name="net", kind="stream", options={"adress": "backend+tcp://127.0.0.1:0"})
        )
    with pytest.raises(PlanError, match=r"thread 'more': .*`spinn`; the options of 'poll' are: cpus, spin"):
        kernel.add_thread(ThreadPlan(name="more", options={"spinn": 1}))
    assert [state.name for state in kernel.engine_states()] == []
