"""SIGKILL of a peer in mid-stream, and its successor at the same place: what each pattern promises goes on to hold."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest

from kernel.contracts.errors import KernelError
from kernel.sockets import Context, Socket
from tests.ports import free_port

pytestmark = [pytest.mark.peer("pyzmq"), pytest.mark.slow]

TIMEOUT = 60.0
KILLS = 2

PEER = """
import sys
import zmq

kind, role, place, run = sys.argv[1:]
socket = zmq.Context().socket(getattr(zmq, kind))
if kind == "SUB":
    socket.subscribe(b"")
if kind in ("REQ", "DEALER"):
    socket.routing_id = b"peer"
getattr(socket, role)(place)
number = 0
while True:
    if kind in ("PUSH", "PUB"):
        socket.send(b"%s %d" % (run.encode(), number))
    elif kind in ("PULL", "SUB"):
        print(socket.recv().decode(), flush=number % 50 == 0)
    elif kind in ("REQ", "DEALER"):
        socket.send(b"%s %d" % (run.encode(), number))
        assert socket.recv() == b"re: %s %d" % (run.encode(), number)
        print(run, number, flush=True)
    else:
        *address, question = socket.recv_multipart()
        socket.send_multipart([*address, b"re: " + run.encode() + b" " + question])
    number += 1
"""


@contextmanager
def peer(kind: str, role: str, place: str, run: int) -> Iterator[subprocess.Popen[str]]:
    """A program on libzmq, which is killed at the end."""
    command = [sys.executable, "-c", PEER, kind, role, place, str(run)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        try:
            yield program
        finally:
            program.kill()


class Load:
    """A thread that uses a socket until its context is closed."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            while True:
                self._work()
        except KernelError as end:
            if type(end).__name__ != "ContextClosed":
                self.failure = end
        except BaseException as failure:
            self.failure = failure

    def end(self) -> None:
        self._thread.join(TIMEOUT)
        assert not self._thread.is_alive()
        assert self.failure is None, self.failure


@pytest.fixture(params=["bind", "connect"])
def role(request: pytest.FixtureRequest) -> str:
    """What the peer does."""
    role: str = request.param
    return role


@pytest.fixture
def context() -> Iterator[Context]:
    with Context() as made:
        yield made


def opened(context: Context, kind: Any, role: str, **options: Any) -> tuple[Socket, str]:
    """Our socket, and the place for the peer's."""
    socket = context.socket(kind, linger=0, reconnect=0.01, **options)
    if kind == "SUB":
        socket.subscribe(b"")
    place = f"tcp://127.0.0.1:{free_port()}"
    if role == "bind":
        socket.connect(place)
    else:
        socket.bind(place)
    return socket, place


def line(program: subprocess.Popen[str]) -> str:
    assert program.stdout is not None
    said = program.stdout.readline()
    assert said, "the peer has ended by itself"
    return said.strip()


@pytest.mark.parametrize("ours, theirs", [("PUSH", "PULL"), ("PUB", "SUB")])
def test_who_sends(context: Context, role: str, ours: str, theirs: str) -> None:
    socket, place = opened(context, ours, role, sndhwm=100)
    numbers = count()
    load = Load(lambda: socket.send(b"%d" % next(numbers)))
    last = -1
    for run in range(KILLS + 1):
        with peer(theirs, role, place, run) as program:
            got = [int(line(program)) for _ in range(200)]
            # In order and once; what the dead one had may be lost, and comes to nobody else again.
            assert got == sorted(set(got))
            assert got[0] > last
            last = got[-1]
    context.close(0)
    load.end()


@pytest.mark.parametrize("ours, theirs", [("PULL", "PUSH"), ("SUB", "PUB")])
def test_who_receives(context: Context, role: str, ours: str, theirs: str) -> None:
    socket, place = opened(context, ours, role, rcvhwm=100)
    for run in range(KILLS + 1):
        with peer(theirs, role, place, run):
            got: list[int] = []
            while len(got) < 200:
                sender, number = map(int, socket.recv(timeout=TIMEOUT).split())
                # What earlier ones have sent is still read, and then no more of it comes.
                assert sender == run or not got
                if sender == run:
                    got.append(number)
            # Each peer is told of the subscription; a PUB may have sent before.
            assert got == list(range(got[0], got[0] + 200)) or theirs == "PUB"
            assert got[0] == 0 or theirs == "PUB"
            assert got == sorted(got)


@pytest.mark.parametrize("ours, theirs", [("REP", "REQ"), ("ROUTER", "REQ"), ("ROUTER", "DEALER")])
def test_who_answers(context: Context, role: str, ours: str, theirs: str) -> None:
    options = {"router_handover": True} if ours == "ROUTER" else {}
    socket, place = opened(context, ours, role, **options)

    def answer() -> None:
        *address, question = socket.recv_multipart()
        socket.send_multipart([*address, b"re: " + question])

    load = Load(answer)
    for run in range(KILLS + 1):
        with peer(theirs, role, place, run) as program:
            assert [line(program) for _ in range(50)] == [f"{run} {number}" for number in range(50)]
    context.close(0)
    load.end()


@pytest.mark.parametrize("theirs", ["REP", "ROUTER"])
def test_who_asks(context: Context, role: str, theirs: str) -> None:
    """A REQ asks again when its answer does not come (lazy pirate)."""
    socket, place = opened(context, "REQ", role, req_relaxed=True, req_correlate=True)
    asked = count()
    for run in range(KILLS + 1):
        with peer(theirs, role, place, run):
            for _ in range(50):
                answer = b""
                while not answer.startswith(b"re: %d " % run):
                    question = b"%d" % next(asked)
                    socket.send(question, timeout=TIMEOUT)
                    try:
                        answer = socket.recv(timeout=0.2)
                    except KernelError:
                        continue
                    # Never that of another question.
                    assert answer.split()[2] == question
