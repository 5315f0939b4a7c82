"""Leases of sockets: lone messages pass between the application's thread and the socket of the only peer."""

from __future__ import annotations

import errno
import os
import select
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from kernel.contracts.errors import KernelError
from kernel.hosting.borrower import FIRST
from kernel.sockets import Again, Context, Socket, SocketClosed, poll
from plugins.apis.sockets.errors import ContextClosed, WrongState
from plugins.apis.sockets.options import TypeName
from tests.interruptions import EVERYWHERE, interrupted
from tests.systems import lends

pytestmark = lends

ROOT = Path(__file__).parents[4]
TIMEOUT = 60.0
ENOUGH = 40_000
"""Messages after which there has to have been a lease.  A busy machine may take many away."""

KINDS = [("REQ", "REP"), ("DEALER", "DEALER"), ("PAIR", "PAIR"), ("CLIENT", "SERVER"), ("DEALER", "ROUTER")]
LENT = KINDS[:3]


class Pair:
    """Two contexts; behind the far socket a thread answers each message with the same."""

    def __init__(self, kinds: tuple[str, str] = ("REQ", "REP"), place: str = "tcp://127.0.0.1:0") -> None:
        mine, its = kinds
        self.far, self.near = Context(), Context()
        self.answering = self.far.socket(cast("TypeName", its))
        self.place = self.answering.bind(place)
        self.socket = self.near.socket(cast("TypeName", mine), rcvtimeo=TIMEOUT)
        self.socket.connect(self.place)
        self.thread = threading.Thread(target=self._answer, daemon=True)
        self.thread.start()

    def _answer(self) -> None:
        try:
            while True:
                if self.answering.type == "SERVER":
                    self.answering.send_to(*self.answering.recv_from())
                elif self.answering.type == "ROUTER":
                    self.answering.send_multipart(self.answering.recv_multipart())
                else:
                    body = self.answering.recv()
                    if self.answering.more:
                        self.answering.send_multipart([body, *self.answering.recv_multipart()])
                    else:
                        self.answering.send(body)
        except KernelError:
            return

    def ask(self, body: bytes) -> None:
        self.socket.send(body)
        assert self.socket.recv() == body

    def lend(self) -> Any:
        """Exchange messages until there is a lease; return it."""
        end = self.socket._end
        assert end._borrower is not None
        end._borrower.after = 8
        for number in range(ENOUGH):
            self.ask(b"lend %d" % number)
            if end.leased is not None and end.leased.active:
                return end.leased
        raise AssertionError("no lease")

    def close(self) -> None:
        self.near.close(0)
        self.far.close(0)
        self.thread.join(TIMEOUT)
        assert not self.thread.is_alive()


@pytest.fixture(params=LENT, ids="-".join)
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    pair = Pair(request.param)
    yield pair
    pair.close()


def test_lone_messages_pass_without_the_poll_thread(pair: Pair) -> None:
    sizes = (0, 1, 255, 256, 4000)
    lease = pair.lend()
    before = lease.received
    # On a busy machine a look may end it in between.
    while lease.received < before + len(sizes):
        lease = pair.lend()
        before = lease.received
        for size in sizes:
            pair.ask(bytes(size))


def test_a_thread_that_waits_in_poll_keeps_its_lease(pair: Pair) -> None:
    end, received = pair.socket._end, 0
    assert end._borrower is not None
    for number in range(ENOUGH):
        end._borrower.after = 8
        pair.socket.send(b"%d" % number)
        assert poll([pair.socket], timeout=TIMEOUT) == [pair.socket]
        assert pair.socket.recv() == b"%d" % number
        # On a busy machine a look may end it in between.
        received = end.leased.received if end.leased is not None else 0
        if received > 10:
            break
    assert received > 10
    if pair.socket.type != "REQ":
        assert poll([pair.socket], timeout=0) == []
        assert poll([pair.socket], timeout=0.01) == []
    pair.socket.send_multipart([b"two", b"parts"])
    assert poll([pair.socket], timeout=TIMEOUT) == [pair.socket]
    assert pair.socket.recv_multipart() == [b"two", b"parts"]
    pair.socket.close()
    with pytest.raises(SocketClosed):
        poll([pair.socket], timeout=0)


def test_lone_messages_pass_over_ipc_as_well(tmp_path: Path) -> None:
    pair = Pair(place=f"ipc://{tmp_path / 'here'}")
    pair.lend()
    pair.ask(b"on")
    pair.close()


@pytest.mark.parametrize("kinds", KINDS, ids="-".join)
def test_what_is_not_one_short_message_takes_the_usual_way_and_keeps_its_order(
    kinds: tuple[str, str],
) -> None:
    pair = Pair(kinds)
    socket, lends = pair.socket, kinds in LENT

    def some_lone_messages() -> None:
        for number in range(20):
            pair.ask(b"%d" % number)
        if lends:
            pair.lend()

    large = bytes(range(256)) * 1000
    some_lone_messages()
    pair.ask(large)
    some_lone_messages()
    if kinds[0] != "REQ":
        for timeout in (0, 1e-3):
            with pytest.raises(Again):
                socket.recv(timeout=timeout)
            some_lone_messages()
    socket.send(b"polled")
    assert socket.poll(TIMEOUT)
    assert socket.recv() == b"polled"
    if kinds[0] != "CLIENT":
        some_lone_messages()
        socket.send_multipart([b"two", b"parts"])
        assert socket.recv_multipart() == [b"two", b"parts"]
        some_lone_messages()
        socket.send_multipart([b"again", b"two"])
        assert (socket.recv(), socket.more, socket.recv(), socket.more) == (b"again", True, b"two", False)
    if kinds[0] != "REQ":
        some_lone_messages()
        for body in (b"first", b"second", b"third"):
            socket.send(body)
        assert [socket.recv() for _ in range(3)] == [b"first", b"second", b"third"]
        some_lone_messages()
        socket.send_many([b"1", b"2"])
        socket.send(b"3")
        assert [socket.recv() for _ in range(3)] == [b"1", b"2", b"3"]
    some_lone_messages()
    pair.close()


def test_whose_turn_it_is_stays_the_same_with_a_lease() -> None:
    pair = Pair()
    pair.lend()
    with pytest.raises(WrongState):
        pair.socket.recv()
    pair.lend()
    pair.socket.send(b"one")
    with pytest.raises(WrongState):
        pair.socket.send(b"two")
    assert pair.socket.recv() == b"one"
    pair.lend()
    pair.close()


def test_another_peer_of_a_rep_with_a_lease_is_answered_too() -> None:
    pair = Pair()
    pair.lend()
    for number in range(3):
        with pair.near.socket("REQ", rcvtimeo=TIMEOUT) as other:
            other.connect(pair.place)
            for turn in range(10):
                pair.socket.send(b"one")
                other.send(b"other %d %d" % (number, turn))
                assert other.recv() == b"other %d %d" % (number, turn)
                assert pair.socket.recv() == b"one"
        pair.lend()
    pair.close()


def test_a_req_with_a_lease_gets_a_second_server() -> None:
    pair, second = Pair(), Pair()
    lease = pair.lend()
    pair.socket.connect(second.place)
    for number in range(20):
        pair.ask(b"%d" % number)
    assert not lease.active
    pair.close()
    second.close()


def test_a_message_that_comes_while_the_application_does_something_else_is_seen(pair: Pair) -> None:
    lease = pair.lend()
    pair.socket.send(b"look")
    # Nobody receives: the poll thread takes the socket back by itself, at its second look.
    while lease.active:
        pair.near.kernel.inspect("connections")
    assert pair.socket.readable() or pair.socket.poll(TIMEOUT)
    assert pair.socket.recv() == b"look"


def test_a_descriptor_tells_of_what_comes_after_a_lease(pair: Pair) -> None:
    import select

    pair.lend()
    pair.socket.send(b"tell")
    waiting = select.poll()
    waiting.register(pair.socket.fileno(), select.POLLIN)
    while not pair.socket.readable():
        assert waiting.poll(TIMEOUT * 1000)
        pair.socket.fileno()
    assert pair.socket.recv() == b"tell"


def test_a_context_that_closes_wakes_who_waits_with_a_lease(pair: Pair) -> None:
    pair.lend()
    # The far one takes the question, and does not answer it any more.
    waiting = threading.Event()

    def close() -> None:
        waiting.wait(TIMEOUT)
        pair.near.close(0)

    closer = threading.Thread(target=close)
    closer.start()
    if pair.socket.type == "REQ":
        pair.answering.close(0)
        pair.socket.send(b"nobody answers")
    waiting.set()
    with pytest.raises(ContextClosed):
        pair.socket.recv()
    closer.join(TIMEOUT)


def test_a_socket_that_closes_with_a_lease_still_writes_what_was_sent() -> None:
    pair = Pair()
    pair.lend()
    pair.socket.send(b"last")
    pair.socket.close()
    with pair.near.socket(cast("TypeName", pair.socket.type), rcvtimeo=TIMEOUT) as other:
        # Its peer goes on with the next one.
        place = pair.place
        other.connect(place)
        other.send(b"next")
        assert other.recv() == b"next"
    pair.close()


def test_a_message_that_comes_together_with_the_end_does_not_begin_or_keep_a_lease(pair: Pair) -> None:
    lease = pair.lend()
    end = pair.socket._end
    # As if both were found in one look: the end is told once, and then nobody rings the bell any more.
    end._close("over")
    assert end.leased is None
    with pytest.raises(ContextClosed):
        pair.socket.send(b"x")
    with pytest.raises((ContextClosed, WrongState)):
        pair.socket.recv()
    assert end.leased is not lease


@pytest.mark.slow
@pytest.mark.parametrize("kinds", LENT, ids="-".join)
def test_a_handler_that_raises_anywhere_loses_nothing_and_repeats_nothing(kinds: tuple[str, str]) -> None:
    pair = Pair(kinds)
    socket, places = pair.socket, set()
    asks = kinds[0] == "REQ"
    for which in ("send", "receive"):
        at = 0
        while True:
            pair.lend()
            mine, marker = b"%s %d" % (which.encode(), at), b"marker %d" % at
            if which == "send":
                where, _ = interrupted(lambda: socket.send(mine), at, files=EVERYWHERE)  # noqa: B023 - called at once
                expected, answer = [[mine, marker], [marker]], None
            else:
                socket.send(mine)
                where, answer = interrupted(socket.recv, at, files=EVERYWHERE)
                expected = [[mine, marker]]
            got = [] if answer is None else [answer]
            # A REQ that has asked receives before it asks again.
            if asks and not got and (which == "receive" or not where):
                got.append(socket.recv())
            socket.send(marker)
            while not got or got[-1] != marker:
                got.append(socket.recv())
            assert got in expected, where
            if not where:
                break
            places.add(where)
            at += 1
    assert {place.partition(":")[0] for place in places} >= {"send", "receive"}
    assert len(places) > 10
    pair.close()


PROGRAM = """
import signal, sys, threading
import zmq

context = zmq.Context()
far, near = zmq.Context(), context
rep, req = far.socket(zmq.REP), near.socket(zmq.REQ)
rep.bind("tcp://127.0.0.1:*")
req.connect(rep.last_endpoint.decode())

def answer():
    try:
        while True:
            rep.send(rep.recv())
    except zmq.ContextTerminated:
        rep.close(0)

thread = threading.Thread(target=answer)
thread.start()

def lend():
    end = req._core.socket._end
    for number in range(40_000):
        req.send(b"%d" % number)
        assert req.recv() == b"%d" % number
        if end.leased is not None and end.leased.active:
            return
        end._borrower.after = 8
    raise AssertionError("no lease")

lend()
# A poller, without a wait, and frames.
req.send(b"polled")
assert req.poll(30_000) and req.recv() == b"polled"
lend()
req.send(b"looked for")
while True:
    try:
        assert req.recv(zmq.NOBLOCK) == b"looked for"
        break
    except zmq.Again:
        pass
lend()
req.send(b"frame")
frame = req.recv(copy=False)
assert (frame.bytes, frame["Socket-Type"], frame.more) == (b"frame", "REP", False)
lend()
try:
    req.recv()
    raise AssertionError("it is not its turn")
except zmq.ZMQError as error:
    assert error.errno == zmq.EFSM
lend()
# ETERM, in the middle of a wait with a lease.
req.rcvtimeo = -1
lend()
def end():
    near.term()
ending = threading.Thread(target=end)
def interrupt(*_):
    ending.start()
signal.signal(signal.SIGALRM, interrupt)
signal.setitimer(signal.ITIMER_REAL, 0.2)
try:
    while True:
        req.send(b"on")
        req.recv()
except zmq.ContextTerminated:
    req.close(0)
ending.join()
far.term()
thread.join()
print("ended")
"""


@pytest.mark.peer("pyzmq")
def test_programs_of_pyzmq_use_leases_and_their_calls_mean_what_they_mean() -> None:
    environ = {**os.environ, "PYZMQ_BACKEND": "plugins.apis.sockets.pyzmq_backend", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=2 * TIMEOUT, env=environ
    )
    assert (done.stdout, done.stderr) == ("ended\n", "")


def test_a_socket_is_used_by_one_thread_after_another_with_a_lease(pair: Pair) -> None:
    pair.lend()
    failures: list[BaseException] = []

    def use(socket: Socket) -> None:
        try:
            for number in range(20):
                socket.send(b"%d" % number)
                assert socket.recv() == b"%d" % number
        except BaseException as error:
            failures.append(error)

    for _ in range(3):
        thread = threading.Thread(target=use, args=(pair.socket,))
        thread.start()
        thread.join(TIMEOUT)
        use(pair.socket)
    assert not failures


def test_who_keeps_the_descriptor_of_the_bell_is_told_of_all_that_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without descriptors for another one, leases end with each wait."""
    pair = Pair(("DEALER", "DEALER"))
    waiting = pair.socket._waiting

    def none() -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as full:
        full.setattr(select, "epoll", none)
        waiting.fix()
    bell = waiting.fileno()
    for number in range(3 * FIRST):
        pair.socket.send(b"%d" % number)
        while not waiting.readable():
            if waiting.arm():
                assert waiting.fileno() == bell
                assert select.select([bell], [], [], TIMEOUT)[0]
            pair.socket._end.disarm()
        assert pair.socket.recv() == b"%d" % number
    pair.close()
