"""SIGKILL of a peer in mid-stream, and its successor at the same place: what each pattern promises goes on to hold."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from kernel.contracts.errors import KernelError
from kernel.sockets import Context, Socket, Unreachable, proxy
from tests.ports import free_port

pytestmark = [pytest.mark.peer("pyzmq"), pytest.mark.slow]

ROOT = Path(__file__).parents[4]
TIMEOUT = 60.0
KILLS = 2
PUBLISHERS = ("PUB", "XPUB", "RADIO")
DRAFTS = ("CLIENT", "SERVER", "RADIO", "DISH", "SCATTER", "GATHER")

PEER = """
import sys
import zmq

kind, role, place, run = sys.argv[1:]
socket = zmq.Context().socket(getattr(zmq, kind.partition("-")[0]))
if kind == "SUB":
    socket.subscribe(b"")
if kind == "DISH":
    socket.join("")
if kind == "XSUB":
    socket.send(b"\\1")
if kind in ("REQ", "DEALER"):
    socket.routing_id = b"peer"
getattr(socket, role)(place)
number = 0
while True:
    if kind in ("PUSH", "PUB", "XPUB", "SCATTER", "RADIO", "PAIR-sends"):
        socket.send(b"%s %d" % (run.encode(), number))
    elif kind in ("PULL", "SUB", "XSUB", "GATHER", "DISH", "PAIR"):
        print(socket.recv().decode(), flush=number % 50 == 0)
    elif kind in ("REQ", "DEALER", "CLIENT"):
        socket.send(b"%s %d" % (run.encode(), number))
        assert socket.recv() == b"re: %s %d" % (run.encode(), number)
        print(run, number, flush=True)
    elif kind == "SERVER":
        question = socket.recv(copy=False)
        socket.send(b"re: " + run.encode() + b" " + question.bytes, routing_id=question.routing_id)
    elif kind == "STREAM":
        if number == 0:
            stranger, nothing = socket.recv_multipart()
        question = b"%s %d\\n" % (run.encode(), number)
        socket.send_multipart([stranger, question])
        answer = b""
        while not answer.endswith(b"\\n"):
            answer += socket.recv_multipart()[1]
        assert answer == b"re: " + question
        print(run, number, flush=True)
    else:
        *address, question = socket.recv_multipart()
        socket.send_multipart([*address, b"re: " + run.encode() + b" " + question])
    number += 1
"""


@contextmanager
def peer(kind: str, role: str, place: str, run: int) -> Iterator[subprocess.Popen[str]]:
    """A program on libzmq, which is killed at the end.  The types that its wheel does not have are on our backend."""
    command = [sys.executable, "-c", PEER, kind, role, place, str(run)]
    own = {**os.environ, "PYTHONPATH": str(ROOT)}
    if kind in DRAFTS:
        own["PYZMQ_BACKEND"] = "plugins.apis.sockets.pyzmq_backend"
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=own) as program:
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
    if kind in ("SUB", "XSUB"):
        socket.subscribe(b"")
    if kind == "DISH":
        socket.join(b"")
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


@pytest.mark.parametrize(
    "ours, theirs",
    [
        ("PUSH", "PULL"),
        ("PUB", "SUB"),
        ("PUB", "XSUB"),
        ("XPUB", "SUB"),
        ("XPUB", "XSUB"),
        ("PAIR", "PAIR"),
        ("SCATTER", "GATHER"),
        ("RADIO", "DISH"),
    ],
)
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


@pytest.mark.parametrize(
    "ours, theirs",
    [
        ("PULL", "PUSH"),
        ("SUB", "PUB"),
        ("SUB", "XPUB"),
        ("XSUB", "PUB"),
        ("XSUB", "XPUB"),
        ("PAIR", "PAIR-sends"),
        ("GATHER", "SCATTER"),
        ("DISH", "RADIO"),
    ],
)
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
            assert got == list(range(got[0], got[0] + 200)) or theirs in PUBLISHERS
            assert got[0] == 0 or theirs in PUBLISHERS
            assert got == sorted(got)


@pytest.mark.parametrize(
    "ours, theirs", [("REP", "REQ"), ("ROUTER", "REQ"), ("ROUTER", "DEALER"), ("SERVER", "CLIENT")]
)
def test_who_answers(context: Context, role: str, ours: str, theirs: str) -> None:
    options = {"router_handover": True} if ours == "ROUTER" else {}
    socket, place = opened(context, ours, role, **options)

    def answer() -> None:
        if ours == "SERVER":
            client, question = socket.recv_from()
            # It may have been killed since.
            with suppress(Unreachable):
                socket.send_to(client, b"re: " + question)
            return
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
            ask(socket, asked, run)


def ask(req: Socket, asked: Iterator[int], run: int) -> None:
    """Have questions answered by one peer.  There may be none when they are asked."""
    for _ in range(50):
        answer = b""
        while not answer.startswith(b"re: %d " % run):
            question = b"%d" % next(asked)
            req.send(question, timeout=TIMEOUT)
            try:
                answer = req.recv(timeout=0.2)
            except KernelError:
                continue
            # Never that of another question.
            assert answer.split()[2] == question


@pytest.mark.parametrize("ours, theirs", [("DEALER", "REP"), ("DEALER", "ROUTER"), ("CLIENT", "SERVER")])
def test_who_asks_out_of_turn(context: Context, role: str, ours: str, theirs: str) -> None:
    """Answers come in order and once; what a dead peer had is lost, and its successor has what comes next."""
    socket, place = opened(context, ours, role)
    address = [b""] if ours == "DEALER" else []
    asked = count()
    for run in range(KILLS + 1):
        with peer(theirs, role, place, run):
            got: list[int] = []
            while len(got) < 50:
                socket.send_multipart([*address, b"%d" % next(asked)], timeout=TIMEOUT)
                try:
                    *_, answer = socket.recv_multipart(timeout=0.2)
                except KernelError:
                    continue
                _, who, number = answer.split()
                # What the dead one has answered is still read, and then no more of it comes.
                assert int(who) == run or not got
                if int(who) == run:
                    got.append(int(number))
            assert got == sorted(set(got))
    context.close(0)


def test_a_stream(context: Context, role: str) -> None:
    """Between the notices that a peer has come and that it has gone are its bytes; a successor begins anew."""
    socket, place = opened(context, "STREAM", role)
    names = []
    for run in range(KILLS + 1):
        with peer("STREAM", role, place, run) as program:
            name, notice = socket.recv_multipart(timeout=TIMEOUT)
            assert notice == b""
            names.append(name)
            said = b""
            for number in range(50):
                # The peer asks again when it has its answer, so nothing comes behind a question.
                while not said.endswith(b"\n"):
                    sender, some = socket.recv_multipart(timeout=TIMEOUT)
                    assert sender == name
                    said += some
                assert said == b"%d %d\n" % (run, number)
                socket.send_multipart([name, b"re: " + said])
                assert line(program) == f"{run} {number}"
                said = b""
        while (message := socket.recv_multipart(timeout=TIMEOUT)) != [name, b""]:
            assert message[0] == name
            said += message[1]
        assert (b"%d 50\n" % run).startswith(said)
    # The peer of a connect place keeps its name.
    assert len(set(names)) == (1 if role == "bind" else KILLS + 1)
    context.close(0)


def device(context: Context, front: Any, back: Any) -> tuple[Load, list[str]]:
    """Two of our sockets with a proxy between them, and their places."""
    options = {"router_handover": True} if front == "ROUTER" else {}
    sockets = (
        context.socket(front, linger=0, rcvhwm=100, **options),
        context.socket(back, linger=0, sndhwm=100),
    )
    places = [socket.bind("tcp://127.0.0.1:0") for socket in sockets]

    def work() -> None:
        proxy(*sockets)
        # It has returned because of the end of the context, which this says.
        sockets[0].recv(timeout=0)

    return Load(work), places


@pytest.mark.parametrize(
    "front, back, gives, takes", [("XSUB", "XPUB", "PUB", "SUB"), ("PULL", "PUSH", "PUSH", "PULL")]
)
def test_a_device(context: Context, front: str, back: str, gives: str, takes: str) -> None:
    """Both sides are killed by turns: each successor gets what comes next, in order and once."""
    load, places = device(context, front, back)
    last = dict.fromkeys(range(KILLS + 1), -1)
    for run in range(KILLS + 1):
        with peer(gives, "connect", places[0], run):
            for _ in range(KILLS):
                with peer(takes, "connect", places[1], run) as program:
                    # What an earlier one has sent may still be in the device.
                    left = 200
                    while left:
                        who, number = map(int, line(program).split())
                        assert number > last[who]
                        last[who] = number
                        left -= who == run
    context.close(0)
    load.end()


def test_a_device_of_questions(context: Context) -> None:
    """Who asks is killed: its successor of the same name has its own answers."""
    load, places = device(context, "ROUTER", "DEALER")
    rep = context.socket("REP", linger=0)
    rep.connect(places[1])
    answers = Load(lambda: rep.send(b"re: " + rep.recv()))
    for run in range(KILLS + 1):
        with peer("REQ", "connect", places[0], run) as program:
            assert [line(program) for _ in range(50)] == [f"{run} {number}" for number in range(50)]
    context.close(0)
    load.end()
    answers.end()


def test_who_answers_behind_a_device(context: Context) -> None:
    """Questions that a dead one had are lost; who asks again has the answers of its successor."""
    load, places = device(context, "ROUTER", "DEALER")
    req = context.socket("REQ", linger=0, req_relaxed=True, req_correlate=True)
    req.connect(places[0])
    asked = count()
    for run in range(KILLS + 1):
        with peer("REP", "connect", places[1], run):
            ask(req, asked, run)
    context.close(0)
    load.end()
