"""Sockets joined by routes: devices, of which libzmq may be one, and bridges to AMQP and journals; with pyzmq."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kernel.contracts.errors import TimedOut
from kernel.testing.fixtures import KernelFactory, kernel_factory
from kernel.topology.plan import EnginePlan
from kernel.topology.system import Kernel
from tests.interop.until import until
from tests.plans import route
from tests.plugins.engines.zmq.test_pyzmq import TIMEOUT, Sockets, sockets

__all__ = ["kernel_factory", "sockets"]

pytestmark = pytest.mark.peer("pyzmq")
ANY = "tcp://127.0.0.1:0"


def socket_of(name: str, kind: str, **options: Any) -> EnginePlan:
    return EnginePlan(name=name, kind="zmq", options={"type": kind, **options})


# ---------------------------------------------------------------------- devices


Queue = Callable[[], tuple[str, str]]


@pytest.fixture
def our_queue(kernel_factory: KernelFactory) -> Queue:
    """Makes a device QUEUE; returns the places of askers and of those who answer."""

    def make() -> tuple[str, str]:
        kernel = kernel_factory(
            socket_of("front", "ROUTER", bind=[ANY]),
            socket_of("back", "DEALER", bind=[ANY], relay=True),
            route("front", "back", router="round-robin"),
            route("back", "front", router="reply"),
        )
        return kernel.address_of("front"), kernel.address_of("back")

    return make


@pytest.fixture
def their_queue(sockets: Sockets) -> Queue:
    """Makes one of libzmq."""
    import zmq

    def make() -> tuple[str, str]:
        front, back = sockets("ROUTER"), sockets("DEALER")
        for each in (front, back):
            each.bind(ANY)
        places = front.last_endpoint.decode(), back.last_endpoint.decode()

        def run() -> None:
            try:
                zmq.proxy(front, back)
            except zmq.ZMQError:
                # Its sockets are closed at the end of the test.
                pass

        threading.Thread(target=run, daemon=True).start()
        return places

    return make


@pytest.mark.parametrize("first, second", [("our", "our"), ("our", "their"), ("their", "our")])
def test_questions_over_two_devices(
    request: pytest.FixtureRequest, kernel_factory: KernelFactory, sockets: Sockets, first: str, second: str
) -> None:
    """REQ - device - device - REP: between two devices a hop is ROUTER to DEALER, joined by one more QUEUE."""
    asked, near = request.getfixturevalue(f"{first}_queue")()
    far, answers = request.getfixturevalue(f"{second}_queue")()
    # What answers the first device is a device itself: ROUTER, which connects as a REP would, and DEALER.
    kernel_factory(
        socket_of("front", "ROUTER", connect=[near]),
        socket_of("back", "DEALER", connect=[far], relay=True),
        route("front", "back", router="round-robin"),
        route("back", "front", router="reply"),
    )
    reqs = [sockets("REQ") for _ in range(3)]
    rep = sockets("REP")
    rep.connect(answers)
    for req in reqs:
        req.connect(asked)
    for turn in range(3):
        for number, req in enumerate(reqs):
            req.send_multipart([b"%d" % turn, b"", b"%d" % number])
        for _ in reqs:
            rep.send_multipart([b"re", *rep.recv_multipart()])
        for number, req in enumerate(reqs):
            assert req.recv_multipart() == [b"re", b"%d" % turn, b"", b"%d" % number]


def test_a_streamer(kernel_factory: KernelFactory, sockets: Sockets) -> None:
    kernel = kernel_factory(
        socket_of("in", "PULL", bind=[ANY]),
        socket_of("out", "PUSH", bind=[ANY]),
        route("in", "out", router="round-robin"),
    )
    push, pulls = sockets("PUSH"), [sockets("PULL") for _ in range(2)]
    for pull in pulls:
        pull.connect(kernel.address_of("out"))
    until(lambda: _running(kernel, "PULL") == 2)
    push.connect(kernel.address_of("in"))
    messages = [[b"%d" % number, b"", b"x" * number] for number in range(200)]
    for message in messages:
        push.send_multipart(message)
    got: list[list[bytes]] = []
    while len(got) < len(messages):
        got += [pull.recv_multipart() for pull in pulls if pull.poll(10)]
    assert sorted(got, key=lambda message: int(message[0])) == messages
    assert all(pull.poll(0) == 0 for pull in pulls)


def test_topics_are_groups_of_radio_and_dish(
    kernel_factory: KernelFactory, sockets: Sockets, tmp_path: Path
) -> None:
    """A feed of libzmq goes through both, and comes out with its topics; of a DISH only with those that it joins."""
    between = f"ipc://{tmp_path / 'between'}"
    kernel = kernel_factory(
        socket_of("in", "XSUB", bind=[ANY], subscribe=[""]),
        socket_of("radio", "RADIO", bind=[between]),
        socket_of("dish", "DISH", connect=[between], subscribe=["weather", "last"]),
        socket_of("out", "PUB", bind=[ANY]),
        route("in", "radio", router="by-key"),
        route("dish", "out", router="by-key"),
    )
    xpub, sub = sockets("XPUB"), sockets("SUB")
    sub.subscribe(b"")
    sub.connect(kernel.address_of("out"))
    xpub.connect(kernel.address_of("in"))
    until(lambda: _running(kernel, "SUB") and _has_subscriptions(kernel, 1))
    # What readers want has come to the publisher: everything, by its own option.
    assert xpub.recv() == b"\1"
    # The two, and the empty group: readers of everything ask for the beginning of all topics.
    until(lambda: [row["subscriptions"] for row in _rows(kernel, "DISH")] == [3])
    for topic, body in ((b"weathers", b"1"), (b"we", b"2"), (b"weather", b"sunny"), (b"last", b"3")):
        xpub.send_multipart([topic, body])
    assert [sub.recv_multipart() for _ in range(2)] == [[b"weather", b"sunny"], [b"last", b"3"]]


def _rows(kernel: Kernel, peer_type: str) -> list[dict[str, Any]]:
    return [row for row in kernel.inspect("connections").rows if row["peer_type"] == peer_type]


def _running(kernel: Kernel, peer_type: str) -> int:
    found = kernel.inspect("connections").rows
    return sum(row["state"] == "running" and row.get("peer_type") == peer_type for row in found)


def _has_subscriptions(kernel: Kernel, count: int) -> bool:
    found = kernel.inspect("connections").rows
    subscriptions: int = sum(row["subscriptions"] for row in found if row["peer_type"] == "SUB")
    return subscriptions == count


PREFIXES = [b"\xff\0", b"\xff", b"\xc3", "ü".encode(), b"tea", b"\0"]
"""Octets that are no text, and one half of a letter."""
MESSAGES = [
    b"\xff\0one",
    b"\xfftwo",
    b"\xfe",
    "üthree".encode(),
    b"\xc3\xa9four",
    b"teapot",
    b"te",
    b"\0",
    b"",
]


@pytest.mark.parametrize("keys", [{}, {"key_part": False}], ids=["keys", "octets"])
def test_a_forwarder_asks_for_prefixes_of_any_octets(
    kernel_factory: KernelFactory, sockets: Sockets, keys: dict[str, Any]
) -> None:
    kernel = kernel_factory(
        socket_of("from", "XSUB", bind=[ANY], **keys),
        socket_of("to", "XPUB", bind=[ANY], **keys),
        route("from", "to", router="by-prefix"),
    )
    xpub = sockets("XPUB")
    xpub.connect(kernel.address_of("from"))
    asked: set[bytes] = set()
    for number, prefix in enumerate(PREFIXES, 1):
        sub = sockets("SUB")
        sub.subscribe(prefix)
        sub.connect(kernel.address_of("to"))
        if keys:
            # Each octet travels, so the source sends no more than is wanted.
            assert xpub.recv() == b"\1" + prefix
        else:
            # What is no text becomes the text before it: here all.
            wanted = prefix if prefix in ("ü".encode(), b"tea", b"\0") else b""
            if wanted not in asked:
                asked.add(wanted)
                assert xpub.recv() == b"\1" + wanted
        until(partial(_has_subscriptions, kernel, number))
        for message in MESSAGES:
            xpub.send_multipart([message, b"body"])
        got = [sub.recv_multipart() for message in MESSAGES if message.startswith(prefix)]
        assert got == [[message, b"body"] for message in MESSAGES if message.startswith(prefix)]


# ---------------------------------------------------------------------- bridges


@pytest.mark.peer("pika")
def test_a_dealer_is_answered_by_a_worker_of_amqp(kernel_factory: KernelFactory, sockets: Sockets) -> None:
    import pika

    queue = {"name": "questions"}
    kernel = kernel_factory(
        EnginePlan(name="broker", kind="amqp", options={"address": "127.0.0.1:0", "queues": [queue]}),
        socket_of("net", "ROUTER", bind=[ANY], key="questions"),
        route("net", "broker"),
        route("broker", "net", router="reply", exchange=""),
    )
    host, _, port = kernel.address_of("broker").partition(":")
    dealers = [sockets("DEALER", routing_id=name) for name in (b"anna", b"\xff\0")]
    with pika.BlockingConnection(pika.ConnectionParameters(host, int(port))) as connection:
        channel = connection.channel()
        for dealer in dealers:
            dealer.connect(kernel.address_of("net"))
            dealer.send(dealer.routing_id)
        for _ in dealers:
            _, asked, body = until(lambda: (got := channel.basic_get("questions", auto_ack=True))[0] and got)
            # Any number of answers.
            for text in (b"one ", b"two "):
                channel.basic_publish("", asked.reply_to, text + body)
        for dealer in dealers:
            assert [dealer.recv() for _ in range(2)] == [
                text + dealer.routing_id for text in (b"one ", b"two ")
            ]


@pytest.mark.peer("pika")
def test_a_feed_of_zmq_becomes_a_topic_exchange(kernel_factory: KernelFactory, sockets: Sockets) -> None:
    """The first part is the routing key, by which queues of AMQP are bound; the other parts are the body."""
    kernel = kernel_factory(
        _broker(exchanges=[{"name": "feed", "type": "topic"}]),
        socket_of("net", "SUB", bind=[ANY], subscribe=["weather.", "last"], exchange="feed"),
        route("net", "broker"),
    )
    xpub = sockets("XPUB")
    with _amqp(kernel) as channel:
        for key in ("weather.*.wien", "#"):
            channel.queue_declare(key)
            channel.queue_bind(key, "feed", key)
        xpub.connect(kernel.address_of("net"))
        # Once the publisher has both subscriptions, nothing that matches is dropped any more.
        assert {xpub.recv() for _ in range(2)} == {b"\1weather.", b"\1last"}
        messages = [
            [b"weather.today.wien", b"sunny"],
            [b"traffic.today.wien", b"heavy"],
            [b"weather.today.graz", b"windy"],
            [b"weather.soon.wien", b"\xff\0", b"in two parts"],
            [b"last", b""],
        ]
        for message in messages:
            xpub.send_multipart(message)
        wanted = [(key.decode(), b"".join(body)) for key, *body in messages if not key.startswith(b"traffic")]
        assert _taken(channel, "#", 4) == wanted
        assert _taken(channel, "weather.*.wien", 2) == [wanted[0], wanted[2]]
        assert channel.basic_get("weather.*.wien")[0] is None


@pytest.mark.peer("pika")
def test_a_queue_of_amqp_feeds_workers_of_zmq(kernel_factory: KernelFactory, sockets: Sockets) -> None:
    """Each message goes to one worker; while there is none, the queue keeps all that the client has not taken."""
    kernel = kernel_factory(
        _broker(queues=[{"name": "jobs"}]),
        socket_of("workers", "PUSH", bind=[ANY]),
        route("jobs", "workers", router="round-robin", confirm=True, marks={"high": 10}),
    )
    options = {
        "addresses": [f"amqp+tcp://{kernel.address_of('broker')}"],
        "consume": [{"queue": "jobs", "prefetch": 10}],
    }
    kernel.add_engine(EnginePlan(name="jobs", kind="amqp-client", options=options))
    with _amqp(kernel) as channel:
        pulls = [sockets("PULL") for _ in range(2)]

        def left() -> int:
            return int(channel.queue_declare("jobs", passive=True).method.message_count)

        def publish() -> None:
            for number in range(200):
                channel.basic_publish("", "jobs", b"%d" % number)

        publish()
        until(lambda: left() == 190)
        pulls[0].connect(kernel.address_of("workers"))
        assert [int(pulls[0].recv()) for _ in range(200)] == list(range(200))
        pulls[1].connect(kernel.address_of("workers"))
        until(lambda: _running(kernel, "PULL") == 2)
        publish()
        got: list[list[int]] = [[], []]
        while sum(map(len, got)) < 200:
            for numbers, pull in zip(got, pulls, strict=True):
                if pull.poll(10):
                    numbers.append(int(pull.recv()))
        assert sorted(got[0] + got[1]) == list(range(200))
        assert all(got)
        # All gets acknowledged, so nothing comes back when the client goes.
        until(lambda: [row["messages_unacknowledged"] for row in kernel.inspect("queues").rows] == [0])
        kernel.remove_engine("jobs")
        assert channel.basic_get("jobs")[0] is None


def _broker(**declared: Any) -> EnginePlan:
    return EnginePlan(name="broker", kind="amqp", options={"address": "127.0.0.1:0", **declared})


@contextmanager
def _amqp(kernel: Kernel) -> Iterator[Any]:
    """A channel of pika at the kernel's broker."""
    import pika

    host, _, port = kernel.address_of("broker").partition(":")
    with pika.BlockingConnection(pika.ConnectionParameters(host, int(port))) as connection:
        yield connection.channel()


def _taken(channel: Any, queue: str, count: int) -> list[tuple[str, bytes]]:
    """Routing keys and bodies of as many messages."""
    got = []
    for _ in range(count):
        method, _, body = until(lambda: (one := channel.basic_get(queue, auto_ack=True))[0] and one)
        got.append((method.routing_key, body))
    return got


def test_what_comes_has_an_exchange_and_a_key(kernel_factory: KernelFactory, sockets: Sockets) -> None:
    app = EnginePlan(name="app", kind="native")
    stamp = {"exchange": "work", "key": "tasks"}
    kernel = kernel_factory(
        app,
        socket_of("net", "PULL", bind=[ANY, "inproc://here"], **stamp),
        socket_of("near", "PUSH", connect=["inproc://here"]),
        socket_of("keyed", "SUB", bind=[ANY], subscribe=[""], **stamp),
        route("app", "near"),
        route("net", "app"),
        route("keyed", "app"),
    )
    push, pub = sockets("PUSH"), sockets("PUB")
    with kernel.open("app") as channel:
        push.connect(kernel.address_of("net").split(", ")[0])
        push.send(b"1")
        assert _envelope_of(channel) == ("work", "tasks", b"1")
        channel.send(b"2", timeout=TIMEOUT)
        assert _envelope_of(channel) == ("work", "tasks", b"2")
        pub.connect(kernel.address_of("keyed"))

        def arrives() -> tuple[str, str, bytes] | None:
            # What PUB sends before it is subscribed to is dropped.
            pub.send_multipart([b"tea", b"3"])
            try:
                return _envelope_of(channel, 0.02)
            except TimedOut:
                return None

        assert until(arrives) == ("work", "tea", b"3")


def _envelope_of(channel: Any, seconds: float = TIMEOUT) -> tuple[str, str, bytes]:
    message = channel.receive_message(timeout=seconds)
    return message.envelope.exchange, message.envelope.key, bytes(message.body)


def test_a_journal_is_published_again(
    kernel_factory: KernelFactory, sockets: Sockets, tmp_path: Path
) -> None:
    pytest.importorskip("pyarrow")
    journal = str(tmp_path / "journal")
    kernel = kernel_factory(
        EnginePlan(name="app", kind="native"),
        EnginePlan(name="log", kind="journal", options={"path": journal}),
        route("app", "log", confirm=True),
    )
    with kernel.open("app") as app:
        for number in range(100):
            app.send(b"%d" % number, key="tea" if number % 2 else "coffee")
        app.wait_confirmed(TIMEOUT)
    kernel.close()
    sub = sockets("SUB")
    sub.subscribe("tea")
    sub.bind(ANY)
    kernel = kernel_factory(socket_of("net", "PUB", connect=[sub.last_endpoint.decode()]))
    # As in ØMQ, what is published before somebody has subscribed is dropped.
    until(lambda: sub.poll(0) or _has_subscriptions(kernel, 1))
    kernel.add_route(route("past", "net", router="by-prefix"))
    kernel.add_engine(EnginePlan(name="past", kind="journal-replay", options={"path": journal, "speed": 0}))
    assert [sub.recv_multipart() for _ in range(50)] == [
        [b"tea", b"%d" % number] for number in range(1, 100, 2)
    ]
