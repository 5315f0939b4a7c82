"""Leases of sockets for tasks: the event loop looks at the socket of the only peer itself."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kernel.hosting.connection import LOOK
from kernel.sockets import ContextClosed, SocketClosed
from kernel.testing.leaks import Leaks
from plugins.apis.sockets.errors import WrongState
from plugins.apis.sockets.tasks import TaskSocket
from tests.event_loops import EVENT_LOOPS, Loop, event_loop
from tests.plugins.apis.sockets.test_leases import ENOUGH, LENT
from tests.plugins.apis.sockets.test_leases import Pair as ThreadPair
from tests.systems import lends

pytestmark = lends


class Pair(ThreadPair):
    """A thread answers each message of a socket for tasks, once ``open`` was called in its loop."""

    tasks: TaskSocket

    def open(self) -> TaskSocket:
        self.socket.close()
        self.tasks = self.near.task_socket(self.socket.type)
        self.tasks.connect(self.place)
        return self.tasks

    async def ask_in_task(self, body: bytes) -> None:
        await self.tasks.send(body)
        assert await self.tasks.recv() == body

    async def lend_to_task(self) -> Any:
        """Exchange messages until there is a lease; return it."""
        end = self.tasks._end
        assert end._borrower is not None
        end._borrower.after = 8
        for number in range(ENOUGH):
            await self.ask_in_task(b"lend %d" % number)
            if end.leased is not None and end.leased.active:
                return end.leased
        raise AssertionError("no lease")


@pytest.fixture(params=EVENT_LOOPS)
def loop(request: pytest.FixtureRequest) -> Loop:
    return event_loop(request.param)


@pytest.fixture(params=LENT, ids="-".join)
def pair(loop: Loop, request: pytest.FixtureRequest) -> Iterator[Pair]:
    # Behind the loop, which may leave something.
    leaks = Leaks()
    pair = Pair(request.param)
    yield pair
    pair.close()
    assert leaks.found() == []


@pytest.fixture
def free_pair() -> Iterator[Pair]:
    """One in which anybody may send at any time."""
    pair = Pair(("DEALER", "DEALER"))
    yield pair
    pair.close()


def test_lone_messages_pass_without_the_poll_thread(pair: Pair, loop: Loop) -> None:
    async def main() -> None:
        async with pair.open() as socket:
            lease, received = await pair.lend_to_task(), 0
            # On a busy machine a look may end it before its first message.
            while lease.received < received + 10:
                if not lease.active:
                    lease = await pair.lend_to_task()
                    received = lease.received
                await pair.ask_in_task(b"lone")
                await socket.send(b"in parts")
                assert await socket.recv_multipart() == [b"in parts"]

    loop.run(main)


def test_what_is_not_one_short_message_takes_the_usual_way(pair: Pair, loop: Loop) -> None:
    async def main() -> None:
        async with pair.open() as socket:
            await pair.lend_to_task()
            large = bytes(range(256)) * 1000
            await pair.ask_in_task(large)
            await pair.lend_to_task()
            await socket.send_multipart([b"two", b"parts"])
            assert await socket.recv_multipart() == [b"two", b"parts"]
            await pair.lend_to_task()
            await socket.send(b"many")
            assert await socket.recv_many() == [b"many"]
            await pair.lend_to_task()

    loop.run(main)


def test_the_order_of_messages_is_kept(free_pair: Pair, loop: Loop) -> None:
    async def main() -> None:
        async with free_pair.open() as socket:
            for _ in range(10):
                await free_pair.lend_to_task()
                await socket.send(b"first")
                await socket.send(b"second")
                await socket.send_many([b"third", b"fourth"])
                received = [await socket.recv() for _ in range(4)]
                assert received == [b"first", b"second", b"third", b"fourth"]

    loop.run(main)


def test_a_question_that_is_open_is_no_reason_to_receive_another_way(loop: Loop) -> None:
    async def main() -> None:
        pair = Pair()
        async with pair.open() as socket:
            await pair.lend_to_task()
            with pytest.raises(WrongState):
                await socket.recv()
            await pair.lend_to_task()
            await socket.send(b"asked")
            with pytest.raises(WrongState):
                await socket.send(b"too soon")
            assert await socket.recv() == b"asked"
            await pair.ask_in_task(b"on")
        pair.close()

    loop.run(main)


def test_a_wait_that_is_cancelled_loses_nothing(free_pair: Pair, loop: Loop) -> None:
    async def main() -> None:
        async with free_pair.open() as socket:
            for seconds in (0.0, 0.001, 3 * LOOK):
                await free_pair.lend_to_task()
                assert await loop.gave_up(socket.recv, seconds)
                await free_pair.ask_in_task(b"on")

    loop.run(main)


def test_who_sends_and_does_not_wait_gets_the_answer_later(pair: Pair, loop: Loop) -> None:
    """The thread of the connection looks whether the lease is used, and takes it back."""

    async def main() -> None:
        async with pair.open() as socket:
            lease = await pair.lend_to_task()
            await socket.send(b"later")
            while lease.active:
                await loop.sleep(LOOK)
            assert await socket.recv() == b"later"
            await pair.ask_in_task(b"on")

    loop.run(main)


def test_several_tasks_share_a_lease(free_pair: Pair, loop: Loop) -> None:
    async def main() -> None:
        async with free_pair.open() as socket:
            for _ in range(20):
                await free_pair.lend_to_task()

                async def send() -> None:
                    await socket.send(b"for one")
                    await socket.send(b"for the other")

                received = await loop.together(socket.recv, socket.recv, send)
                assert sorted(each for each in received if each) == [b"for one", b"for the other"]

    loop.run(main)


def test_closing_wakes_a_task_that_waits_with_a_lease(free_pair: Pair, loop: Loop) -> None:
    async def main() -> None:
        async with free_pair.open() as socket:
            await free_pair.lend_to_task()

            async def close() -> None:
                await loop.sleep(0.01)
                socket.close()

            async def receive() -> None:
                with pytest.raises(SocketClosed):
                    await socket.recv()

            await loop.together(receive, close)

    loop.run(main)


def test_a_context_that_closes_in_another_thread_wakes_it(free_pair: Pair, loop: Loop) -> None:
    async def main() -> None:
        async with free_pair.open() as socket:
            await free_pair.lend_to_task()
            closer = threading.Timer(0.05, free_pair.near.close)
            closer.start()
            with pytest.raises((ContextClosed, SocketClosed)):
                await socket.recv()
            closer.join()

    loop.run(main)


def test_another_peer_takes_the_place_of_one_that_goes(loop: Loop) -> None:
    async def main() -> None:
        pair = Pair(("DEALER", "DEALER"))
        async with pair.open() as socket:
            lease = await pair.lend_to_task()
            pair.answering.close()
            assert await loop.gave_up(socket.recv, 0.2)
            assert not lease.active
            pair.thread.join()
            pair.answering = pair.far.socket("DEALER")
            pair.answering.bind(pair.place)
            pair.thread = threading.Thread(target=pair._answer, daemon=True)
            pair.thread.start()
            await pair.lend_to_task()
        pair.close()

    loop.run(main)


def test_the_loop_rests_while_a_lease_is_there_and_nobody_waits(free_pair: Pair, loop: Loop) -> None:
    """What has come and is not read must not wake it again and again."""

    async def main() -> None:
        async with free_pair.open() as socket:
            noticed = 0
            # An answer may have been there before a wait.
            while (leased := socket._leased) is None:
                await free_pair.lend_to_task()
            take = leased.take_notice

            def take_notice() -> None:
                nonlocal noticed
                noticed += 1
                take()

            leased.take_notice = take_notice  # type: ignore[method-assign]
            await free_pair.lend_to_task()
            before = noticed
            await socket.send(b"unread")
            await loop.sleep(5 * LOOK)
            assert noticed <= before + 3
            assert await socket.recv() == b"unread"

    loop.run(main)
