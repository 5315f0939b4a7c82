"""The pump under all stream connections: why it stops reading, when it calls, and how it ends."""

from __future__ import annotations

import gc
import socket
import weakref
from collections import deque

import pytest

from kernel.contracts.message import Buffer
from kernel.hosting import closing_wire
from kernel.hosting.connection import Connection, ConnectionOwner, Pause
from kernel.hosting.read_size import FIRST_READ_SIZE, READ_SIZE, fair_read_size
from kernel.hosting.wire import PlainWire
from kernel.testing.memory_wire import MemoryWire, SimulatedHost
from tests.notes import for_each

LIMIT = 1000


class Owner(ConnectionOwner):
    """Writes down what it is told, and how long each read was."""

    def __init__(self, capacity: int = 1 << 20, host: SimulatedHost | None = None) -> None:
        self.host = host or SimulatedHost()
        self.wire, self.peer = self.host.wire(capacity=capacity)
        self.got = b""
        self.reads: list[int] = []
        self.calls: list[str] = []
        self.reason = ""
        self.deadline: float | None = None
        self.connection = Connection(self.host, self.wire, self, answers_limit=LIMIT)
        self.connection.start()

    def on_data(self, data: bytes, now: float) -> None:
        self.got += data
        self.reads.append(len(data))

    def on_eof(self, now: float) -> None:
        self.connection.close("eof")

    def on_written(self) -> None:
        self.calls.append("written")

    def next_deadline(self) -> float | None:
        return self.deadline

    def on_deadline(self, now: float) -> None:
        self.calls.append(f"deadline at {now:g}")
        self.deadline = None

    def on_not_read(self, now: float) -> None:
        self.calls.append(f"not read until {now:g}")

    def on_ended(self, reason: str) -> None:
        assert not self.reason, "it ends once"
        self.reason = reason

    def comes(self, data: bytes) -> None:
        """The peer writes."""
        self.peer.send(deque([data]))
        self.host.run()

    def due(self, deadline: float) -> None:
        self.deadline = deadline
        self.connection.arm(deadline)


def received(wire: MemoryWire) -> bytes:
    data = b""
    while piece := wire.receive(1 << 20):
        data += piece
    return data


def test_it_reads_only_while_no_reason_is_left_to_pause() -> None:
    owner = Owner()
    owner.connection.pause(Pause.ROUTES_FULL)
    owner.connection.pause(Pause.ALARM)
    owner.comes(b"1")
    owner.connection.resume(Pause.ROUTES_FULL)
    owner.host.run()
    assert (owner.got, owner.calls) == (b"", [])
    owner.connection.resume(Pause.ALARM)
    owner.host.run()
    assert (owner.got, owner.calls) == (b"1", ["not read until 0"])


def test_its_thread_learns_how_much_was_read() -> None:
    owner = Owner()
    ours, theirs = socket.socketpair()
    connection = Connection(owner.host, PlainWire(ours), owner, answers_limit=LIMIT)
    connection.start()
    readable, _ = owner.host._watched[ours.fileno()]
    assert readable is not None
    theirs.send(b"12345")
    assert readable() == 5
    # A descriptor may be reported although nothing is there, and at the end.
    assert readable() == 0
    theirs.close()
    assert readable() == 0
    assert owner.got == b"12345"
    ours.close()


def test_a_peer_that_reads_no_answers_is_not_read_until_it_does() -> None:
    owner = Owner(capacity=100)
    owner.connection.send([b"x" * 5000])  # a message: the owner knows how much it may send
    assert owner.connection.writing
    owner.connection.send([b"a" * LIMIT])
    owner.comes(b"1")
    assert owner.got == b"1"
    owner.connection.send([b"a"])
    owner.comes(b"2")
    assert owner.got == b"1"
    assert owner.connection.paused == Pause.ANSWERS_UNREAD
    total = 0
    while owner.connection.unwritten > LIMIT // 2 + 100:
        total += len(received(owner.peer))
        owner.host.run()
    assert owner.got == b"1", "half of it has to be written first, or it would go on and off all the time"
    while owner.connection.writing:
        total += len(received(owner.peer))
        owner.host.run()
    assert owner.got == b"12"
    assert total + len(received(owner.peer)) == 5000 + LIMIT + 1


def test_many_small_pieces_are_not_counted_each_time_that_somebody_asks() -> None:
    looked = 0

    class Piece(bytes):
        def __len__(self) -> int:
            nonlocal looked
            looked += 1
            return super().__len__()

    owner = Owner(capacity=100)
    owner.connection.send([b"x" * 150])
    for count in range(1, 1001):
        owner.connection.send([Piece(b"12345678")])
        assert owner.connection.unwritten == 50 + 8 * count
    assert looked < 5 * 1000
    while owner.connection.writing:
        left = owner.connection.unwritten
        left -= len(received(owner.peer))
        owner.host.run()
        assert owner.connection.unwritten == max(left, 0)
    assert owner.connection.unwritten == 0


def test_a_deadline_is_kept_and_one_that_moves_away_is_not_called_early() -> None:
    owner = Owner()
    owner.due(10)
    owner.host.run(until=5)
    owner.due(20)
    owner.host.run(until=100)
    assert owner.calls == ["deadline at 20"]


def test_what_came_while_the_thread_was_busy_came_before_the_deadline() -> None:
    owner = Owner()
    owner.due(10)
    owner.peer.send(deque([b"in time"]))
    owner.host.after(0, lambda: None)
    owner.host._clock = 50  # the thread was busy
    seen: list[bytes] = []
    owner.on_deadline = lambda now: seen.append(owner.got) or setattr(owner, "deadline", None)  # type: ignore[func-returns-value, method-assign]
    owner.host.run(until=50)
    assert seen == [b"in time"]


@pytest.mark.parametrize(
    "reason, calls",
    [
        (Pause.ROUTES_FULL, ["not read until 10", "deadline at 10"]),
        (Pause.ANSWERS_UNREAD, ["deadline at 10"]),
    ],
)
def test_a_peer_that_we_do_not_read_is_not_silent_but_one_that_does_not_read_us_is(
    reason: int, calls: list[str]
) -> None:
    owner = Owner()
    owner.connection.pause(reason)
    owner.due(10)
    owner.host.run(until=11)
    assert owner.calls == calls


def test_a_slow_peer_that_takes_what_waits_for_it_is_alive() -> None:
    owner = Owner(capacity=100)
    owner.connection.send([b"x" * 250])
    owner.connection.send([b"a" * 2 * LIMIT])
    assert owner.connection.paused == Pause.ANSWERS_UNREAD
    owner.host.run()
    received(owner.peer)
    owner.host.run()
    assert owner.calls == ["not read until 0", "written"]


def test_a_wire_that_is_cut_ends_it_once() -> None:
    owner = Owner()
    owner.wire.cut = True
    owner.connection.send([b"1"])
    owner.connection.send([b"2"])
    owner.host.run()
    assert "connection lost" in owner.reason
    assert owner.wire.fileno() == -1


class TestGoodOrder:
    """``close``: the last words arrive, and the peer may finish what it was writing."""

    def test_what_is_queued_and_the_last_words_are_written_behind_each_other(self) -> None:
        owner = Owner(capacity=100)
        owner.connection.send([b"q" * 250])
        owner.connection.close("enough", [b"bye"])
        assert owner.reason == "enough", "the owner need not wait"
        data = b""
        for _ in range(5):
            owner.host.run()
            data += received(owner.peer)
        assert data == b"q" * 250 + b"bye"
        assert owner.peer.receive(1) == b"", "it sees the end"

    def test_input_is_thrown_away_until_the_peer_ends_too(self) -> None:
        owner = Owner()
        owner.connection.close("enough")
        owner.comes(b"a lot")
        assert owner.got == b""
        assert owner.wire.fileno() != -1
        owner.peer.close()
        owner.host.run()
        assert owner.wire.fileno() == -1

    def test_a_peer_that_does_not_end_is_given_a_few_seconds(self) -> None:
        owner = Owner()
        owner.connection.close("enough")
        owner.host.run(until=closing_wire.SECONDS - 0.1)
        assert owner.wire.fileno() != -1
        owner.host.run(until=closing_wire.SECONDS)
        assert owner.wire.fileno() == -1

    @pytest.mark.parametrize("written", [True, False])
    def test_the_end_waits_for_that_of_a_peer_that_is_to_close_first(self, written: bool) -> None:
        owner = Owner(capacity=100)
        owner.connection.close("enough", [b"bye" if written else b"b" * 250], peer_first=True)
        data = b""
        for _ in range(5):
            owner.host.run()
            data += received(owner.peer)
        assert len(data) == (3 if written else 250)
        assert owner.peer.receive(1) is None, "it sees no end"
        owner.peer.close()
        owner.host.run()
        assert owner.wire.fileno() == -1

    def test_a_peer_that_is_to_close_first_and_does_not_is_given_a_few_seconds(self) -> None:
        owner = Owner()
        owner.connection.close("enough", [b"bye"], peer_first=True)
        owner.host.run(until=closing_wire.SECONDS - 0.1)
        assert received(owner.peer) == b"bye"
        assert owner.peer.receive(1) is None
        owner.host.run(until=closing_wire.SECONDS)
        assert owner.wire.fileno() == -1
        assert owner.peer.receive(1) == b""

    def test_a_peer_that_sends_without_end_is_read_so_far_and_no_further(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(closing_wire, "DISCARDED_BYTES", 1000)
        owner = Owner()
        owner.connection.close("enough")
        owner.comes(b"x" * 1000)
        assert owner.wire.fileno() != -1
        owner.comes(b"x")
        assert owner.wire.fileno() == -1

    def test_a_host_that_lets_go_of_it_closes_it(self) -> None:
        owner = Owner()
        owner.connection.close("enough")
        owner.host.release()
        assert owner.wire.fileno() == -1

    def test_a_system_socket_sends_no_reset(self) -> None:
        host = SimulatedHost()
        ours, theirs = socket.socketpair()
        with theirs:
            connection = Connection(host, PlainWire(ours), ConnectionOwnerThatForgets())
            connection.start()
            theirs.sendall(b"unread")
            connection.close("enough", [b"last words"])
            theirs.sendall(b"more")
            assert theirs.recv(100) == b"last words"
            assert theirs.recv(100) == b""
        host.release()


class ConnectionOwnerThatForgets(ConnectionOwner):
    def on_ended(self, reason: str) -> None: ...


def test_an_end_that_no_descriptor_tells_of_is_an_end() -> None:
    owner = Owner()
    owner.wire.at_end = True  # as over TLS
    owner.comes(b"the last bytes")
    assert (owner.got, owner.reason) == (b"the last bytes", "eof")


def test_what_has_ended_is_freed_without_a_collection_of_garbage() -> None:
    """Not even a deadline that is far away keeps it."""
    host = SimulatedHost()
    gc.disable()
    try:
        owner = Owner(host=host)
        owner.due(1000)
        owner.peer.close()
        host.run()
        assert owner.reason
        gone = weakref.ref(owner), weakref.ref(owner.connection)
        del owner
        assert [each() for each in gone] == [None, None]
    finally:
        gc.enable()


def test_what_is_sent_after_the_end_is_dropped() -> None:
    owner = Owner()
    owner.connection.end("enough")
    buffers: list[Buffer] = [b"late"]
    owner.connection.send(buffers)
    owner.connection.close("again")
    owner.connection.end("and again")
    assert (owner.reason, owner.connection.bytes_out) == ("enough", 0)


def test_bursts_that_are_a_little_too_long_for_one_read_are_one_read_from_the_second_on() -> None:
    """Each read is a turn of the owner: two turns for each burst cost it nearly twice the processor time."""
    owner = Owner()
    burst = bytes(FIRST_READ_SIZE + 216)
    for _ in range(3):
        owner.comes(burst)
    assert owner.reads == [FIRST_READ_SIZE, 216, len(burst), len(burst)]


def test_two_short_reads_in_a_row_make_the_next_one_small_again() -> None:
    owner = Owner()
    burst = bytes(FIRST_READ_SIZE + 1)
    owner.comes(burst)
    owner.comes(b"short")
    owner.comes(burst)
    assert owner.reads == [FIRST_READ_SIZE, 1, 5, FIRST_READ_SIZE, 1]


class _Clocks(SimulatedHost):
    """The time that passes, and the part of it that the thread has worked, move as a test says."""

    waited = worked = 0.0
    looks = 0
    """How often the processor's clock was looked at: each is a system call."""

    def now(self) -> float:
        return super().now() + self.waited + self.worked

    def processor_time(self) -> float:
        self.looks += 1
        return self.worked


class _SlowOwner(Owner):
    """Waits for a core, and works, with each of its reads."""

    wait = work = 0.0

    def on_data(self, data: bytes, now: float) -> None:
        super().on_data(data, now)
        assert isinstance(self.host, _Clocks)
        self.host.waited += self.wait
        self.host.worked += self.work


@pytest.mark.parametrize(
    "wait, work, following",
    [(1.0, 0.001, READ_SIZE), (0.0, 0.2, 13107), (1.0, 0.2, 13107)],
)
def test_a_large_read_is_judged_by_the_work_that_it_makes(wait: float, work: float, following: int) -> None:
    owner = _SlowOwner(host=_Clocks())
    owner.comes(bytes(53 * FIRST_READ_SIZE))
    assert owner.reads == [FIRST_READ_SIZE, 4 * FIRST_READ_SIZE, 16 * FIRST_READ_SIZE, READ_SIZE]
    owner.reads.clear()
    owner.wait, owner.work = wait, work
    owner.comes(bytes(READ_SIZE + following))
    assert owner.reads == [READ_SIZE, following]


def test_few_bytes_cost_no_system_call_for_a_clock_however_many_were_asked_for() -> None:
    host = _Clocks()
    owner = Owner(host=host)
    owner.comes(bytes(53 * FIRST_READ_SIZE))
    assert (owner.reads[-1], host.looks) == (READ_SIZE, 6)  # three reads of more than the first size
    owner.comes(bytes(FIRST_READ_SIZE))
    assert (owner.reads[-1], host.looks) == (FIRST_READ_SIZE, 6)
    owner.comes(bytes(FIRST_READ_SIZE + 1))
    assert (owner.reads[-1], host.looks) == (FIRST_READ_SIZE + 1, 8)


@for_each(
    "size, got, seconds, expected",
    [
        (16384, 16384, 0.0, 65536),
        (16384, 16384, 0.001, 65536),
        (65536, 65536, 0.002, 163840),
        (262144, 262144, 0.001, 524288),
        (524288, 524288, 0.001, 524288),
        (262144, 262144, 0.2, 6553),
        (16384, 16384, 1.0, 4096),
        (65536, 5000, 0.00001, 65536),
    ],
)
def test_a_read_is_as_large_as_the_others_can_bear(
    size: int, got: int, seconds: float, expected: int
) -> None:
    assert fair_read_size(size, got, size, seconds) == expected
