"""A caller thread: what ``kernel.contracts.api`` promises to APIs."""

from __future__ import annotations

import gc
import math
import select
import threading
import weakref
from collections.abc import Iterator

import pytest

from kernel.contracts.message import batch_of
from kernel.dispatcher.dispatcher import Dispatcher
from kernel.dispatcher.route import RouteSpec
from kernel.pipes.mailbox import Mailbox
from kernel.pipes.water_marks import WaterMarks
from kernel.routing.fan_out import FanOut
from kernel.testing.leaks import Leaks
from kernel.threads.caller_thread import CallerThread


class Owner:
    def __init__(self) -> None:
        self.heard: list[str] = []

    def on_output(self) -> None:
        self.heard.append("output")

    def on_writable(self) -> None:
        self.heard.append("writable")

    def on_confirmed(self, _: int) -> None:
        self.heard.append("confirmed")


@pytest.fixture
def dispatcher() -> Iterator[Dispatcher]:
    dispatcher = Dispatcher()
    dispatcher.add_route(
        RouteSpec(
            name="a -> b",
            source="a",
            targets=("b",),
            make_router=FanOut,
            marks=WaterMarks(high=2, stall_timeout=math.inf),
        )
    )
    yield dispatcher
    dispatcher.dispose()


def test_it_waits_for_messages_of_another_thread(dispatcher: Dispatcher) -> None:
    reader = CallerThread(dispatcher, "b", owner := Owner())

    def write() -> None:
        writer = CallerThread(dispatcher, "a", Owner())
        writer.port.send([batch_of([b"x"])])
        writer.close()

    writing = threading.Thread(target=write)
    writing.start()
    assert reader.wait_until(reader.port.has_input, 60)
    assert "output" in owner.heard
    writing.join()


def test_it_waits_for_room_and_its_owner_hears_of_it(dispatcher: Dispatcher) -> None:
    writer = CallerThread(dispatcher, "a", owner := Owner())
    assert not writer.port.has_room_for(batch_of([b"x"])), "there is a route, but nobody at its end"
    reader = CallerThread(dispatcher, "b", Owner())
    assert writer.wait_until(lambda: writer.port.has_room_for(batch_of([b"x"])), 60)
    assert not writer.port.send([batch_of([b"1", b"2"])])
    owner.heard.clear()
    assert not writer.wait_until(lambda: "writable" in owner.heard, 0)
    reader.process()
    reader.port.take(2)
    assert writer.wait_until(lambda: "writable" in owner.heard, 60)


def test_waiting_ends_in_time_and_done_is_asked_at_least_once(dispatcher: Dispatcher) -> None:
    caller = CallerThread(dispatcher, "b", Owner())
    assert caller.wait_until(lambda: True, 0)
    assert not caller.wait_until(lambda: False, 0)
    assert caller.until_stall_timeout() == math.inf


def test_its_descriptor_is_readable_from_a_post_to_clear_if_it_was_armed(dispatcher: Dispatcher) -> None:
    def readable() -> bool:
        return bool(select.select([caller.fileno()], [], [], 0)[0])

    caller = CallerThread(dispatcher, "b", Owner())
    woken: list[int] = []
    caller.on_wake(lambda: woken.append(1))
    caller.post(lambda: None)
    assert not readable(), "nobody waits"
    assert not caller.arm(), "there is something already"
    caller.disarm()
    assert caller.process()
    assert caller.arm()
    caller.post(lambda: None)
    assert readable()
    assert woken == [1]
    assert caller.sleep(0)
    assert not readable()


def test_who_is_woken_by_a_call_has_no_descriptor_written(dispatcher: Dispatcher) -> None:
    caller = CallerThread(dispatcher, "b", Owner())
    woken: list[int] = []
    caller.wake_by(lambda: woken.append(1))
    assert caller.arm()
    caller.post(lambda: None)
    caller.post(lambda: None)
    assert woken == [1], "once until it is armed again"
    assert not select.select([caller.fileno()], [], [], 0)[0]
    descriptor = caller.fileno()
    caller.close()
    # The next one in its place is woken by the descriptor.
    other = CallerThread(dispatcher, "b", Owner())
    assert other.fileno() == descriptor
    other.arm()
    other.post(lambda: None)
    assert select.select([other.fileno()], [], [], 0)[0]
    assert woken == [1]


def test_its_place_is_used_again_and_nothing_is_left(dispatcher: Dispatcher) -> None:
    CallerThread(dispatcher, "b", Owner()).close()
    leaks = Leaks()
    for _ in range(3):
        caller = CallerThread(dispatcher, "b", Owner())
        caller.close()
        caller.close()  # harmless
    assert leaks.found() == []
    assert len(dispatcher.threads) == 1


def test_who_has_left_takes_nothing_of_the_next_one_in_its_place(dispatcher: Dispatcher) -> None:
    left = CallerThread(dispatcher, "b", Owner())
    descriptor = left.fileno()
    left.close()
    caller = CallerThread(dispatcher, "b", Owner())
    assert caller.fileno() == descriptor
    heard: list[str] = []

    def use() -> None:
        left.process()
        assert not left.arm(), "there may be something: who looks finds that it has left"
        left.disarm()
        left.clear()
        assert left.sleep(0)
        left.on_wake(lambda: heard.append("on_wake"))
        left.wake_by(lambda: heard.append("wake_by"))
        left.wake()
        left.close()
        assert left.fileno() == -1

    assert caller.arm()
    use()
    caller.post(lambda: heard.append("posted"))
    assert select.select([descriptor], [], [], 0)[0], "it was still armed"
    use()
    assert heard == []
    assert caller.sleep(0), "the ring is still there"
    assert caller.process()
    assert heard == ["posted"]


def test_who_is_closed_in_the_middle_of_a_call_goes_on_with_what_was_its_own(dispatcher: Dispatcher) -> None:
    """As when another thread closes it, and opens the next one."""
    left = CallerThread(dispatcher, "b", Owner())
    heard: list[str] = []
    opened: list[CallerThread] = []

    def close() -> None:
        left.close()
        opened.append(CallerThread(dispatcher, "b", Owner()))
        opened[0].post(lambda: heard.append("the next one's"))

    left.post(close)
    left.post(lambda: heard.append("its own"))
    while left.process():
        pass
    assert heard == ["its own"]
    assert opened[0].process()
    assert heard == ["its own", "the next one's"]


def test_a_thread_of_the_kernel_keeps_nothing_of_those_that_have_left(dispatcher: Dispatcher) -> None:
    class Call:
        def __call__(self) -> None:
            """Do nothing."""

    engine = Mailbox()
    port = dispatcher.open_port(dispatcher.add_thread("engine", engine), "a", "a", Owner())
    caller, call = CallerThread(dispatcher, "b", Owner()), Call()
    assert engine.process(), "it writes to the pipe now"
    caller.close()
    # It may be posted by one who does not know yet.
    caller.post(call)
    kept = weakref.ref(call)
    del caller, call
    CallerThread(dispatcher, "b", Owner()).close()
    assert engine.process(), "it knows that both have left"
    gc.collect()
    assert kept() is None
    port.close()
