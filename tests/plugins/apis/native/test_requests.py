"""Requests: answers find the channel that asked, and nothing else is lost or confirmed because of them."""

from __future__ import annotations

import sys
import threading
from types import FrameType

import pytest

from kernel.contracts.errors import KernelClosed, TimedOut
from kernel.contracts.message import Envelope, Message
from kernel.pipes.water_marks import WaterMarks
from kernel.testing.fixtures import KernelFactory
from kernel.topology.plan import EnginePlan, RoutePlan
from kernel.topology.system import Kernel
from plugins.apis.native.channel import Channel


def service(confirm: bool = False) -> tuple[RoutePlan, RoutePlan]:
    return (
        RoutePlan(source="asker", targets=("clock",), confirm=confirm),
        RoutePlan(source="clock", targets=("asker",), router="reply", confirm=confirm),
    )


class Clock:
    """A thread that answers what it is asked, with the question twice."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._thread = threading.Thread(target=self._serve)

    def _serve(self) -> None:
        with self._kernel.open("clock", "native") as clock:
            try:
                while True:
                    question = clock.receive_message()
                    clock.reply(question, bytes(question) * 2)
            except KernelClosed:
                pass

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._kernel.close(linger=0)
        self._thread.join()


@pytest.mark.parametrize("confirm", [False, True])
def test_a_request_returns_its_answer(kernel_factory: KernelFactory, confirm: bool) -> None:
    kernel = kernel_factory(*service(confirm))
    with Clock(kernel), kernel.open("asker") as asker:
        for number in range(10):
            assert bytes(asker.request(b"%d" % number, timeout=60)) == b"%d%d" % (number, number)
        assert asker.request(b"x", key="time", timeout=60).key == "time"


def test_a_question_and_its_answer_make_few_calls(kernel_factory: KernelFactory) -> None:
    """Of Python, in the thread that asks: 40, and 54 or 56 before questions took the fast path of ``send``."""
    kernel = kernel_factory(*service())
    calls: list[int] = []

    def count(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            calls[-1] += 1

    with Clock(kernel), kernel.open("asker") as asker:
        for _ in range(4):
            asker.request(b"x", timeout=60)
        for _ in range(10):
            calls.append(0)
            sys.setprofile(count)
            try:
                asker.request(b"x", timeout=60)
            finally:
                sys.setprofile(None)
    # Where both threads share a core, who is woken ahead waits once more, with five calls.
    assert min(calls) < 50, calls


def test_an_answer_comes_to_the_one_of_several_channels_that_asked(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(*service())
    with Clock(kernel), kernel.open("asker") as first, kernel.open("asker") as second:
        assert bytes(first.request(b"1", timeout=60)) == b"11"
        assert bytes(second.request(b"2", timeout=60)) == b"22"
        assert not first.has_something()


def test_a_request_that_nobody_answers_times_out_and_its_answer_is_dropped(
    kernel_factory: KernelFactory,
) -> None:
    kernel = kernel_factory(*service())
    with kernel.open("asker") as asker, kernel.open("clock") as clock:
        with pytest.raises(TimedOut, match="channel 'asker': no answer has come"):
            asker.request(b"1", timeout=0.01)
        clock.reply(clock.receive_message(timeout=60), b"late")
        clock.send_message(Message(b"news", Envelope(reply_to="asker")))
        assert asker.receive(timeout=60) == b"news"


def test_a_request_without_room_to_send_leaves_nothing_behind(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(*service())
    with kernel.open("asker") as asker, pytest.raises(TimedOut, match="no room to send"):
        asker.request(b"1", timeout=0.01)


def test_other_messages_wait_for_receive_and_are_confirmed_only_then(kernel_factory: KernelFactory) -> None:
    """Answers are between them: what is confirmed must not be what was not received."""
    kernel = kernel_factory(
        EnginePlan(name="asker", kind="native", options={"auto_confirm": False}),
        *service(confirm=True),
        RoutePlan(source="feed", targets=("asker",), confirm=True, marks=WaterMarks(high=100)),
    )
    with kernel.open("asker") as asker, kernel.open("clock") as clock, kernel.open("feed") as feed:
        number = [asker.ask(b"%d" % each, None, 60) for each in range(4)]
        questions = [clock.receive_message(timeout=60) for _ in range(4)]
        for each, question in enumerate(questions):
            feed.send(b"before %d" % each)
            clock.reply(question, b"answer %d" % each)
            assert asker.answer(number[each], 60).body == b"answer %d" % each  # and takes what came before it
        assert feed.statistics().unconfirmed == 4
        for left in (3, 2, 1, 0):
            assert bytes(asker.receive(timeout=60)).startswith(b"before")
            asker.confirm()
            feed.has_something()
            assert unconfirmed(feed) == left
        clock.wait_confirmed(timeout=60)  # an answer is confirmed as soon as it has come


def unconfirmed(channel: Channel) -> int:
    """Return how many messages are not confirmed, after what was posted has been processed."""
    channel.serve()
    return channel.statistics().unconfirmed


def test_a_request_passes_between_kernels(kernel_factory: KernelFactory) -> None:
    listening = {"mode": "listen", "address": "backend+tcp://127.0.0.1:0", "stamp_reply_to": True}
    there = kernel_factory(
        EnginePlan(name="net", kind="stream", options=listening),
        RoutePlan(source="net", targets=("clock",)),
        RoutePlan(source="clock", targets=("net",), router="reply"),
    )
    dialling = {"address": f"backend+tcp://{there.address_of('net')}"}
    here = kernel_factory(
        EnginePlan(name="net", kind="stream", options=dialling),
        RoutePlan(source="asker", targets=("net",)),
        RoutePlan(source="net", targets=("asker",)),
    )
    with Clock(there), here.open("asker") as asker:
        assert bytes(asker.request(b"1", timeout=60)) == b"11"
        assert bytes(asker.request(b"2", timeout=60)) == b"22"
