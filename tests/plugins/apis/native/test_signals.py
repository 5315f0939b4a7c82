"""A handler of a signal raises anywhere in a call of a channel, and nothing is lost, doubled or stuck."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import pytest

from kernel import Channel, EnginePlan, Kernel, Message, Plan, RoutePlan, WaterMarks
from tests.interruptions import EVERYWHERE, bodies, everywhere, interrupted

pytestmark = pytest.mark.slow

TIMEOUT = 10.0
MARKER = b"marker"


def native(*names: str) -> tuple[EnginePlan, ...]:
    return tuple(EnginePlan(name=name, kind="native") for name in names)


@contextmanager
def running(*routes: RoutePlan, engines: tuple[EnginePlan, ...]) -> Iterator[Kernel]:
    with Kernel(Plan(engines=engines, routes=routes)) as kernel:
        yield kernel


class Reader:
    """A thread that receives until the marker comes."""

    def __init__(self, kernel: Kernel, name: str) -> None:
        self.got: list[bytes] = []
        self._kernel, self._name = kernel, name
        self._open = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()
        self._open.wait()

    def _read(self) -> None:
        with self._kernel.open(self._name) as channel:
            self._open.set()
            while MARKER not in self.got:
                self.got += map(bytes, channel.receive_many(timeout=TIMEOUT))

    def all(self) -> list[bytes]:
        self._thread.join(TIMEOUT)
        assert not self._thread.is_alive()
        return self.got


SENDS: dict[str, Callable[[Channel], Any]] = {
    "send": lambda channel: channel.send(b"one"),
    "send with a key": lambda channel: channel.send(b"one", key="key"),
    "send with headers": lambda channel: channel.send(b"one", headers={"a": 1}),
    "send_many": lambda channel: channel.send_many([b"one"]),
    "send_parts": lambda channel: channel.send_parts([b"o", b"ne"]),
    "send_message": lambda channel: channel.send_message(Message(b"one")),
    "send_nowait": lambda channel: channel.send_nowait(b"one"),
}


@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("send", SENDS.values(), ids=SENDS)
def test_a_message_is_sent_or_not_and_those_behind_it_arrive(
    send: Callable[[Channel], Any], before: int
) -> None:
    def attempt(at: int) -> str:
        route = RoutePlan(source="out", targets=("in",))
        with running(route, engines=native("out", "in")) as kernel, kernel.open("out") as channel:
            reader = Reader(kernel, "in")
            for _ in range(before):
                channel.send(b"zero", timeout=TIMEOUT)
            where, _ = interrupted(lambda: send(channel), at, files=EVERYWHERE)
            channel.send(MARKER, timeout=TIMEOUT)
            channel._fast.give_back()
            pipe = channel._port.short_cut()
            zeros = [b"zero"] * before
            assert reader.all() in ([*zeros, b"one", MARKER], [*zeros, MARKER]), where
            assert pipe is not None
            assert pipe.depth() == 0, where
        return where

    everywhere(attempt)


@pytest.mark.parametrize("send", [SENDS["send"], SENDS["send with a key"]])
def test_a_fan_out_sends_to_all_or_to_nobody(send: Callable[[Channel], Any]) -> None:
    def attempt(at: int) -> str:
        route = RoutePlan(source="out", targets=("a", "b", "c"))
        with running(route, engines=native("out", "a", "b", "c")) as kernel, kernel.open("out") as channel:
            readers = [Reader(kernel, name) for name in "abc"]
            channel.send(b"zero", timeout=TIMEOUT)
            where, _ = interrupted(lambda: send(channel), at, files=EVERYWHERE)
            channel.send(MARKER, timeout=TIMEOUT)
            got = [reader.all() for reader in readers]
            assert got[0] in ([b"zero", b"one", MARKER], [b"zero", MARKER]), where
            assert got[1:] == [got[0], got[0]], where
        return where

    everywhere(attempt)


def test_what_is_sent_on_a_confirming_route_is_confirmed() -> None:
    def attempt(at: int) -> str:
        route = RoutePlan(source="out", targets=("in",), confirm=True)
        with running(route, engines=native("out", "in")) as kernel, kernel.open("out") as channel:
            reader = Reader(kernel, "in")
            where, _ = interrupted(lambda: channel.send(b"one"), at, files=EVERYWHERE)
            channel.send(MARKER, timeout=TIMEOUT)
            assert reader.all() in ([b"one", MARKER], [MARKER]), where
            channel.wait_confirmed(TIMEOUT)
        return where

    everywhere(attempt)


def test_a_full_pipe_that_has_room_again_is_written_to() -> None:
    def attempt(at: int) -> str:
        route = RoutePlan(source="out", targets=("in",), marks=WaterMarks(high=2))
        with running(route, engines=native("out", "in")) as kernel, kernel.open("out") as channel:
            opened, full = threading.Event(), threading.Event()
            got: list[bytes] = []

            def read() -> None:
                with kernel.open("in") as reader:
                    opened.set()
                    full.wait()
                    while MARKER not in got:
                        got.append(bytes(reader.receive(TIMEOUT)))

            thread = threading.Thread(target=read)
            thread.start()
            opened.wait()
            channel.send(b"1", timeout=TIMEOUT)
            channel.send(b"2", timeout=TIMEOUT)
            full.set()
            where, _ = interrupted(lambda: channel.send(b"3"), at, files=EVERYWHERE)
            channel.send(MARKER, timeout=TIMEOUT)
            thread.join()
            assert got in ([b"1", b"2", b"3", MARKER], [b"1", b"2", MARKER]), where
        return where

    everywhere(attempt)


RECEIVES: dict[str, Callable[[Channel], Any]] = {
    "receive": lambda channel: channel.receive(TIMEOUT),
    "receive_message": lambda channel: channel.receive_message(TIMEOUT),
    "receive_many": lambda channel: channel.receive_many(timeout=TIMEOUT),
    "receive_many, two": lambda channel: channel.receive_many(2, TIMEOUT),
    "receive_batch": lambda channel: channel.receive_batch(timeout=TIMEOUT),
    "receive_batch, two": lambda channel: channel.receive_batch(2, TIMEOUT),
    "for": lambda channel: next(iter(channel)),
}


@pytest.mark.parametrize("begun", [0, 1])
@pytest.mark.parametrize("receive", RECEIVES.values(), ids=RECEIVES)
def test_what_has_come_is_received_once(receive: Callable[[Channel], Any], begun: int) -> None:
    def attempt(at: int) -> str:
        route = RoutePlan(source="out", targets=("in",))
        with (
            running(route, engines=native("out", "in")) as kernel,
            kernel.open("in") as channel,
            kernel.open("out") as out,
        ):
            out.send_many([b"1", b"2", b"3"])
            out.send(b"4", key="key")
            out.send(b"5", key="other")
            out.send_parts([b"6", b"7"])
            out.send(b"8")
            got = [bytes(channel.receive(TIMEOUT)) for _ in range(begun)]
            where, received = interrupted(lambda: receive(channel), at, files=EVERYWHERE)
            got += bodies(received)
            out.send(MARKER)
            while MARKER not in got:
                got.append(bytes(channel.receive(TIMEOUT)))
            assert got == [b"1", b"2", b"3", b"4", b"5", b"67", b"8", MARKER], where
        return where

    everywhere(attempt)


@pytest.mark.parametrize("confirm", [False, True])
@pytest.mark.parametrize("receive", RECEIVES.values(), ids=RECEIVES)
def test_what_has_come_from_two_sources_is_received_once(
    receive: Callable[[Channel], Any], confirm: bool
) -> None:
    def attempt(at: int) -> str:
        routes = [RoutePlan(source=name, targets=("in",), confirm=confirm) for name in ("one", "other")]
        with (
            running(*routes, engines=native("one", "other", "in")) as kernel,
            kernel.open("in") as channel,
            kernel.open("one") as one,
            kernel.open("other") as other,
        ):
            one.send_many([b"1", b"2"])
            one.send(b"3", key="key")
            other.send(b"4")
            other.send_parts([b"5", b"6"])
            where, received = interrupted(lambda: receive(channel), at, files=EVERYWHERE)
            got = bodies(received)
            one.send(MARKER)
            other.send(MARKER)
            while got.count(MARKER) < 2:
                got.append(bytes(channel.receive(TIMEOUT)))
            assert sorted(got) == [b"1", b"2", b"3", b"4", b"56", MARKER, MARKER], where
            channel.confirm()
            for out in (one, other):
                out.wait_confirmed(TIMEOUT)
        return where

    everywhere(attempt)


@pytest.mark.parametrize("when_full", ["drop-oldest", "drop-newest"])
def test_a_pipe_that_drops_goes_on(when_full: Literal["drop-oldest", "drop-newest"]) -> None:
    def attempt(at: int) -> str:
        marks = WaterMarks(high=2, when_full=when_full)
        route = RoutePlan(source="out", targets=("in",), marks=marks)
        with (
            running(route, engines=native("out", "in")) as kernel,
            kernel.open("in") as channel,
            kernel.open("out") as out,
        ):
            out.send(b"1", timeout=TIMEOUT)
            out.send(b"2")
            where, _ = interrupted(lambda: out.send(b"3"), at, files=EVERYWHERE)
            there, received = interrupted(lambda: channel.receive_many(timeout=TIMEOUT), at, files=EVERYWHERE)
            got = bodies(received) if received else list(map(bytes, channel.receive_many(timeout=TIMEOUT)))
            assert got in ([b"1", b"2"], [b"2", b"3"]), (where, there)
            out.send(MARKER)
            assert bytes(channel.receive(TIMEOUT)) == MARKER, (where, there)
        return where or there

    everywhere(attempt)


@pytest.mark.parametrize("receive", [RECEIVES["receive"], RECEIVES["receive_message"]])
def test_what_comes_while_it_is_waited_for_is_received_once(receive: Callable[[Channel], Any]) -> None:
    def attempt(at: int) -> str:
        route = RoutePlan(source="out", targets=("in",))
        with running(route, engines=native("out", "in")) as kernel, kernel.open("in") as channel:
            begin, more = threading.Event(), threading.Event()

            def write() -> None:
                with kernel.open("out") as out:
                    begin.wait()
                    out.send(b"1")
                    more.wait()
                    out.send(MARKER)

            thread = threading.Thread(target=write)
            thread.start()

            def wait() -> Any:
                begin.set()
                return receive(channel)

            where, received = interrupted(wait, at, files=EVERYWHERE)
            got = bodies(received)
            more.set()
            while MARKER not in got:
                got.append(bytes(channel.receive(TIMEOUT)))
            thread.join()
            assert got == [b"1", MARKER], where
        return where

    everywhere(attempt)


def test_a_question_that_was_interrupted_is_forgotten_and_the_next_is_answered() -> None:
    def attempt(at: int) -> str:
        routes = (
            RoutePlan(source="asking", targets=("answering",)),
            RoutePlan(source="answering", targets=("asking",), router="reply"),
        )
        with (
            running(*routes, engines=native("asking", "answering")) as kernel,
            kernel.open("asking") as channel,
        ):
            opened = threading.Event()

            def answer() -> None:
                with kernel.open("answering") as answering:
                    opened.set()
                    question = None
                    while question is None or bytes(question) != MARKER:
                        question = answering.receive_message(TIMEOUT)
                        answering.reply(question, question.body)

            thread = threading.Thread(target=answer)
            thread.start()
            opened.wait()
            assert bytes(channel.request(b"0", timeout=TIMEOUT)) == b"0"
            where, _ = interrupted(lambda: channel.request(b"1"), at, files=EVERYWHERE)
            assert bytes(channel.request(MARKER, timeout=TIMEOUT)) == MARKER
            thread.join()
            assert channel._requests is not None
            assert not channel._requests.answers, where
        return where

    everywhere(attempt)


CALLS: dict[str, Callable[[Channel], Any]] = {
    "subscribe": lambda channel: channel.subscribe("a.#"),
    "has_something": lambda channel: channel.has_something(),
    "fileno": lambda channel: channel.fileno(),
    "confirm": lambda channel: channel.confirm(),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_other_calls_are_made_again(call: Callable[[Channel], Any]) -> None:
    def attempt(at: int) -> str:
        route = RoutePlan(source="out", targets=("in",), router="by-key")
        with (
            running(route, engines=native("out", "in")) as kernel,
            kernel.open("in") as channel,
            kernel.open("out") as out,
        ):
            channel.subscribe("b")
            where, _ = interrupted(lambda: call(channel), at, files=EVERYWHERE)
            call(channel)
            channel.subscribe("a.#")
            out.send(b"1", key="a.b", timeout=TIMEOUT)
            out.send(b"2", key="b")
            assert [bytes(channel.receive(TIMEOUT)) for _ in range(2)] == [b"1", b"2"], where
        return where

    everywhere(attempt)


def test_a_channel_that_was_not_opened_takes_no_messages() -> None:
    def attempt(at: int) -> str:
        route = RoutePlan(source="out", targets=("in",), router="round-robin")
        with running(route, engines=native("out", "in")) as kernel, kernel.open("out") as out:
            opened: list[Channel] = []
            where, _ = interrupted(lambda: opened.append(kernel.open("in")), at, files=EVERYWHERE)
            with kernel.open("in") as channel:
                for number in range(4):
                    out.send(b"%d" % number, timeout=TIMEOUT)
                got = [bytes(channel.receive(TIMEOUT)) for _ in range(2 if opened else 4)]
                got += [bytes(each.receive(TIMEOUT)) for each in opened for _ in range(2)]
                assert sorted(got) == [b"0", b"1", b"2", b"3"], where
        return where

    everywhere(attempt)
