"""The native API for trio tasks."""

from __future__ import annotations

import gc
import threading
from collections.abc import Awaitable, Callable

import msgspec
import pytest
import trio
import trio.testing

from kernel.contracts.errors import KernelClosed
from kernel.pipes.water_marks import WaterMarks
from kernel.topology.plan import EnginePlan, Plan, RoutePlan, ThreadPlan
from kernel.topology.system import Kernel
from plugins.apis.native.trio_channel import TrioChannel

PLAN = Plan(
    threads=(ThreadPlan(name="here", kind="guest"),),
    engines=(EnginePlan(name="out", kind="trio"), EnginePlan(name="in", kind="trio")),
    routes=(RoutePlan(source="out", targets=("in",)),),
)


def test_a_loop_that_is_left_early_leaves_nothing_to_be_finalized() -> None:
    """An abandoned asynchronous generator makes trio warn, and warnings are errors here."""

    async def main() -> list[bytes]:
        async with Kernel(PLAN) as kernel, kernel.open("out") as out, kernel.open("in") as incoming:
            await out.send_many([b"one", b"two"])
            got: list[bytes] = []
            with trio.fail_after(60):
                async for body in incoming:
                    got.append(bytes(body))
                    break
                async for body in incoming:  # goes on where the first has stopped
                    got.append(bytes(body))
                    break
            return got

    assert trio.run(main) == [b"one", b"two"]
    gc.collect()


def test_the_loop_ends_when_the_kernel_is_closed() -> None:
    async def main() -> None:
        async with Kernel(PLAN) as kernel, kernel.open("in") as incoming:
            kernel.close()
            with trio.fail_after(60):
                async for _ in incoming:
                    pass

    trio.run(main)


def test_a_send_by_key_goes_on_as_soon_as_there_is_room_for_it() -> None:
    """Another full destination is none of its business."""
    engines = tuple(EnginePlan(name=name, kind="trio") for name in ("out", "full", "busy"))
    marks = WaterMarks(high=4)
    plan = Plan(
        threads=PLAN.threads,
        engines=engines,
        routes=(RoutePlan(source="out", targets=("full", "busy"), router="by-key", marks=marks),),
    )

    async def main() -> None:
        async with Kernel(plan) as kernel, kernel.open("out") as out:
            readers = {name: kernel.open(name, "trio") for name in ("full", "busy")}
            for name, reader in readers.items():
                reader.subscribe(name)
            with trio.fail_after(60):
                for name in readers:
                    await out.send_many([b"x"] * 4, key=name)  # now both are full
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(lambda: out.send(b"y", key="busy"))
                    await trio.testing.wait_all_tasks_blocked()
                    assert await readers["busy"].receive_many() == [b"x"] * 4
                assert await readers["busy"].receive() == b"y"
            for reader in readers.values():
                reader.close()

    trio.run(main)


def test_a_reader_that_reads_nothing_is_set_aside() -> None:
    engines = tuple(EnginePlan(name=name, kind="trio") for name in ("out", "stuck", "in"))
    marks = WaterMarks(high=4, stall_timeout=0.01)
    plan = Plan(
        threads=PLAN.threads,
        engines=engines,
        routes=(RoutePlan(source="out", targets=("stuck", "in"), marks=marks),),
    )

    async def main() -> None:
        async with Kernel(plan) as kernel, kernel.open("out") as out, kernel.open("in") as incoming:
            stuck = kernel.open("stuck", "trio")
            with trio.fail_after(60):
                for number in range(100):
                    await out.send(b"%d" % number)
                    assert await incoming.receive() == b"%d" % number
                assert len(await stuck.receive_many()) == 4
            stuck.close()

    trio.run(main)


def _both_ways(high: int = 1000) -> Plan:
    """A channel for tasks that sends to one application and receives from another."""
    return Plan(
        engines=(
            EnginePlan(name="sink", kind="native"),
            EnginePlan(name="source", kind="native"),
            EnginePlan(name="both", kind="trio"),
        ),
        routes=(
            RoutePlan(source="both", targets=("sink",), marks=WaterMarks(high=high)),
            RoutePlan(source="source", targets=("both",)),
        ),
    )


def test_a_task_may_wait_to_send_while_another_waits_to_receive() -> None:
    async def main() -> None:
        got: list[bytes] = []

        async def receive() -> None:
            got.append(bytes(await both.receive()))

        async def send() -> None:
            for _ in range(30):
                await both.send(b"x")

        with (
            Kernel(_both_ways(high=10)) as kernel,
            kernel.open("sink") as sink,
            kernel.open("source") as source,
        ):
            async with kernel.open("both") as both:
                with trio.fail_after(60):
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(receive)
                        nursery.start_soon(receive)
                        await trio.testing.wait_all_tasks_blocked()
                        nursery.start_soon(send)
                        await trio.testing.wait_all_tasks_blocked()
                        source.send_many([b"1", b"2"])
                        received = 0
                        while received < 30:
                            await trio.testing.wait_all_tasks_blocked()
                            received += len(sink.receive_many(timeout=60))
        assert got == [b"1", b"2"]

    trio.run(main)


def test_a_task_that_waits_hears_of_what_another_tasks_call_has_dealt_with() -> None:
    async def main() -> None:
        got: list[bytes] = []

        async def receive() -> None:
            got.append(bytes(await both.receive()))

        with Kernel(_both_ways()) as kernel, kernel.open("sink"), kernel.open("source") as source:
            async with kernel.open("both") as both:
                with trio.fail_after(60):
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(receive)
                        await trio.testing.wait_all_tasks_blocked()
                        source.send(b"1")
                        await both.send(b"x", key="k")  # looks at the mail, too
        assert got == [b"1"]

    trio.run(main)


def test_a_task_that_stops_waiting_leaves_the_watch_to_another() -> None:
    async def main() -> None:
        got: list[bytes] = []
        first = trio.CancelScope()

        async def wait() -> None:
            with first:
                await incoming.receive()

        async def receive() -> None:
            got.append(bytes(await incoming.receive()))

        async with Kernel(PLAN) as kernel, kernel.open("out") as out, kernel.open("in") as incoming:
            with trio.fail_after(60):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(wait)
                    await trio.sleep(0.05)
                    nursery.start_soon(receive)
                    await trio.sleep(0.05)
                    first.cancel()
                    await trio.sleep(0.05)
                    await out.send(b"1")
        assert got == [b"1"]

    trio.run(main)


def test_a_consumer_that_leaves_its_block_has_dealt_with_what_it_received() -> None:
    async def main() -> None:
        plan = msgspec.structs.replace(PLAN, routes=(RoutePlan(source="out", targets=("in",), confirm=True),))
        async with Kernel(plan) as kernel, kernel.open("out") as out:
            with trio.fail_after(60):
                async with kernel.open("in") as incoming:
                    await out.send(b"one")
                    assert await incoming.receive() == b"one"
                await out.wait_confirmed()

    trio.run(main)


def test_a_task_is_woken_by_another_thread_and_by_a_task_of_its_own_run() -> None:
    async def main() -> None:
        async with Kernel(PLAN) as kernel, kernel.open("in") as incoming:

            def send_there() -> None:
                with kernel.open("out", "native") as out:
                    out.send(b"there")

            async def send(_: object = None) -> None:
                await trio.testing.wait_all_tasks_blocked()
                async with kernel.open("out") as out:
                    await out.send(b"here")

            with trio.fail_after(60):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(trio.to_thread.run_sync, send_there)
                    assert await incoming.receive() == b"there"
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(send)
                    assert await incoming.receive() == b"here"

    trio.run(main)


def test_a_ring_after_the_run_has_ended_wakes_nobody() -> None:
    """The application may close the kernel only then, in the same thread or another."""
    kernel = Kernel(msgspec.structs.replace(PLAN, threads=())).start()
    channels: list[TrioChannel] = []

    async def main() -> None:
        channels.append(kernel.open("in", "trio"))
        with trio.move_on_after(0):
            await channels[0].receive()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(channels[0].receive)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()

    trio.run(main)
    kernel.close()
    kernel.join()
    assert channels[0].closed


def _send_once_armed(incoming: TrioChannel, send: Callable[[], object]) -> None:
    """Have ``send`` called between the flag of the bell and the sleep, the next time that a task waits."""
    caller = incoming._channel.caller
    arm = caller.arm
    calls = 0

    def armed() -> bool:
        nonlocal calls
        calls += 1
        asleep = arm()
        # An attempt that would block sets the flag, too, and whoever sets it again looks again.
        if calls == 2:
            caller.arm = arm  # type: ignore[method-assign]
            send()
        return asleep

    caller.arm = armed  # type: ignore[method-assign]


def test_a_ring_before_the_first_task_has_parked_wakes_it() -> None:
    async def main() -> None:
        async with Kernel(PLAN) as kernel, kernel.open("in") as incoming:

            def send() -> None:
                with kernel.open("out", "native") as out:
                    out.send(b"there")

            def in_a_thread() -> None:
                sending = threading.Thread(target=send)
                sending.start()
                sending.join()

            _send_once_armed(incoming, in_a_thread)
            with trio.fail_after(30):
                assert await incoming.receive() == b"there"

    trio.run(main)


def test_a_ring_of_a_signal_handler_in_a_task_that_is_about_to_park_wakes_it() -> None:
    async def main() -> None:
        async with Kernel(PLAN) as kernel, kernel.open("in") as incoming, kernel.open("out") as out:
            # It has waited before.
            with trio.move_on_after(0.001):
                await incoming.receive()
            _send_once_armed(incoming, lambda: out.send_nowait(b"signal"))
            with trio.fail_after(30):
                assert await incoming.receive() == b"signal"

    trio.run(main)


@pytest.mark.parametrize(
    "call",
    [
        lambda channel: channel.receive(),
        lambda channel: channel.receive_many(),
        # Nobody is there, and so there is no room.
        lambda channel: channel.send(b"for nobody"),
    ],
)
def test_closing_the_channel_wakes_waiting_calls(call: Callable[[TrioChannel], Awaitable[object]]) -> None:
    async def main() -> None:
        async with Kernel(PLAN) as kernel:
            channel = kernel.open("out", "trio")
            ended: list[str] = []

            async def wait() -> None:
                with pytest.raises(KernelClosed, match="it was closed"):
                    await call(channel)
                ended.append("as it should")

            with trio.fail_after(60):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(wait)
                    nursery.start_soon(wait)
                    await trio.testing.wait_all_tasks_blocked()
                    channel.close()
            assert ended == ["as it should"] * 2

    trio.run(main)


def test_a_kernel_that_ends_in_another_thread_wakes_waiting_calls() -> None:
    async def main() -> None:
        kernel = Kernel(Plan(routes=PLAN.routes)).start()
        channel = kernel.open("in", "trio")

        def end() -> None:
            kernel.close(linger=0)
            kernel.join()

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.to_thread.run_sync, end)
                with pytest.raises(KernelClosed):
                    await channel.receive()
        assert channel.closed

    trio.run(main)
