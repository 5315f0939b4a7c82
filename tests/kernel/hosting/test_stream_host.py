"""A protocol meets a wire, a port and a clock: all of it in memory, on a clock that only the test moves."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kernel.contracts.errors import LocalProtocolError
from kernel.contracts.message import Batch, Buffer, Envelope, batch_of
from kernel.contracts.protocol import Login, StreamProtocol
from kernel.dispatcher.port import Port
from kernel.dispatcher.route import RouteSpec
from kernel.hosting.failed_logins import LOGIN_DELAY
from kernel.hosting.stream_host import Decide, StreamHost
from kernel.hosting.stream_statistics import StreamStatistics
from kernel.pipes.water_marks import WaterMarks
from kernel.routing.by_key import ByKey
from kernel.routing.fan_out import FanOut
from kernel.testing.memory_wire import MemoryWire, SimulatedHost
from plugins.protocols.backend.connection import BackendConnection
from plugins.protocols.backend.options import BackendOptions
from tests.line_protocol import LineProtocol


class App:
    """An application's port that keeps what comes while it reads."""

    def __init__(self, host: SimulatedHost, name: str) -> None:
        self.got: list[bytes] = []
        self.reads = True
        self.going = True
        self.confirmed = 0
        self.port = host.port(name, self)

    def on_output(self) -> None:
        while self.reads and (batches := self.port.take().batches):
            self.got += [bytes(body) for batch in batches for body in batch.bodies]

    def on_writable(self) -> None:
        self.going = True

    def on_confirmed(self, position: int) -> None:
        self.confirmed = position

    def send(self, *bodies: bytes) -> None:
        self.going = self.port.send([batch_of(list(bodies))])


class Rig:
    """app a -> host a -> wire -> host b -> app b, and back."""

    def __init__(
        self, *, confirm: bool = False, high: int = 1000, options: dict[str, Any] | None = None, **wire: Any
    ):
        self.host = SimulatedHost()
        self.ends: dict[str, str] = {}
        self.opened: list[str] = []
        self.counters = StreamStatistics()
        for source, target in (
            ("app a", "net a"),
            ("net b", "app b"),
            ("app b", "net b"),
            ("net a", "app a"),
        ):
            spec = RouteSpec(
                name=f"{source} > {target}",
                source=source,
                targets=(target,),
                make_router=FanOut,
                marks=WaterMarks(high=high),
                confirm=confirm,
            )
            self.host.dispatcher.add_route(spec)
        self.a, self.b = App(self.host, "app a"), App(self.host, "app b")
        self.wires = self.host.wire(**wire)
        made = BackendOptions(**(options or {}))
        self.streams: list[StreamHost] = []
        for name, wire_end, side in zip("ab", self.wires, ("client", "server"), strict=True):
            self.stream(f"net {name}", wire_end, BackendConnection(made, side))

    def stream(
        self,
        name: str,
        wire: MemoryWire,
        protocol: StreamProtocol,
        port: Port | None = None,
        on_login: Callable[[Login, Decide], Any] | None = None,
    ) -> StreamHost:
        ports: list[Port] = []

        def open_port(connection: StreamHost) -> Port:
            ports.append(port or self.host.port(name, connection))
            return ports[0]

        def on_end(_: StreamHost, reason: str) -> None:
            self.ends[name] = reason
            for port in ports:
                port.close()

        host: Any = self.host
        made = StreamHost(
            host,
            wire,
            protocol,
            peer=name,
            counters=self.counters,
            open_port=open_port,
            on_open=lambda: self.opened.append(name),
            on_end=on_end,
            on_login=on_login,
        )
        self.streams.append(made)
        made.start()
        return made


@pytest.mark.parametrize("wire", [{}, {"split": 1}, {"split": 7, "delay": 0.2}, {"capacity": 10}])
def test_messages_cross_whatever_the_wire_does_to_them(wire: dict[str, Any]) -> None:
    rig = Rig(**wire)
    rig.a.send(b"1", b"2" * 300)
    rig.b.send(b"back")
    rig.host.run(until=8.0)
    assert (rig.b.got, rig.a.got) == ([b"1", b"2" * 300], [b"back"])
    assert sorted(rig.opened) == ["net a", "net b"]
    assert rig.ends == {}


@pytest.mark.slow
def test_heartbeats_keep_an_idle_wire_open_for_days() -> None:
    rig = Rig(options={"heartbeat": 60})
    rig.host.run(until=100_000.0)
    assert rig.ends == {}
    rig.a.send(b"still there")
    rig.host.run()
    assert rig.b.got == [b"still there"]


def test_a_cut_wire_ends_both_sides() -> None:
    rig = Rig()
    rig.host.run()
    for wire in rig.wires:
        wire.cut = True
    rig.host.run()
    assert set(rig.ends) == {"net a", "net b"}
    assert all("connection lost" in reason for reason in rig.ends.values())


def test_a_wire_that_dies_in_silence_is_given_up_at_the_deadline() -> None:
    rig = Rig()
    ours, theirs = rig.host.wire()
    rig.stream("net c", ours, BackendConnection(BackendOptions(heartbeat=10), "client"))
    rig.host.run()
    peer = BackendConnection(BackendOptions(), "server")
    peer.handle_timeout(0.0)
    peer.receive_data(theirs.receive(10_000) or b"", 0.0)
    theirs.send(deque(peer.data_to_send()))  # it greets, and says nothing any more
    rig.host.run(until=29.0)
    assert "net c" in rig.opened
    assert "net c" not in rig.ends
    rig.host.run(until=31.0)
    assert "nothing heard for 30" in rig.ends["net c"]


def test_a_peer_that_never_greets_is_given_up_at_the_deadline() -> None:
    rig = Rig(delay=11.0)
    rig.host.run(until=10.5)
    assert "no greeting within 10" in rig.ends["net a"]


def test_a_reader_that_stops_stops_its_sender_and_nothing_is_lost() -> None:
    rig = Rig(high=10, capacity=2000)
    rig.host.run()
    rig.b.reads = False
    sent = 0
    while rig.a.going and sent < 10_000:
        rig.a.send(b"%04d" % sent + b"x" * 500)
        sent += 1
        rig.host.run()
    assert sent < 100
    rig.b.reads = True
    rig.b.on_output()
    rig.host.run()
    assert [body[:4] for body in rig.b.got] == [b"%04d" % number for number in range(sent)]
    assert rig.a.going


def test_a_reader_that_stops_for_long_is_not_taken_for_a_silent_peer() -> None:
    rig = Rig(high=2, capacity=100, options={"heartbeat": 1})
    rig.host.run()
    rig.b.reads = False
    for _ in range(10):
        rig.a.send(b"x" * 50)
        rig.host.run()
    rig.host.run(until=1000.0)
    assert "net b" not in rig.ends, "it does not listen itself: the silence is its own"


def test_a_greeting_that_came_while_the_thread_was_busy_is_not_missed() -> None:
    rig = Rig()
    rig.host._clock += 1  # more than the listener waits for one
    rig.a.send(b"1")
    rig.b.send(b"2")
    rig.host.run()
    assert rig.ends == {}
    assert (rig.b.got, rig.a.got) == ([b"1"], [b"2"])


def test_a_peer_that_was_heard_of_while_the_thread_was_busy_is_not_given_up() -> None:
    rig = Rig(options={"heartbeat": 10})
    rig.host.run()
    rig.a.send(b"1")
    rig.b.send(b"2")
    for stream in rig.streams:
        stream.on_output()  # it is written
    rig.host._clock += 31
    rig.host.run()
    assert rig.ends == {}
    assert (rig.b.got, rig.a.got) == ([b"1"], [b"2"])


def test_confirmations_come_back() -> None:
    rig = Rig(confirm=True)
    rig.a.send(b"1", b"2")
    rig.host.run()
    assert rig.b.got == [b"1", b"2"]
    assert rig.a.confirmed == 0
    rig.b.port.confirm_through(2)
    rig.host.run()
    assert rig.a.confirmed == 2


def test_what_came_with_the_greeting_and_the_good_bye_in_one_read_is_delivered() -> None:
    rig = Rig()
    ours, theirs = rig.host.wire()
    late = rig.stream("net a", ours, BackendConnection(BackendOptions(), "client"))
    server = BackendConnection(BackendOptions(), "server")
    server.handle_timeout(0.0)
    rig.host.run()
    server.receive_data(theirs.receive(10_000) or b"", 0.0)
    server.send_batches([batch_of([b"last words"], Envelope(key="k"))], 0.0)
    server.close("done", 0.0)
    theirs.send(deque([b"".join(server.data_to_send())]))
    rig.host.run()
    assert late.ended
    assert b"last words" in rig.a.got


def test_a_good_bye_ends_both_sides_in_good_order() -> None:
    rig = Rig()
    rig.host.run()
    rig.streams[0].close("enough")
    rig.host.run()
    assert rig.ends == {"net a": "enough", "net b": "closed by the peer"}
    assert rig.counters.protocol_errors == 0


class Asked(LineProtocol):
    """A protocol of one byte a message, whose peer gives credit: each byte that it sends is worth one message."""

    def __init__(self) -> None:
        super().__init__()
        self.ready = True
        self.credit = 0
        self.batches: list[int] = []

    def receive_data(self, data: Buffer, now: float) -> list[Batch]:
        self.credit += len(data)
        return []

    def receive_eof(self, now: float) -> None: ...

    def send_batches(self, batches: Sequence[Batch], now: float) -> None:
        assert self.ready_to_send()
        self.batches.append(sum(map(len, batches)))
        self.credit -= self.batches[-1]
        self._out += [body for batch in batches for body in batch.bodies]

    def ready_to_send(self) -> bool:
        return self.ready


class Credited(Asked):
    """The same, and it says so."""

    def may_send(self) -> int | None:
        return self.credit


class ReadyAgain(Asked):
    """It is ready while its peer has asked for something, and at the beginning."""

    def ready_to_send(self) -> bool:
        return not self.batches or self.credit >= 0


def hosted(protocol: Asked) -> tuple[Rig, App, MemoryWire]:
    """Return an application whose messages go to a peer, and the peer's end of the wire."""
    rig = Rig()
    spec = RouteSpec(name="c", source="app c", targets=("net c",), make_router=FanOut, marks=WaterMarks())
    rig.host.dispatcher.add_route(spec)
    app = App(rig.host, "app c")
    ours, theirs = rig.host.wire()
    rig.stream("net c", ours, protocol)
    rig.host.run()
    return rig, app, theirs


def test_a_protocol_that_is_not_ready_any_more_is_given_no_messages_until_it_is() -> None:
    protocol = ReadyAgain()
    rig, app, peer = hosted(protocol)
    app.send(b"1")
    rig.host.run()
    app.send(b"2")
    app.send(b"3")
    rig.host.run()
    assert protocol.batches == [1], "the peer has asked for nothing more"
    peer.send(deque([b"+"]))
    rig.host.run()
    assert sum(protocol.batches) == 3


class Strict(Asked):
    """It raises for a message that it cannot carry, when it has encoded those before it."""

    def send_batches(self, batches: Sequence[Batch], now: float) -> None:
        for batch in batches:
            if b"?" in batch.bodies:
                raise LocalProtocolError("'?' is no message")
            super().send_batches([batch], now)


@pytest.mark.parametrize("confirm", [True, False])
def test_messages_that_a_protocol_cannot_send_end_one_conversation_and_do_not_come_again(
    confirm: bool,
) -> None:
    rig = Rig()
    spec = RouteSpec(
        name="c", source="app c", targets=("net c",), make_router=FanOut, marks=WaterMarks(), confirm=confirm
    )
    rig.host.dispatcher.add_route(spec)
    app, late = App(rig.host, "app c"), Late()
    late.port = rig.host.port("net c", late)
    told: list[str] = []

    def conversation() -> tuple[StreamHost, MemoryWire]:
        ours, theirs = rig.host.wire()
        host: Any = rig.host
        late.stream = StreamHost(
            host,
            ours,
            Strict(),
            peer="c",
            counters=rig.counters,
            open_port=lambda _: late.port,
            on_open=lambda: None,
            on_end=lambda _, reason: told.append(reason),
            on_refused=told.append,
        )
        late.stream.start()
        rig.host.run()
        return late.stream, theirs

    app.send(b"1")
    app.send(b"2", b"?")
    app.send(b"3")
    first, peer = conversation()
    assert first.ended
    assert not peer.receive(100), "a part of what was refused"
    whole = "the protocol cannot send 4 messages, which are refused: '?' is no message"
    assert told == ["'?' is no message", whole]
    assert (rig.counters.messages_out, rig.counters.messages_refused) == (0, 4)
    second, peer = conversation()
    app.send(b"4")
    rig.host.run()
    assert not second.ended
    assert peer.receive(100) == b"4"
    assert app.confirmed == (5 if confirm else 0)


class Late:
    """The owner of a port that has many conversations, as a dialler's has."""

    stream: StreamHost | None = None
    port: Port

    def on_output(self) -> None:
        if self.stream is not None:
            self.stream.on_output()

    def on_writable(self) -> None: ...

    def on_confirmed(self, position: int) -> None: ...


class Subscriber(Asked):
    """It can subscribe at its peer."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def subscribe(self, pattern: str) -> None:
        assert self.ready
        self.asked.append(f"+{pattern}")

    def unsubscribe(self, pattern: str) -> None:
        assert self.ready
        self.asked.append(f"-{pattern}")


def test_subscriptions_that_change_while_a_protocol_is_not_ready_are_made_up_for() -> None:
    protocol = Subscriber()
    rig, app, peer = hosted(protocol)
    spec = RouteSpec(name="r", source="net c", targets=("app c",), make_router=ByKey, by_content=True)
    rig.host.dispatcher.add_route(spec)
    app.port.subscribe("early")
    app.port.subscribe("kept")
    rig.host.run()
    assert protocol.asked == ["+early", "+kept"]
    protocol.ready = False
    app.port.unsubscribe("early")
    app.port.subscribe("late")
    app.port.subscribe("brief")
    app.port.unsubscribe("brief")
    rig.host.run()
    assert protocol.asked == ["+early", "+kept"]
    protocol.ready = True
    peer.send(deque([b"+"]))
    rig.host.run()
    assert protocol.asked == ["+early", "+kept", "-early", "+late"]
    app.port.unsubscribe("late")
    rig.host.run()
    assert protocol.asked[4:] == ["-late"]


def test_no_more_messages_are_sent_than_the_peer_has_given_credit_for() -> None:
    protocol = Credited()
    rig, app, peer = hosted(protocol)
    app.send(*[b"%d" % number for number in range(8)])
    rig.host.run()
    assert protocol.batches == []
    for credit in (3, 1, 2):
        peer.send(deque([b"+" * credit]))
        rig.host.run()
    assert protocol.batches == [3, 1, 2]
    assert peer.receive(100) == b"0"
    peer.send(deque([b"+" * 100]))
    rig.host.run()
    app.send(b"8", b"9")
    rig.host.run()
    assert sum(protocol.batches) == 10


def test_what_waits_for_credit_is_pending() -> None:
    protocol = Credited()
    rig, app, peer = hosted(protocol)
    app.send(b"1", b"2")
    peer.send(deque([b"+"]))
    rig.host.run()
    assert rig.streams[-1].pending()
    peer.send(deque([b"+"]))
    rig.host.run()
    assert not rig.streams[-1].pending()


def test_what_is_sent_again_on_a_new_conversation_waits_for_credit_too() -> None:
    rig = Rig()
    spec = RouteSpec(
        name="c", source="app c", targets=("net c",), make_router=FanOut, marks=WaterMarks(), confirm=True
    )
    rig.host.dispatcher.add_route(spec)
    app = App(rig.host, "app c")
    taker = App(rig.host, "net c")
    app.send(b"1", b"2", b"3")
    rig.host.run()
    assert taker.got == [b"1", b"2", b"3"], "taken, and never confirmed"
    protocol = Credited()
    ours, peer = rig.host.wire()
    rig.stream("net c", ours, protocol, port=taker.port)
    rig.host.run()
    assert protocol.batches == []
    peer.send(deque([b"++"]))
    rig.host.run()
    assert protocol.batches == [2]


def test_the_wire_stays_open_until_the_peer_has_had_time_to_read_our_last_words() -> None:
    protocol = Asked()
    rig, app, peer = hosted(protocol)
    ours = peer.peer
    app.send(b"last words")
    rig.host.run()
    rig.streams[-1].close("enough")
    rig.host.run()
    assert (peer.receive(100), peer.receive(100)) == (b"last words", b""), "the peer sees the end"
    peer.send(deque([b"more that nobody wants"]))
    rig.host.run()
    assert ours.fileno() != -1, "a socket that is closed now would send a reset"
    peer.close()
    rig.host.run()
    assert ours.fileno() == -1


class Telling(BackendConnection):
    """Keeps what nobody wanted."""

    def __init__(self) -> None:
        super().__init__(BackendOptions(), "server")
        self.told: list[bytes] = []

    def unrouted(self, batches: Sequence[Batch], now: float) -> None:
        self.told += [bytes(body) for batch in batches for body in batch.bodies]


def test_a_protocol_that_asks_is_told_what_nobody_wants() -> None:
    rig = Rig()
    for source, target, wanted in (("app a", "net c", ""), ("net d", "app b", "k")):
        spec = RouteSpec(
            name=f"{source} > {target}",
            source=source,
            targets=(target,),
            make_router=FanOut,
            make_filter=lambda wanted=wanted: lambda envelope: envelope.key.startswith(wanted),  # type: ignore[misc]
        )
        rig.host.dispatcher.add_route(spec)
    here, there = rig.host.wire()
    rig.stream("net c", here, BackendConnection(BackendOptions(), "client"))
    telling = Telling()
    rig.stream("net d", there, telling)
    rig.host.run()
    rig.a.port.send([batch_of([b"yes"], Envelope(key="k")), batch_of([b"no"], Envelope(key="other"))])
    rig.host.run()
    assert telling.told == [b"no"]


class Subscribed(BackendConnection):
    """Notes whether messages are wanted each time it is told that its peer's subscriptions are in effect."""

    def __init__(self, wanted: Callable[[], bool]) -> None:
        super().__init__(BackendOptions(), "server")
        self.wanted = wanted
        self.told: list[bool] = []

    def subscribed(self, now: float) -> None:
        self.told.append(self.wanted())


def test_a_protocol_is_told_when_the_subscriptions_of_its_peer_are_in_effect() -> None:
    rig = Rig()
    publisher = App(rig.host, "publisher")
    rig.host.dispatcher.add_route(
        RouteSpec(
            name="to subscribers", source="publisher", targets=("net d",), make_router=ByKey, by_content=True
        )
    )
    here, there = rig.host.wire()
    subscribed = Subscribed(lambda: publisher.port.wants(Envelope(key="k")))
    rig.stream("net d", there, subscribed)
    rig.stream("net c", here, BackendConnection(BackendOptions(subscriptions=("k",)), "client"))
    rig.host.run()
    assert subscribed.told == [True]


class Greeting(LineProtocol):
    """Says something first, and echoes."""

    def __init__(self) -> None:
        super().__init__()
        self._out.append(b"greeting\n")

    def receive_data(self, data: Buffer, now: float) -> list[Batch]:
        self._out.append(bytes(data))
        return []


def test_a_peer_that_speaks_first_gets_greeting_and_answer_in_one_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig()
    ours, theirs = rig.host.wire()
    theirs.send(deque([b"echo\n"]))
    rig.host.run()
    written: list[bytes] = []
    send = ours.send

    def noted(buffers: deque[Buffer]) -> bool:
        written.append(b"".join(buffers))
        return send(buffers)

    monkeypatch.setattr(ours, "send", noted)
    rig.stream("net c", ours, Greeting())
    assert written == [b"greeting\necho\n"]
    rig.host.run()
    assert theirs.receive(100) == b"greeting\n"


class Asking(LineProtocol):
    """The first line is a password, and is answered."""

    def __init__(self) -> None:
        super().__init__()
        self._login: Login | None = None
        self._open = False

    def receive_data(self, data: Buffer, now: float) -> list[Batch]:
        for line in self.lines(data):
            self._login = Login(mechanism="PLAIN", secret=line)
        return []

    def login(self) -> Login | None:
        login, self._login = self._login, None
        return login

    def decide(self, reason: str | None, now: float) -> None:
        self._out.append(b"welcome" if reason is None else b"sorry")
        self._open, self._closed = reason is None, reason is not None

    def ready_to_send(self) -> bool:
        return self._open


def _knock(rig: Rig, secret: bytes) -> MemoryWire:
    """Log in, with a password that is ``right`` or not."""
    ours, theirs = rig.host.wire()

    def on_login(login: Login, decide: Decide) -> None:
        decide(None if login.secret == b"right" else "wrong password")

    rig.stream("guesser", theirs, Asking(), on_login=on_login)
    ours.send(deque([secret + b"\n"]))
    return ours


def test_a_login_that_fails_is_answered_late_and_any_other_at_once() -> None:
    rig = Rig()
    wrong, right = _knock(rig, b"wrong"), _knock(rig, b"right")
    rig.host.run(until=LOGIN_DELAY * 0.9)
    assert (wrong.receive(100), right.receive(100)) == (None, b"welcome")
    rig.host.run(until=LOGIN_DELAY * 1.1)
    assert wrong.receive(100) == b"sorry"
    assert rig.ends == {"guesser": "refused: wrong password"}


def test_who_guesses_is_not_read_meanwhile() -> None:
    """The guesses that come behind the first one are of no use."""
    rig = Rig()
    wrong = _knock(rig, b"wrong")
    rig.host.run(until=LOGIN_DELAY * 0.5)
    wrong.send(deque([b"right\n"]))
    rig.host.run(until=LOGIN_DELAY * 3)
    assert wrong.receive(100) == b"sorry"
    assert wrong.receive(100) == b""


def test_an_engine_that_stops_does_not_answer_a_failed_login_afterwards() -> None:
    rig = Rig()
    wrong = _knock(rig, b"wrong")
    rig.host.run(until=LOGIN_DELAY * 0.5)
    rig.streams[-1].close("the engine stops")
    rig.host.run(until=LOGIN_DELAY * 3)
    assert wrong.receive(100) == b""
    assert rig.ends == {"guesser": "the engine stops"}
