"""Client host: how a client's turn ends, on wires in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernel.contracts.message import Buffer
from kernel.hosting.client_host import ClientHost
from kernel.hosting.connection import Pause
from kernel.testing.memory_wire import MemoryWire, SimulatedHost


class Counters:
    bytes_in = 0
    bytes_out = 0


class Session:
    """Says what the test has prepared."""

    def __init__(self) -> None:
        self.reason = "done"
        self.finished = False
        self.stops_reading = False
        self.written: Callable[[], None] | None = None
        self.answers: list[Buffer] = []
        self.messages: list[Buffer] = []
        self.deadline: float | None = None
        self.asked: list[bool] = []

    def take_output(self, *, publish: bool) -> tuple[Sequence[Buffer], bool]:
        self.asked.append(publish)
        out, self.answers = self.answers, []
        if publish and self.messages:
            out.append(self.messages.pop(0))
        return out, bool(self.messages)

    def next_deadline(self) -> float | None:
        return self.deadline


class Client(ClientHost[Session]):
    def __init__(self, host: SimulatedHost, wire: MemoryWire, session: Session) -> None:
        super().__init__(host, wire, Counters())  # type: ignore[arg-type]  # as much of one as is used
        self.session = session
        self.deadlines: list[float] = []
        self.ends: list[str] = []

    def on_data(self, data: bytes, now: float) -> None:
        self.finish()

    def on_eof(self, now: float) -> None:
        self.connection.close("hung up")

    def on_deadline(self, now: float) -> None:
        self.deadlines.append(now)
        self.session.deadline = None

    def on_ended(self, reason: str) -> None:
        self.ends.append(reason)


class World:
    def __init__(self, capacity: int = 1 << 20) -> None:
        self.host = SimulatedHost()
        self.session = Session()
        ours, self.server = self.host.wire(capacity=capacity)
        self.client = Client(self.host, ours, self.session)

    def run(self, seconds: float = 0.0) -> None:
        self.host.run(until=self.host.now() + seconds)

    def read(self) -> bytes:
        got = b""
        while data := self.server.receive(1 << 20):
            got += data
        self.run()
        return got


def test_each_turn_publishes_once_and_the_rest_comes_in_the_next_turns() -> None:
    world = World()
    world.session.answers = [b"hello"]
    world.session.messages = [b"1", b"2", b"3"]
    world.client.start()
    assert world.session.asked == [True]
    world.run()
    assert world.session.asked == [True] * 3
    assert world.read() == b"hello123"


def test_while_the_socket_is_full_only_answers_are_written() -> None:
    world = World(capacity=4)
    world.session.messages = [b"12345678", b"abc"]
    told: list[bool] = []
    world.session.written = lambda: told.append(True)
    world.client.start()
    world.run()
    world.session.answers = [b"!"]
    world.client.finish()
    assert world.session.asked == [True, False]
    assert told == [], "the socket has not taken everything"
    assert world.read() == b"1234"
    assert world.read() + world.read() + world.read() == b"5678!abc"
    assert told


def test_a_session_stops_the_reading_and_lets_it_go_on() -> None:
    world = World()
    world.client.start()
    world.session.stops_reading = True
    world.client.finish()
    assert world.client.connection.paused == Pause.ROUTES_FULL
    world.session.stops_reading = False
    world.client.finish()
    assert not world.client.connection.paused


def test_a_finished_session_is_closed_behind_its_last_words() -> None:
    world = World()
    world.client.start()
    world.session.answers, world.session.finished = [b"bye"], True
    world.client.finish()
    assert world.client.ends == ["done"]
    assert world.client.ended
    world.client.finish()
    assert world.client.ends == ["done"]
    world.run()
    assert world.read() == b"bye"


def test_the_deadline_of_the_session_is_kept() -> None:
    world = World()
    world.session.deadline = 5.0
    world.client.start()
    world.run(10.0)
    assert world.client.deadlines == [5.0]
