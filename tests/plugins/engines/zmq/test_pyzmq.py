"""Each type against libzmq (pyzmq), which binds or connects, over tcp and ipc."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from socket import create_connection
from typing import Any

import pytest
import trio

from kernel import Message
from kernel.contracts.engine import Host
from kernel.contracts.errors import KernelError, WouldBlock
from kernel.testing.fixtures import KernelFactory, kernel_factory
from kernel.topology.plan import EnginePlan, RoutePlan
from kernel.topology.system import Kernel
from tests.events import Events
from tests.interop.until import until
from tests.plans import route

__all__ = ["kernel_factory"]

pytestmark = pytest.mark.peer("pyzmq")
TIMEOUT = 30.0


class Sockets:
    """Sockets of pyzmq, which are closed after the test."""

    def __init__(self) -> None:
        import zmq

        self.context = zmq.Context()
        self._made: list[Any] = []

    def __call__(self, kind: str, **options: Any) -> Any:
        import zmq

        socket = self.context.socket(getattr(zmq, kind))
        socket.setsockopt(zmq.RCVTIMEO, int(TIMEOUT * 1000))
        socket.setsockopt(zmq.SNDTIMEO, int(TIMEOUT * 1000))
        socket.setsockopt(zmq.LINGER, 0)
        for name, value in options.items():
            setattr(socket, name, value)
        self._made.append(socket)
        return socket

    def close(self) -> None:
        for socket in self._made:
            socket.close()
        self.context.term()


@pytest.fixture
def sockets() -> Iterator[Sockets]:
    made = Sockets()
    yield made
    made.close()


APP = EnginePlan(name="app", kind="native")


def socket_of(kind: str, **options: Any) -> EnginePlan:
    return EnginePlan(name="net", kind="zmq", options={"type": kind, **options})


def rows(kernel: Kernel) -> list[dict[str, Any]]:
    return [dict(row) for row in kernel.inspect("connections").rows]


def subscribed(kernel: Kernel, count: int, *peers: Any) -> Callable[[], bool]:
    """Whether the peers of a publisher have so many subscriptions together."""

    def ask() -> bool:
        # libzmq notices a new connection to a socket that is bound, and subscribes there, only in a call.
        for peer in peers:
            peer.poll(0)
        have: int = sum(row.get("subscriptions", 0) for row in rows(kernel))
        return have == count

    return ask


class Ends:
    """The kernel's socket and one of pyzmq, connected in one of four ways."""

    def __init__(self, how: str, folder: Path, make: KernelFactory, sockets: Sockets) -> None:
        self._role, self._transport = how.split("-")
        self._folder = folder
        self._make = make
        self._sockets = sockets

    def open(
        self, ours: str, theirs: str, routes: tuple[RoutePlan, ...], options: dict[str, Any], **peer: Any
    ) -> tuple[Kernel, Any]:
        socket = self._sockets(theirs, **peer)
        place = "tcp://127.0.0.1:0" if self._transport == "tcp" else f"ipc://{self._folder}/socket"
        if self._role == "binds":
            kernel = self._make(APP, socket_of(ours, bind=[place], **options), *routes)
            socket.connect(kernel.address_of("net"))
        else:
            socket.bind(place)
            place = socket.last_endpoint.decode()
            kernel = self._make(APP, socket_of(ours, connect=[place], **options), *routes)
        return kernel, socket


@pytest.fixture(params=["binds-tcp", "connects-tcp", "binds-ipc", "connects-ipc"])
def ends(
    request: pytest.FixtureRequest, tmp_path: Path, kernel_factory: KernelFactory, sockets: Sockets
) -> Ends:
    return Ends(request.param, tmp_path, kernel_factory, sockets)


BODIES: list[bytes] = [b"", b"hello", b"x" * 255, b"y" * 256, b"z" * 300_000, *[b"same"] * 500]


def test_push(ends: Ends) -> None:
    kernel, pull = ends.open("PUSH", "PULL", (route("app", "net"),), {})
    with kernel.open("app") as app:
        until(lambda: any(row["state"] == "running" for row in rows(kernel)))
        app.send_many(BODIES)
        app.send_parts([b"a", b"", b"x" * 70_000])
        assert [pull.recv() for _ in BODIES] == BODIES
        assert pull.recv_multipart() == [b"a", b"", b"x" * 70_000]


def test_pull(ends: Ends) -> None:
    kernel, push = ends.open("PULL", "PUSH", (route("net", "app"),), {})
    with kernel.open("app") as app:
        for body in BODIES:
            push.send(body)
        push.send_multipart([b"a", b"", b"x" * 70_000])
        assert [bytes(app.receive(timeout=TIMEOUT)) for _ in BODIES] == BODIES
        assert app.receive_message(timeout=TIMEOUT).parts == (b"a", b"", b"x" * 70_000)


@pytest.mark.parametrize("kind", ["PUB", "XPUB"])
@pytest.mark.parametrize("router", ["fan-out", "by-key"])
def test_publishers(ends: Ends, kind: str, router: str) -> None:
    kernel, sub = ends.open(kind, "SUB", (route("app", "net", router=router),), {})
    for topic in ("tea", "tea", "mil"):
        sub.subscribe(topic)
    # Subscribed to once more than taken back, so libzmq does not tell.
    sub.unsubscribe("tea")
    with kernel.open("app") as app:
        until(subscribed(kernel, 2, sub))
        for key in ("coffee", "tea", "teapot", "te", "milk"):
            app.send_many([b"1", b"2"], key=key)
        got = [sub.recv_multipart() for _ in range(6)]
        assert got == [[key, body] for key in (b"tea", b"teapot", b"milk") for body in (b"1", b"2")]
        sub.unsubscribe("mil")
        until(subscribed(kernel, 1, sub))
        for key in ("milk", "tea"):
            app.send(b"3", key=key)
        assert sub.recv_multipart() == [b"tea", b"3"]


@pytest.mark.parametrize("kind", ["SUB", "XSUB"])
def test_subscribers(ends: Ends, kind: str) -> None:
    kernel, pub = ends.open(kind, "XPUB", (route("net", "app"),), {"subscribe": ["tea", "milk"]})
    with kernel.open("app") as app:
        assert sorted(pub.recv() for _ in range(2)) == [b"\1milk", b"\1tea"]
        for key in (b"coffee", b"tea", b"teapot", b"milk"):
            pub.send_multipart([key, b"1", b"2"])
        pub.send(b"tea alone")
        got = [app.receive_message(timeout=TIMEOUT) for _ in range(4)]
        assert [(each.envelope.key, each.parts) for each in got[:3]] == [
            (key, (b"1", b"2")) for key in ("tea", "teapot", "milk")
        ]
        assert (got[3].envelope.key, bytes(got[3].body)) == ("", b"tea alone")


def test_what_readers_want_is_subscribed_to(ends: Ends) -> None:
    kernel, pub = ends.open("SUB", "XPUB", (route("net", "app", router="by-key"),), {})
    with kernel.open("app") as app:
        app.subscribe("weather.#")
        app.wait_subscribed(timeout=TIMEOUT)
        assert pub.recv() == b"\1weather"
        pub.send_multipart([b"weathering", b"no word of its own"])
        pub.send_multipart([b"weather.wien", b"sunny"])
        assert bytes(app.receive(timeout=TIMEOUT)) == b"sunny"
        app.unsubscribe("weather.#")
        assert pub.recv() == b"\0weather"


def test_pair(ends: Ends) -> None:
    kernel, pair = ends.open("PAIR", "PAIR", (route("app", "net"), route("net", "app")), {})
    with kernel.open("app") as app:
        pair.send_multipart([b"a", b"b"])
        assert app.receive_message(timeout=TIMEOUT).parts == (b"a", b"b")
        app.send(b"back")
        assert pair.recv() == b"back"


def test_a_message_upstream(ends: Ends) -> None:
    kernel, xsub = ends.open("XPUB", "XSUB", (route("net", "app"),), {})
    with kernel.open("app") as app:

        def arrives() -> bytes:
            # What XSUB sends before there is a peer is dropped by libzmq.
            xsub.send(b"hello")
            try:
                return bytes(app.receive_nowait())
            except WouldBlock:
                return b""

        assert until(arrives) == b"hello"


# ---------------------------------------------------------------------- questions and answers


ASK = (route("app", "net", router="round-robin"), route("net", "app", router="reply"))
ANSWER = (route("net", "app"), route("app", "net", router="reply"))
BOTH = (route("app", "net", router="round-robin"), route("net", "app"))


@pytest.mark.parametrize("correlate", [False, True])
@pytest.mark.parametrize("theirs", ["REP", "ROUTER"])
def test_req(ends: Ends, theirs: str, correlate: bool) -> None:
    kernel, peer = ends.open("REQ", theirs, ASK, {"correlate": correlate})
    with kernel.open("app") as app:
        # The second one waits for the answer to the first, unless they have numbers.
        numbers = [app.ask(b"question %d" % n, None, TIMEOUT) for n in range(2)]
        # A ROUTER may answer in any order if the questions have numbers.
        turns = [2] if theirs == "ROUTER" and correlate else [1, 1]
        for count in turns:
            asked = [peer.recv_multipart() for _ in range(count)]
            if theirs == "ROUTER":
                assert [len(parts) for parts in asked] == [4 if correlate else 3] * count
            for parts in reversed(asked):
                peer.send_multipart([*parts[:-1], b"re: " + parts[-1]])
        for n, number in enumerate(numbers):
            assert app.answer(number, TIMEOUT).body == b"re: question %d" % n


@pytest.mark.parametrize("theirs", ["REQ", "DEALER"])
def test_rep(ends: Ends, theirs: str) -> None:
    kernel, peer = ends.open("REP", theirs, ANSWER, {})
    before = [b""] if theirs == "DEALER" else []
    with kernel.open("app") as app:
        for parts in ([b"one"], [b"one", b"and", b"two"]):
            peer.send_multipart([*before, *parts])
            question = app.receive_message(timeout=TIMEOUT)
            assert (question.parts or (question.body,)) == tuple(parts)
            app.send_message(Message(b"", question.envelope, (b"re", bytes(question.body))), timeout=TIMEOUT)
            assert peer.recv_multipart() == [*before, b"re", b"".join(parts)]


def test_rep_behind_a_device(ends: Ends) -> None:
    """What stands before the empty part comes back as it was."""
    kernel, dealer = ends.open("REP", "DEALER", ANSWER, {})
    with kernel.open("app") as app:
        for hops in ([b"\0hop", b"another"], [b"x" * 255], []):
            dealer.send_multipart([*hops, b"", b"question"])
            app.reply(app.receive_message(timeout=TIMEOUT), b"answer", timeout=TIMEOUT)
            assert dealer.recv_multipart() == [*hops, b"", b"answer"]


def test_a_question_without_its_empty_part_ends_the_conversation(
    kernel_factory: KernelFactory, sockets: Sockets
) -> None:
    events = Events()
    net = socket_of("REP", bind=["tcp://127.0.0.1:0"])
    kernel = kernel_factory(APP, net, *ANSWER, on_event=events)
    dealer = sockets("DEALER")
    dealer.connect(kernel.address_of("net"))
    dealer.send(b"question")
    assert "a DEALER has to send that part itself" in events.wait("disconnected", "net").detail


@pytest.mark.parametrize("theirs", ["DEALER", "ROUTER"])
def test_dealer(ends: Ends, theirs: str) -> None:
    kernel, peer = ends.open("DEALER", theirs, BOTH, {"identity": "ours"})
    with kernel.open("app") as app:
        app.send_parts([b"a", b""], timeout=TIMEOUT)
        assert peer.recv_multipart() == ([b"ours"] if theirs == "ROUTER" else []) + [b"a", b""]
        peer.send_multipart(([b"ours"] if theirs == "ROUTER" else []) + [b"b", b"c"])
        assert app.receive_message(timeout=TIMEOUT).parts == (b"b", b"c")


@pytest.mark.parametrize("identity", [b"", b"anna", b"\xff\xfe"])
def test_router(ends: Ends, identity: bytes) -> None:
    kernel, dealer = ends.open(
        "ROUTER", "DEALER", ANSWER, {}, **({"routing_id": identity} if identity else {})
    )
    with kernel.open("app") as app:
        dealer.send_multipart([b"a", b"b"])
        question = app.receive_message(timeout=TIMEOUT)
        assert question.parts == (b"a", b"b")
        name = question.envelope.reply_to.removeprefix("net/").encode("latin-1")
        assert name == identity if identity else (name[0], len(name)) == (0, 5)
        app.reply(question, b"back", timeout=TIMEOUT)
        assert dealer.recv() == b"back"


@pytest.mark.parametrize("handover", [False, True])
def test_two_peers_with_one_identity(kernel_factory: KernelFactory, sockets: Sockets, handover: bool) -> None:
    events = Events()
    net = socket_of("ROUTER", bind=["tcp://127.0.0.1:0"], handover=handover)
    kernel = kernel_factory(APP, net, *ANSWER, on_event=events)
    first, second = (sockets("DEALER", routing_id=b"same", reconnect_ivl=-1) for _ in range(2))
    with kernel.open("app") as app:
        first.connect(kernel.address_of("net"))
        first.send(b"1")
        question = app.receive_message(timeout=TIMEOUT)
        second.connect(kernel.address_of("net"))
        said = events.wait("disconnected", "net").detail
        if handover:
            assert "taken over" in said
            second.send(b"2")
            assert app.receive_message(timeout=TIMEOUT).body == b"2"
        else:
            assert "another peer has the identity b'same'" in said
        app.reply(question, b"back", timeout=TIMEOUT)
        assert (second if handover else first).recv() == b"back"


def test_a_device_between_req_and_rep(kernel_factory: KernelFactory, sockets: Sockets) -> None:
    """ROUTER and DEALER with ``relay``, joined by two routes: many askers, many who answer."""
    front = EnginePlan(name="front", kind="zmq", options={"type": "ROUTER", "bind": ["tcp://127.0.0.1:0"]})
    back = EnginePlan(
        name="back", kind="zmq", options={"type": "DEALER", "bind": ["tcp://127.0.0.1:0"], "relay": True}
    )
    kernel = kernel_factory(
        front,
        back,
        route("front", "back", router="round-robin"),
        route("back", "front", router="reply"),
    )
    workers = [sockets("REP") for _ in range(2)]
    for worker in workers:
        worker.connect(kernel.address_of("back"))
    askers = [sockets("REQ") for _ in range(2)]
    for number, asker in enumerate(askers):
        asker.connect(kernel.address_of("front"))
        asker.send(b"%d" % number)
    poller = __import__("zmq").Poller()
    for worker in workers:
        poller.register(worker)
    answered = 0
    while answered < 2:
        for worker, _ in poller.poll(TIMEOUT * 1000):
            worker.send(b"re " + worker.recv())
            answered += 1
    assert [asker.recv() for asker in askers] == [b"re 0", b"re 1"]


def test_places_come_and_go(kernel_factory: KernelFactory, sockets: Sockets) -> None:
    kernel = kernel_factory(APP, socket_of("PULL", places_later=True), route("net", "app"))
    with kernel.open("app") as app:
        place = kernel.operate("net", "bind", "tcp://127.0.0.1:0")
        push = sockets("PUSH")
        push.connect(place)
        push.send(b"1")
        assert bytes(app.receive(timeout=TIMEOUT)) == b"1"
        assert kernel.operate("net", "unbind", place) == place
        other = sockets("PUSH")
        other.bind(place)
        kernel.operate("net", "connect", place)
        other.send(b"2")
        assert bytes(app.receive(timeout=TIMEOUT)) == b"2"
        kernel.operate("net", "disconnect", place)
        for what, argument, complaint in (
            ("bind", place, "in use"),
            ("bind", "udp://x", "begins with"),
            ("unbind", place, "there is no place"),
            ("dance", "", "no operation 'dance'"),
        ):
            with pytest.raises(KernelError, match=complaint):
                kernel.operate("net", what, argument)


def test_with_immediate_nothing_waits_for_who_is_away(
    kernel_factory: KernelFactory, sockets: Sockets
) -> None:
    pull = sockets("PULL")
    pull.bind("tcp://127.0.0.1:0")
    away = "ipc:///nowhere/at-all"
    net = socket_of("PUSH", connect=[away, pull.last_endpoint.decode()], immediate=True)
    kernel = kernel_factory(APP, net, route("app", "net", router="round-robin"))
    with kernel.open("app") as app:
        for number in range(4):
            app.send_parts([b"%d" % number], timeout=TIMEOUT)
        assert [pull.recv() for _ in range(4)] == [b"0", b"1", b"2", b"3"]


# ---------------------------------------------------------------------- several peers


def test_push_shares_out_and_pull_takes_from_all(kernel_factory: KernelFactory, sockets: Sockets) -> None:
    places = ["tcp://127.0.0.1:0", "tcp://127.0.0.1:0"]
    kernel = kernel_factory(
        APP,
        EnginePlan(name="out", kind="zmq", options={"type": "PUSH", "bind": places}),
        EnginePlan(name="in", kind="zmq", options={"type": "PULL", "bind": places}),
        route("app", "out", router="round-robin"),
        route("in", "app"),
    )
    pulls = [sockets("PULL") for _ in range(3)]
    pushes = [sockets("PUSH") for _ in range(2)]
    with kernel.open("app") as app:
        # Two bind places each, and a peer or two at each place.
        outs, ins = (kernel.address_of(name).split(", ") for name in ("out", "in"))
        for index, pull in enumerate(pulls):
            pull.connect(outs[index % 2])
        for index, push in enumerate(pushes):
            push.connect(ins[index])
            push.send(b"from %d" % index)
        assert {bytes(app.receive(timeout=TIMEOUT)) for _ in pushes} == {b"from 0", b"from 1"}
        until(
            lambda: sum(row["state"] == "running" and row["peer_type"] == "PULL" for row in rows(kernel)) == 3
        )
        for number in range(30):
            app.send(b"%d" % number)
        got = [pull.recv() for pull in pulls]
        assert len(set(got)) == 3


def test_a_slow_subscriber_loses_and_the_others_do_not(
    kernel_factory: KernelFactory, sockets: Sockets
) -> None:
    marks = {"high": 100, "when_full": "drop-newest"}
    kernel = kernel_factory(
        APP, socket_of("PUB", bind=["tcp://127.0.0.1:0"]), route("app", "net", router="by-key", marks=marks)
    )
    slow = sockets("SUB", rcvhwm=10, rcvbuf=4096)
    quick = sockets("SUB", rcvhwm=0)
    with kernel.open("app") as app:
        for socket in (slow, quick):
            socket.subscribe("k")
            socket.connect(kernel.address_of("net"))
        until(subscribed(kernel, 2))
        body = b"x" * 10_000
        # The quick one is read after each message, so that its pipe is never full.
        for number in range(2000):
            app.send_many([b"%d" % number, body], key="k")
            assert quick.recv_multipart() == [b"k", b"%d" % number]
            assert quick.recv_multipart() == [b"k", body]
        dropped = sum(pipe.dropped for pipe in kernel.statistics().pipes)
        assert dropped > 0


def test_reconnecting(kernel_factory: KernelFactory, sockets: Sockets) -> None:
    pull = sockets("PULL")
    pull.bind("tcp://127.0.0.1:0")
    place = pull.last_endpoint.decode()
    events = Events()
    net = socket_of("PUSH", connect=[place], reconnect={"first": 0.01, "most": 0.05})
    kernel = kernel_factory(APP, net, route("app", "net"), on_event=events)
    with kernel.open("app") as app:
        app.send(b"1")
        assert pull.recv() == b"1"
        pull.unbind(place)
        pull.close()
        events.wait("disconnected", "net")
        app.send(b"2")
        again = sockets("PULL")
        again.bind(place)
        assert again.recv() == b"2"


class Doorkeeper:
    """Lets in who has the right password."""

    async def run(self, host: Host, *, task_status: trio.TaskStatus[str]) -> None:
        task_status.started("here")
        await trio.sleep_forever()

    def statistics(self) -> dict[str, Any]:
        return {}

    def operate(self, what: str, login: Any) -> Any:
        assert what == "authenticate"
        if (login["mechanism"], login["user"], login["secret"]) != ("PLAIN", "anna", b"secret"):
            raise KernelError("wrong password")


def test_plain(kernel_factory: KernelFactory, sockets: Sockets) -> None:
    net = socket_of("PULL", bind=["tcp://127.0.0.1:0"], mechanism="PLAIN", authenticator="door")
    events = Events()
    kernel = kernel_factory(APP, net, route("net", "app"), on_event=events)
    kernel.host("door", lambda setup: Doorkeeper())
    events.wait("running", "door")
    wrong = sockets("PUSH", plain_username=b"anna", plain_password=b"guess")
    right = sockets("PUSH", plain_username=b"anna", plain_password=b"secret")
    with kernel.open("app") as app:
        wrong.connect(kernel.address_of("net"))
        assert "wrong password" in events.wait("refused", "net").detail
        right.connect(kernel.address_of("net"))
        right.send(b"let in")
        assert bytes(app.receive(timeout=TIMEOUT)) == b"let in"


def test_plain_at_libzmq(kernel_factory: KernelFactory, sockets: Sockets) -> None:
    from zmq.auth.thread import ThreadAuthenticator

    door = ThreadAuthenticator(sockets.context)
    door.start()
    try:
        door.configure_plain(domain="*", passwords={"anna": "secret"})
        pull = sockets("PULL", plain_server=True)
        pull.bind("tcp://127.0.0.1:0")
        options = {"mechanism": "PLAIN", "username": "anna", "password": "secret"}
        net = socket_of("PUSH", connect=[pull.last_endpoint.decode()], **options)
        kernel = kernel_factory(APP, net, route("app", "net"))
        with kernel.open("app") as app:
            app.send(b"let in")
            assert pull.recv() == b"let in"
    finally:
        door.stop()


def test_heartbeats_of_both_sides(kernel_factory: KernelFactory, sockets: Sockets) -> None:
    """libzmq answers our PING, and does not give up a peer that answers its own."""
    net = socket_of("PULL", bind=["tcp://127.0.0.1:0"], heartbeat=0.05)
    events = Events()
    kernel = kernel_factory(APP, net, route("net", "app"), on_event=events)
    push = sockets("PUSH", heartbeat_ivl=20, heartbeat_timeout=10_000, heartbeat_ttl=10_000)
    with kernel.open("app") as app:
        push.connect(kernel.address_of("net"))
        before = events.wait("connected", "net")
        start = rows(kernel)[0]["send_oct"]
        until(lambda: rows(kernel)[0]["send_oct"] > start + 40)
        push.send(b"still here")
        assert bytes(app.receive(timeout=TIMEOUT)) == b"still here"
        assert before.what == "connected"
        assert not events.count("disconnected", "net")


def test_the_wrong_peer_is_told(kernel_factory: KernelFactory) -> None:
    """The peer is a bare socket: libzmq closes as soon as it knows our type, often before it has said its own."""
    net = socket_of("PULL", bind=["tcp://127.0.0.1:0"])
    events = Events()
    kernel = kernel_factory(APP, net, route("net", "app"), on_event=events)
    host, port = kernel.address_of("net").removeprefix("tcp://").rsplit(":", 1)
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\x00") + bytes(32)
    ready = b"\x05READY\x0bSocket-Type\x00\x00\x00\x03SUB"
    with create_connection((host, int(port))) as peer:
        peer.sendall(greeting + b"\x04" + bytes((len(ready),)) + ready)
        assert "PULL needs PUSH" in events.wait("disconnected", "net").detail


def test_two_kernels(kernel_factory: KernelFactory, tmp_path: Path) -> None:
    place = f"ipc://{tmp_path}/feed"
    source = kernel_factory(APP, socket_of("PUB", bind=[place]), route("app", "net", router="by-key"))
    reader = kernel_factory(APP, socket_of("SUB", connect=[place]), route("net", "app", router="by-key"))
    with source.open("app") as sender, reader.open("app") as receiver:
        receiver.subscribe("a.*")
        receiver.wait_subscribed(timeout=TIMEOUT)
        until(subscribed(source, 1))
        for key in ("b.c", "a.b.c", "a.b"):
            sender.send(b"body", key=key)
        got: Message = receiver.receive_message(timeout=TIMEOUT)
        assert got.envelope.key == "a.b"


@pytest.mark.parametrize(
    "options, complaint",
    [
        ({"type": "PUB"}, "neither bind nor connect"),
        ({"type": "PUB", "bind": ["udp://x:1"]}, "begins with one of tcp://, ipc://, inproc://"),
        ({"type": "PUB", "connect": ["tcp://*:1"]}, "name a host"),
        ({"type": "PUB", "bind": ["tcp://x"]}, "no host:port"),
        ({"type": "PUB", "bind": ["tcp://*:1"], "subscribe": ["a"]}, "PUB does not subscribe"),
        ({"type": "PAIR", "bind": ["tcp://*:1", "tcp://*:2"]}, "one place"),
        ({"type": "PULL", "bind": ["tcp://*:1"], "mechanism": "PLAIN"}, "authenticator"),
        ({"type": "DGRAM", "bind": ["tcp://*:1"]}, "type"),
        ({"type": "STREAM", "bind": ["inproc://x"]}, "peers of STREAM are at tcp, tls and ipc"),
        ({"type": "PUB", "bind": ["tcp://*:1"], "identity": "a"}, "identity: PUB tells none"),
        ({"type": "DEALER", "bind": ["tcp://*:1"], "identity": "ä" * 128}, "at most 255 bytes"),
        ({"type": "DEALER", "bind": ["tcp://*:1"], "correlate": True}, "correlate is for REQ"),
        ({"type": "DEALER", "bind": ["tcp://*:1"], "handover": True}, "handover is for ROUTER"),
    ],
)
def test_wrong_options(options: dict[str, Any], complaint: str, kernel_factory: KernelFactory) -> None:
    with pytest.raises(KernelError, match=complaint):
        kernel_factory(APP, EnginePlan(name="net", kind="zmq", options=options))
