"""Leases of tasks: trio and asyncio look at the socket of a connection themselves (docs/decisions/0046-leases.md)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from kernel.contracts.errors import KernelClosed
from kernel.hosting.connection import LOOK
from kernel.testing.leaks import Leaks
from kernel.topology.plan import EnginePlan, Plan, RoutePlan
from kernel.topology.system import Kernel
from plugins.apis.native.task_channel import TaskChannel
from tests.event_loops import EVENT_LOOPS, Loop, event_loop
from tests.systems import lends

pytestmark = lends

ENOUGH = 40
"""Lone messages in a row after which a lease has begun."""


class Pair:
    """Two kernels and a connection; behind the far one a thread answers each message with the same."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.far = Kernel(_plan("listen", "backend+tcp://127.0.0.1:0", "native")).start()
        self.far.wait_running()
        address = f"backend+tcp://{self.far.address_of('link')}"
        self.near = Kernel(_plan("dial", address, loop.kind)).start()
        self.near.wait_running()
        self._answering = threading.Thread(target=self._answer, daemon=True)
        self._answering.start()

    def _answer(self) -> None:
        with self.far.open("app") as channel:
            try:
                while True:
                    channel.send_message(channel.receive_message())
            except KernelClosed:
                return

    def open(self) -> AbstractAsyncContextManager[TaskChannel]:
        channel: TaskChannel = self.near.open("app", self.loop.kind)
        return channel

    async def lend(self, app: TaskChannel) -> Any:
        """Exchange messages until there is a lease; return it."""
        app._channel._borrower.after = 8
        for number in range(1000 * ENOUGH):
            await ask(app, b"lend %d" % number)
            lease = app._channel.leased
            if lease is not None and lease.active:
                return lease
        raise AssertionError("no lease")

    def close(self) -> None:
        self.near.close()
        self.far.close()
        assert self.near.join(30)
        assert self.far.join(30)
        self._answering.join(10)
        assert not self._answering.is_alive()


async def ask(app: TaskChannel, body: bytes) -> None:
    await app.send(body)
    assert await app.receive() == body


def _plan(mode: str, address: str, kind: str) -> Plan:
    return Plan(
        engines=(
            EnginePlan(name="link", kind="stream", options={"address": address, "mode": mode}),
            EnginePlan(name="app", kind=kind),
        ),
        routes=(RoutePlan(source="app", targets=("link",)), RoutePlan(source="link", targets=("app",))),
    )


@pytest.fixture(params=EVENT_LOOPS)
def loop(request: pytest.FixtureRequest) -> Loop:
    return event_loop(request.param)


@pytest.fixture
def pair(loop: Loop) -> Iterator[Pair]:
    leaks = Leaks()
    pair = Pair(loop)
    yield pair
    pair.close()
    assert leaks.found() == []


def test_lone_messages_pass_without_the_poll_thread(pair: Pair) -> None:
    async def main() -> None:
        async with pair.open() as app:
            lease, received = await pair.lend(app), 0
            # On a busy machine a look may end it before its first message.
            while lease.received < received + 10:
                if not lease.active:
                    lease = await pair.lend(app)
                    received = lease.received
                await ask(app, b"lone")

    pair.loop.run(main)


def test_what_is_not_one_short_message_takes_the_usual_way_and_keeps_its_order(pair: Pair) -> None:
    async def main() -> None:
        async with pair.open() as app:
            await pair.lend(app)
            await app.send(b"first")
            await app.send(b"second")
            assert [await app.receive(), await app.receive()] == [b"first", b"second"]
            await pair.lend(app)
            await app.send_many([b"first", b"second"])
            assert [await app.receive(), await app.receive()] == [b"first", b"second"]
            await pair.lend(app)
            await app.send(b"first", key="k")
            await app.send(b"second")
            assert (await app.receive_message()).envelope.key == "k"
            assert await app.receive() == b"second"
            await pair.lend(app)
            await app.send_parts([b"fir", b"st"])
            assert await app.receive() == b"first"
            await pair.lend(app)
            large = bytes(range(256)) * 1000
            await app.send(large)
            assert await app.receive() == large
            await pair.lend(app)
            await app.send(b"many")
            assert await app.receive_many() == [b"many"]
            await pair.lend(app)
            assert not app.has_something()
            await ask(app, b"and on")

    pair.loop.run(main)


def test_a_wait_that_is_cancelled_loses_nothing(pair: Pair) -> None:
    async def main() -> None:
        async with pair.open() as app:
            for seconds in (0.0, 0.001, 3 * LOOK):
                await pair.lend(app)
                assert await pair.loop.gave_up(app.receive, seconds)
                await ask(app, b"on")

    pair.loop.run(main)


def test_who_sends_and_does_not_wait_gets_the_answer_later(pair: Pair) -> None:
    """The thread of the connection looks whether the lease is used, and takes it back."""

    async def main() -> None:
        async with pair.open() as app:
            lease = await pair.lend(app)
            await app.send(b"later")
            while lease.active:
                await pair.loop.sleep(LOOK)
            assert await app.receive() == b"later"
            await ask(app, b"on")

    pair.loop.run(main)


def test_several_tasks_share_a_lease(pair: Pair) -> None:
    async def main() -> None:
        async with pair.open() as app:
            for _ in range(20):
                await pair.lend(app)

                async def send() -> None:
                    await app.send(b"for one")
                    await app.send(b"for the other")

                received = await pair.loop.together(app.receive, app.receive, send)
                assert sorted(each for each in received if each) == [b"for one", b"for the other"]

    pair.loop.run(main)


def test_a_kernel_that_closes_wakes_a_task_that_waits_with_a_lease(pair: Pair) -> None:
    async def main() -> None:
        async with pair.open() as app:
            await pair.lend(app)
            closer = threading.Timer(0.05, pair.near.close)
            closer.start()
            with pytest.raises(KernelClosed):
                await app.receive()
            closer.join()

    pair.loop.run(main)


def test_a_peer_that_goes_is_noticed_by_the_connection(pair: Pair) -> None:
    async def main() -> None:
        async with pair.open() as app:
            lease = await pair.lend(app)
            pair.far.close()
            assert await pair.loop.gave_up(app.receive, 0.5)
            assert not lease.active

    pair.loop.run(main)


def test_a_channel_that_is_closed_and_opened_again_has_another_lease(pair: Pair) -> None:
    async def main() -> None:
        for _ in range(3):
            async with pair.open() as app:
                await pair.lend(app)

    pair.loop.run(main)


def test_the_loop_rests_while_a_lease_is_there_and_nobody_waits(pair: Pair) -> None:
    """What has come and is not read must not wake it again and again."""

    async def main() -> None:
        async with pair.open() as app:
            await pair.lend(app)
            noticed = 0
            # An answer may have been there before a wait.
            while (socket := app._socket) is None:
                await pair.lend(app)
            take = socket.take_notice

            def take_notice() -> None:
                nonlocal noticed
                noticed += 1
                take()

            socket.take_notice = take_notice  # type: ignore[method-assign]
            await app.send(b"unread")
            await pair.loop.sleep(5 * LOOK)
            assert noticed <= 3
            assert await app.receive() == b"unread"

    pair.loop.run(main)
