"""The native API for asyncio's tasks."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kernel.contracts.errors import KernelClosed, KernelError, PlanError, WouldBlock, WrongThread
from kernel.contracts.message import Envelope, Message
from kernel.pipes.water_marks import WaterMarks
from kernel.testing.fixtures import KernelFactory
from kernel.testing.leaks import Leaks
from kernel.topology.plan import EnginePlan, Plan, RoutePlan, ThreadPlan
from kernel.topology.system import Kernel
from plugins.apis.native.asyncio_channel import AsyncioChannel
from plugins.apis.native.channel import Channel

OUT, IN = (EnginePlan(name=name, kind="asyncio") for name in ("out", "in"))
PLAN = Plan(engines=(OUT, IN), routes=(RoutePlan(source="out", targets=("in",)),))


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a coroutine that must not take for ever."""

    async def limited() -> None:
        async with asyncio.timeout(60):
            await main()

    asyncio.run(limited(), debug=True)


def run_alone(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a coroutine that makes its own kernel, and leaves nothing behind."""
    leaks = Leaks()
    run(main)
    assert leaks.found() == []


async def until(done: Callable[[], bool]) -> None:
    """Let other tasks run until something is so."""
    while not done():  # noqa: ASYNC110 - no event tells of a state of the kernel
        await asyncio.sleep(0)


def test_messages_go_both_ways_between_a_task_and_a_thread(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(
        OUT, IN, RoutePlan(source="out", targets=("thread",)), RoutePlan(source="thread", targets=("in",))
    )

    def echo() -> None:
        with kernel.open("thread", "native") as channel:
            for body in channel:
                channel.send(bytes(body) * 2)

    async def main() -> None:
        async with kernel.open("out", "asyncio") as out, kernel.open("in", AsyncioChannel) as incoming:
            for body in (b"a", b"b"):
                await out.send(body)
                assert await incoming.receive() == body * 2
            await out.send_many([b"c", b"d"])
            got: list[bytes] = []
            async for each in incoming:
                got.append(bytes(each))
                if len(got) == 2:
                    break
            assert got == [b"cc", b"dd"]

    thread = threading.Thread(target=echo)
    thread.start()
    run(main)
    kernel.close(linger=0)
    thread.join()


def test_every_way_to_send_and_to_receive() -> None:
    async def main() -> None:
        async with (
            Kernel(PLAN) as kernel,
            kernel.open("out", "asyncio") as out,
            kernel.open("in", "asyncio") as into,
        ):
            with pytest.raises(WouldBlock):
                into.receive_nowait()
            out.send_nowait(b"1")
            await until(into.has_something)
            assert into.receive_nowait() == b"1"
            await out.send_parts([b"2", b"3"])
            assert (await into.receive_message()).parts == (b"2", b"3")
            await out.send_message(Message(b"4", Envelope(key="k")))
            batch = await into.receive_batch()
            assert (batch.bodies, batch.envelope.key) == ([b"4"], "k")
            await out.send_batches([batch, batch])
            got: list[Any] = []
            while len(got) < 2:
                got += await into.receive_many()
            assert got == [b"4", b"4"]
            assert out.all_confirmed()

    run_alone(main)


def test_a_sender_waits_while_the_pipe_is_full_and_other_tasks_run() -> None:
    plan = Plan(
        engines=(OUT, IN), routes=(RoutePlan(source="out", targets=("in",), marks=WaterMarks(high=4)),)
    )

    async def main() -> None:
        async with (
            Kernel(plan) as kernel,
            kernel.open("out", "asyncio") as out,
            kernel.open("in", "asyncio") as into,
        ):
            sent = 0

            async def send() -> None:
                nonlocal sent
                for number in range(100):
                    await out.send(b"%d" % number, key="k")
                    sent += 1

            task = asyncio.create_task(send())
            await until(lambda: sent >= 4)
            for _ in range(10):
                await asyncio.sleep(0)
            assert 4 <= sent < 100
            assert [await into.receive() for _ in range(100)] == [b"%d" % number for number in range(100)]
            await task

    run_alone(main)


def test_a_reader_that_reads_nothing_is_set_aside() -> None:
    marks = WaterMarks(high=4, stall_timeout=0.01)
    plan = Plan(
        engines=(OUT, IN, EnginePlan(name="busy", kind="asyncio")),
        routes=(RoutePlan(source="out", targets=("in", "busy"), marks=marks),),
    )

    async def main() -> None:
        async with (
            Kernel(plan) as kernel,
            kernel.open("out", "asyncio") as out,
            kernel.open("in", "asyncio"),
            kernel.open("busy", "asyncio") as busy,
        ):
            for number in range(20):
                await out.send(b"%d" % number)
                assert await busy.receive() == b"%d" % number

    run_alone(main)


def test_a_task_that_waits_to_send_without_a_route_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[str] = []
    log = logging.getLogger(Channel.__module__)
    monkeypatch.setattr(log, "warning", lambda text, *values: logged.append(text % values))

    async def main() -> None:
        async with Kernel(PLAN) as kernel, kernel.open("in", "asyncio") as into:
            task = asyncio.create_task(into.send(b"x"))
            await until(lambda: bool(logged))
            assert "channel 'in' waits: no route of the running system leaves 'in'" in logged[0]
            kernel.add_route(RoutePlan(source="in", targets=("out",)))
            async with kernel.open("out", "asyncio") as out:
                assert await out.receive() == b"x"
            await task
        assert len(logged) == 1

    run_alone(main)


def test_tasks_that_wait_in_one_channel_get_a_message_each() -> None:
    async def main() -> None:
        async with (
            Kernel(PLAN) as kernel,
            kernel.open("out", "asyncio") as out,
            kernel.open("in", "asyncio") as into,
        ):
            tasks = [asyncio.create_task(into.receive()) for _ in range(3)]
            await asyncio.sleep(0)  # they wait
            await out.send_many([b"1", b"2", b"3"])
            assert sorted(map(bytes, await asyncio.gather(*tasks))) == [b"1", b"2", b"3"]

    run_alone(main)


def test_a_task_that_is_cancelled_loses_no_message() -> None:
    async def main() -> None:
        async with (
            Kernel(PLAN) as kernel,
            kernel.open("out", "asyncio") as out,
            kernel.open("in", "asyncio") as into,
        ):
            impatient, patient = (asyncio.create_task(into.receive()) for _ in range(2))
            await asyncio.sleep(0)
            await out.send(b"x")
            impatient.cancel()
            assert await patient == b"x"
            with pytest.raises(asyncio.CancelledError):
                await impatient

    run_alone(main)


def test_requests_of_many_tasks_get_their_own_answers() -> None:
    plan = Plan(
        engines=(OUT, IN),
        routes=(
            RoutePlan(source="out", targets=("in",), confirm=True),
            RoutePlan(source="in", targets=("out",), router="reply", confirm=True),
        ),
    )

    async def main() -> None:
        async with (
            Kernel(plan) as kernel,
            kernel.open("out", "asyncio") as out,
            kernel.open("in", "asyncio") as into,
        ):

            async def serve() -> None:
                questions = [await into.receive_message() for _ in range(10)]
                for question in reversed(questions):
                    await into.reply(question, bytes(question) * 2)

            server = asyncio.create_task(serve())
            answers = await asyncio.gather(*(out.request(b"%d" % number, key="k") for number in range(10)))
            assert [bytes(answer) for answer in answers] == [
                b"%d%d" % (number, number) for number in range(10)
            ]
            await server
            into.confirm()
            await out.wait_confirmed()
            await into.wait_confirmed()

    run_alone(main)


def test_a_request_that_is_given_up_disturbs_nobody() -> None:
    plan = Plan(
        engines=(OUT, IN),
        routes=(
            RoutePlan(source="out", targets=("in",)),
            RoutePlan(source="in", targets=("out",), router="reply"),
        ),
    )

    async def main() -> None:
        async with (
            Kernel(plan) as kernel,
            kernel.open("out", "asyncio") as out,
            kernel.open("in", "asyncio") as into,
        ):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await out.request(b"first")
            late = await into.receive_message()
            asking = asyncio.create_task(out.request(b"second"))
            question = await into.receive_message()
            await into.reply(late, b"too late")
            await into.reply(question, b"in time")
            assert bytes(await asking) == b"in time"
            assert not out.has_something()

    run_alone(main)


def test_closing_the_kernel_ends_loops_and_wakes_waiting_calls() -> None:
    async def main() -> None:
        async with Kernel(PLAN) as kernel, kernel.open("in", "asyncio") as into:

            async def loop() -> None:
                async for _ in into:
                    pass

            waiting = asyncio.create_task(into.receive()), asyncio.create_task(loop())
            await asyncio.sleep(0)
            kernel.close()
            await waiting[1]
            with pytest.raises(KernelClosed):
                await waiting[0]

    run_alone(main)


def test_closing_the_channel_wakes_waiting_calls() -> None:
    async def main() -> None:
        async with Kernel(PLAN) as kernel:
            into = kernel.open("in", "asyncio")
            waiting = asyncio.create_task(into.receive())
            await asyncio.sleep(0)
            into.close()
            with pytest.raises(KernelClosed):
                await waiting
            assert into.closed
            # The next channel uses the same bell, and only that one.
            async with kernel.open("in", "asyncio") as again, kernel.open("out", "asyncio") as out:
                await out.send(b"x")
                assert await again.receive() == b"x"

    run_alone(main)


def test_a_kernel_that_ends_in_another_thread_leaves_the_loop_alone(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(OUT, IN, RoutePlan(source="out", targets=("in",)))

    async def main() -> None:
        into = kernel.open("in", "asyncio")

        def end() -> None:
            kernel.close(linger=0)
            kernel.join()

        await asyncio.to_thread(end)
        assert into.closed
        await asyncio.sleep(0)

    run(main)


def test_a_kernel_that_ends_while_the_loop_is_busy_wakes_waiting_calls(kernel_factory: KernelFactory) -> None:
    """The loop then stops to watch the bell before it has seen the ring."""
    kernel = kernel_factory(OUT, IN, RoutePlan(source="out", targets=("in",)))

    async def main() -> None:
        into = kernel.open("in", "asyncio")
        waiting = asyncio.create_task(into.receive())
        await asyncio.sleep(0)

        def end() -> None:
            kernel.close(linger=0)
            kernel.join()

        thread = threading.Thread(target=end)
        thread.start()
        thread.join()
        with pytest.raises(KernelClosed):
            await asyncio.wait_for(waiting, 10)

    run(main)


def test_a_kernel_that_ends_after_the_loop_closes_what_is_left(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(OUT, IN, RoutePlan(source="out", targets=("in",)))

    async def main() -> AsyncioChannel:
        return kernel.open("in", "asyncio")

    left = asyncio.run(main())
    kernel.close(linger=0)
    assert kernel.join(60)
    assert left.closed


def test_without_a_running_loop_it_cannot_be_opened(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(OUT, RoutePlan(source="out", targets=("in",)))
    with pytest.raises(
        KernelError, match="'out': a channel of kind 'asyncio' belongs to a running event loop"
    ):
        kernel.open("out")


def test_another_loop_is_refused(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(OUT, IN, RoutePlan(source="out", targets=("in",)))

    async def opened() -> AsyncioChannel:
        return kernel.open("in", "asyncio")

    async def used(channel: AsyncioChannel) -> None:
        with pytest.raises(WrongThread, match="belongs to the event loop that opened it"):
            await channel.receive()

    asyncio.run(used(asyncio.run(opened())))


def test_a_guest_thread_needs_trio() -> None:
    async def main() -> None:
        with pytest.raises(PlanError, match="guest"):
            async with Kernel(Plan(threads=(ThreadPlan(name="here", kind="guest"),))):
                pass

    run_alone(main)


def test_a_task_that_is_cancelled_while_the_kernel_ends_leaves_no_thread() -> None:
    async def main() -> None:
        kernel = Kernel(PLAN)

        async def use() -> None:
            async with kernel:
                pass

        task = asyncio.create_task(use())
        await until(lambda: kernel._state == "closing")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert kernel._state == "closed"

    run_alone(main)


def test_native_channels_stay_what_they_are_below_a_loop() -> None:
    """What ``open`` returns depends on the kind alone, as type checkers see it."""

    async def main() -> None:
        async with Kernel(PLAN) as kernel:
            with kernel.open("out", "native") as out:
                assert isinstance(out, Channel)

    run_alone(main)
