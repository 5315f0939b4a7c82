"""A handler of a signal raises anywhere in a call of a socket, and nothing is lost, doubled or stuck."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import pytest

from kernel.sockets import Context, Socket
from plugins.apis.sockets.context import TypeName
from plugins.apis.sockets.errors import PlaceError
from tests.interruptions import EVERYWHERE, everywhere, interrupted

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[4]
TIMEOUT = 10.0
MARKER = b"marker"

KINDS = [("PUSH", "PULL"), ("DEALER", "DEALER"), ("PAIR", "PAIR"), ("PUB", "SUB"), ("CLIENT", "SERVER")]


@contextmanager
def pair(kinds: tuple[str, str], place: str = "inproc://here") -> Iterator[tuple[Socket, Socket]]:
    with Context() as context:
        near, far = (
            context.socket(cast("TypeName", kind), rcvtimeo=TIMEOUT, sndtimeo=TIMEOUT) for kind in kinds
        )
        if kinds[1] == "SUB":
            far.subscribe()
        near.connect(far.bind(place))
        if kinds[0] == "PUB":
            near.wait_for_subscribers(timeout=TIMEOUT)
        yield near, far
        near.close(0)
        far.close(0)


def rest(socket: Socket) -> list[bytes]:
    """Receive up to the marker."""
    got: list[bytes] = []
    while MARKER not in got:
        got.append(b"".join(socket.recv_multipart()))
    return got


@pytest.mark.parametrize("place", ["inproc://here", "tcp://127.0.0.1:0"])
def test_a_place_is_bound_or_not_and_the_socket_says_which(place: str) -> None:
    def attempt(at: int) -> str:
        with Context() as context:
            near = context.socket("PUSH", linger=0, sndtimeo=TIMEOUT)
            far = context.socket("PULL", linger=0, rcvtimeo=TIMEOUT)
            where, _ = interrupted(lambda: far.bind(place), at, files=EVERYWHERE)
            near.connect(far.last_endpoint or far.bind(place))
            near.send(MARKER)
            assert rest(far) == [MARKER], where
            far.unbind(far.last_endpoint)
        return where

    everywhere(attempt)


def test_a_socket_connects_or_not_and_says_which() -> None:
    def attempt(at: int) -> str:
        with Context() as context:
            near = context.socket("PUSH", linger=0, sndtimeo=TIMEOUT)
            far = context.socket("PULL", linger=0, rcvtimeo=TIMEOUT)
            place = far.bind("tcp://127.0.0.1:0")
            where, _ = interrupted(lambda: near.connect(place), at, files=EVERYWHERE)
            if not near.last_endpoint:
                near.connect(place)
            there, _ = interrupted(lambda: near.disconnect(place), at, files=EVERYWHERE)
            with suppress(PlaceError):
                near.disconnect(place)
            near.connect(place)
            near.send(MARKER)
            assert rest(far) == [MARKER], (where, there)
        return where or there

    everywhere(attempt)


def test_a_context_goes_on_whose_call_for_a_socket_was_interrupted() -> None:
    def attempt(at: int) -> str:
        with Context() as context:
            # The first one loads the plugins, at thousands of places.
            near = context.socket("PUSH", linger=0, sndtimeo=TIMEOUT)
            where, socket = interrupted(lambda: context.socket("PULL", linger=0), at, files=EVERYWHERE)
            far = socket or context.socket("PULL", linger=0)
            near.connect(far.bind("inproc://here"))
            near.send(MARKER)
            assert rest(far) == [MARKER], where
            # One that was made and not returned is closed.
            kinds = [engine.kind for engine in context.kernel.plan.engines]
            assert kinds.count("sockets") == 2, where
        return where

    everywhere(attempt)


SENDS: dict[str, Callable[[Socket], Any]] = {
    "send": lambda socket: socket.send(b"one"),
    "send_multipart": lambda socket: socket.send_multipart([b"o", b"ne"]),
    "send_many": lambda socket: socket.send_many([b"one"]),
    "send_multipart_many": lambda socket: socket.send_multipart_many([[b"o", b"ne"]]),
}


@pytest.mark.parametrize(
    "kinds, send",
    [
        pytest.param(kinds, send, id=f"{'-'.join(kinds)}, {name}")
        for kinds in KINDS
        for name, send in SENDS.items()
        # A CLIENT sends messages of one part.
        if kinds[0] != "CLIENT" or "multipart" not in name
    ],
)
def test_a_message_is_sent_or_not_and_those_behind_it_arrive(
    send: Callable[[Socket], Any], kinds: tuple[str, str]
) -> None:
    def attempt(at: int) -> str:
        with pair(kinds) as (near, far):
            got: list[bytes] = []
            thread = threading.Thread(target=lambda: got.extend(rest(far)))
            thread.start()
            near.send(b"zero")
            where, _ = interrupted(lambda: send(near), at, files=EVERYWHERE)
            near.send(MARKER)
            thread.join()
            assert got in ([b"zero", b"one", MARKER], [b"zero", MARKER]), where
        return where

    everywhere(attempt)


RECEIVES: dict[str, Callable[[Socket], Any]] = {
    "recv": lambda socket: [socket.recv()],
    "recv_multipart": lambda socket: [socket.recv_multipart()],
    "recv_many": lambda socket: socket.recv_many(),
    "recv_many, two": lambda socket: socket.recv_many(2),
    "recv_multipart_many": lambda socket: socket.recv_multipart_many(),
    "recv_multipart_many, four": lambda socket: socket.recv_multipart_many(4),
}


def joined(message: Any) -> bytes:
    return b"".join(message) if isinstance(message, list) else bytes(message)


@pytest.mark.parametrize("begun", [0, 1])
@pytest.mark.parametrize("kinds", KINDS[:3], ids="-".join)
@pytest.mark.parametrize("receive", RECEIVES.values(), ids=RECEIVES)
def test_what_has_come_is_received_once(
    receive: Callable[[Socket], Any], kinds: tuple[str, str], begun: int
) -> None:
    def attempt(at: int) -> str:
        with pair(kinds) as (near, far):
            near.send_many([b"1", b"2", b"3"])
            near.send(b"4")
            near.send_multipart([b"5", b"6"])
            near.send(b"7")
            got = [far.recv() for _ in range(begun)]
            returned: list[Any] = []
            where, received = interrupted(lambda: receive(far), at, files=EVERYWHERE)
            returned = received or []
            got += map(joined, returned)
            near.send(MARKER)
            got += rest(far)
            assert got == [b"1", b"2", b"3", b"4", b"56", b"7", MARKER], where
        return where

    everywhere(attempt)


@pytest.mark.parametrize("place", ["inproc://here", "tcp://127.0.0.1:0"])
def test_a_question_is_answered_once(place: str) -> None:
    def attempt(at: int) -> str:
        with pair(("REQ", "REP"), place) as (asking, answering):

            def answer() -> None:
                question = b""
                while question != MARKER:
                    question = answering.recv()
                    answering.send(question)

            thread = threading.Thread(target=answer)
            thread.start()

            asking.send(b"0")
            assert asking.recv() == b"0"
            where, _ = interrupted(lambda: asking.send(b"1"), at, files=EVERYWHERE)
            there = ""
            if asking._pattern.open is not None:
                there, answer_of_it = interrupted(asking.recv, at, files=EVERYWHERE)
                # What was not returned is returned by the next call.
                assert (answer_of_it or asking.recv()) == b"1", (where, there)
            asking.send(MARKER)
            assert asking.recv() == MARKER, (where, there)
            thread.join()
        return where or there

    everywhere(attempt)


def test_a_rep_answers_what_it_has_received() -> None:
    def attempt(at: int) -> str:
        with pair(("REP", "REQ")) as (answering, asking):
            asking.send(b"1")
            where, question = interrupted(answering.recv, at, files=EVERYWHERE)
            assert (question or answering.recv()) == b"1", where
            there, _ = interrupted(lambda: answering.send(b"2"), at, files=EVERYWHERE)
            if answering._pattern.open is not None:
                answering.send(b"2")
            assert asking.recv() == b"2", there
            asking.send(b"3")
            assert answering.recv() == b"3", (where, there)
        return where or there

    everywhere(attempt)


CALLS: dict[str, Callable[[Socket], Any]] = {
    "subscribe": lambda socket: socket.subscribe(b"a"),
    "poll": lambda socket: socket.poll(0),
    "readable": lambda socket: socket.readable(),
    "fileno": lambda socket: socket.fileno(),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_other_calls_are_made_again(call: Callable[[Socket], Any]) -> None:
    def attempt(at: int) -> str:
        with pair(("PUB", "SUB")) as (near, far):
            where, _ = interrupted(lambda: call(far), at, files=EVERYWHERE)
            call(far)
            near.send(b"abc")
            assert far.recv() == b"abc", where
        return where

    everywhere(attempt)


PROGRAM = """
import select, threading, zmq
from tests.interruptions import EVERYWHERE, interrupted

context = zmq.Context()

def attempt(number, at, send, receive, watched):
    near, far = context.socket(zmq.PUSH), context.socket(zmq.PULL)
    far.rcvtimeo = near.sndtimeo = 10_000
    far.bind(f"inproc://{number}")
    near.connect(f"inproc://{number}")
    descriptor = far.get(zmq.FD) if watched else -1
    where, _ = interrupted(lambda: send(near), at, files=EVERYWHERE)
    near.send(b"more")
    there, part = interrupted(lambda: receive(far), at, files=EVERYWHERE)
    got = [] if part is None else [bytes(part)]
    near.send(b"marker")
    while b"marker" not in got:
        if watched:
            while not far.get(zmq.EVENTS) & zmq.POLLIN:
                assert select.select([descriptor], [], [], 10)[0], (where, there)
        got.append(far.recv(zmq.DONTWAIT if watched else 0))
    assert got in ([b"one", b"more", b"marker"], [b"more", b"marker"]), (where, there, got)
    near.close(0)
    far.close(0)
    return where or there

number = 0
for watched in (False, True):
    for send in (lambda near: near.send(b"one"), lambda near: near.send(b"one", copy=False)):
        for receive in (lambda far: far.recv(), lambda far: far.recv(copy=False)):
            at = 0
            while attempt(number, at, send, receive, watched):
                number, at = number + 1, at + 1
context.term()
print("ended", number > 100)
"""


@pytest.mark.peer("pyzmq")
def test_so_it_is_with_pyzmq() -> None:
    environ = {**os.environ, "PYZMQ_BACKEND": "plugins.apis.sockets.pyzmq_backend", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, env=environ
    )
    assert (done.stdout, done.stderr) == ("ended True\n", "")
