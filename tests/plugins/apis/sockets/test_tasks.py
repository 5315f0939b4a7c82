"""Sockets for tasks of trio and asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing

from kernel.contracts.errors import KernelError
from kernel.sockets import Context, ContextClosed, SocketClosed

TIMEOUT = 30.0


async def _in_time(run: Callable[[], Awaitable[Any]]) -> None:
    with trio.fail_after(TIMEOUT):
        await run()


@pytest.fixture(params=["trio", "asyncio"])
def start(request: pytest.FixtureRequest) -> Callable[[Callable[[], Awaitable[Any]]], None]:
    """Run a coroutine function in one of the loops."""
    if request.param == "trio":
        return lambda run: trio.run(_in_time, run)
    return lambda run: asyncio.run(asyncio.wait_for(run(), TIMEOUT))  # type: ignore[arg-type]


Start = Callable[[Callable[[], Awaitable[Any]]], None]


def test_all_calls(start: Start) -> None:
    async def run() -> None:
        with Context() as context:
            async with context.task_socket("PULL") as pull, context.task_socket("PUSH") as push:
                push.connect(pull.bind("tcp://127.0.0.1:0"))
                await push.send(b"1")
                await push.send_many([b"2", b"3"])
                await push.send_multipart([b"a", b"b"])
                assert await pull.recv() == b"1"
                got: list[bytes] = []
                while len(got) < 2:
                    got += await pull.recv_many()
                assert got == [b"2", b"3"]
                assert await pull.recv_multipart() == [b"a", b"b"]

    start(run)


def test_questions_and_answers(start: Start) -> None:
    async def run() -> None:
        with Context() as context:
            async with context.task_socket("REP") as rep, context.task_socket("REQ") as req:
                req.connect(rep.bind("tcp://127.0.0.1:0"))
                for number in range(10):
                    await req.send(b"%d" % number)
                    await rep.send(b"re " + await rep.recv())
                    assert await req.recv() == b"re %d" % number

    start(run)


def test_subscribers_are_waited_for(start: Start) -> None:
    async def run() -> None:
        with Context() as context:
            async with context.task_socket("PUB") as pub, context.task_socket("SUB") as sub:
                sub.connect(pub.bind("tcp://127.0.0.1:0"))
                sub.subscribe("tea")
                await pub.wait_for_subscribers(topic="teapot")
                await pub.send(b"coffee")
                await pub.send(b"teapot")
                assert await sub.recv() == b"teapot"

    start(run)


def test_a_receive_that_is_cancelled_loses_nothing() -> None:
    async def run() -> None:
        with Context() as context:
            pull, push = context.task_socket("PULL"), context.socket("PUSH")
            push.connect(pull.bind("tcp://127.0.0.1:0"))
            for number in range(20):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(pull.recv)
                    await trio.testing.wait_all_tasks_blocked()
                    nursery.cancel_scope.cancel()
                push.send(b"%d" % number)
                assert await pull.recv() == b"%d" % number

    trio.run(_in_time, run)


def test_several_tasks_wait_in_one_socket() -> None:
    async def run() -> None:
        with Context() as context:
            pull, push = context.task_socket("PULL"), context.socket("PUSH")
            push.connect(pull.bind("tcp://127.0.0.1:0"))
            got: list[bytes] = []

            async def receive() -> None:
                got.append(await pull.recv())

            async with trio.open_nursery() as nursery:
                for _ in range(5):
                    nursery.start_soon(receive)
                await trio.testing.wait_all_tasks_blocked()
                for number in range(5):
                    push.send(b"%d" % number)
            assert sorted(got) == [b"0", b"1", b"2", b"3", b"4"]

    trio.run(_in_time, run)


@pytest.mark.parametrize("whole", [False, True], ids=["socket", "context"])
def test_closing_wakes_who_waits(whole: bool) -> None:
    async def run() -> None:
        context = Context()
        pull = context.task_socket("PULL")
        pull.bind("tcp://127.0.0.1:0")
        said: list[type] = []

        async def receive() -> None:
            try:
                await pull.recv()
            except KernelError as error:
                said.append(type(error))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            await trio.testing.wait_all_tasks_blocked()
            if whole:
                context.close()
            else:
                pull.close()
        assert said == [ContextClosed if whole else SocketClosed]
        context.close()

    trio.run(_in_time, run)


def test_without_a_loop() -> None:
    with Context() as context, pytest.raises(KernelError, match=r"context\.socket is for plain threads"):
        context.task_socket("PULL")
