"""``tls``, ``ws`` and ``wss``: two kernels, and the bytes of 45/ZWS by the package ``websockets``.

That package does not let ``ZWS2.0/NULL`` be a name, nor do browsers.  zeromq.js takes it (tests/interop/test_node_zeromq.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from kernel.contracts.errors import KernelError
from kernel.testing.fixtures import KernelFactory, kernel_factory
from kernel.topology.plan import EnginePlan, RoutePlan
from kernel.topology.system import Kernel
from tests.events import Events
from tests.interop.until import until
from tests.plans import route
from tests.system.conftest import Certificates, certificates

__all__ = ["certificates", "kernel_factory"]

TIMEOUT = 30.0
APP = EnginePlan(name="app", kind="native")
BODIES: list[bytes] = [b"", b"hello", b"x" * 255, b"y" * 300_000, *[b"same"] * 500]


def socket_of(kind: str, name: str = "net", **options: Any) -> EnginePlan:
    return EnginePlan(name=name, kind="zmq", options={"type": kind, **options})


@pytest.fixture(params=["tls", "ws", "wss"])
def pair(
    request: pytest.FixtureRequest, kernel_factory: KernelFactory
) -> Callable[..., tuple[Kernel, Kernel]]:
    """Makes a kernel with a socket that is bound, and one with a socket that connects to it."""
    transport = request.param
    listens: dict[str, Any] = {}
    dials: dict[str, Any] = {}
    if transport != "ws":
        files: Certificates = request.getfixturevalue("certificates")
        listens = {"tls": {"certificate": files.server}}
        dials = {"tls": {"authorities": files.authorities}}

    def make(
        binds: str, connects: str, *routes: RoutePlan, here: dict[str, Any], there: dict[str, Any]
    ) -> tuple[Kernel, Kernel]:
        path = "" if transport == "tls" else "/feed"
        bound = socket_of(binds, bind=[f"{transport}://127.0.0.1:0{path}"], **listens, **here)
        first = kernel_factory(APP, bound, *routes)
        place = first.address_of("net")
        assert place.startswith(f"{transport}://127.0.0.1:")
        assert place.endswith(path)
        back = [route(each.targets[0], each.source) for each in routes]
        second = kernel_factory(APP, socket_of(connects, connect=[place], **dials, **there), *back)
        return first, second

    return make


def test_messages_of_all_sizes(pair: Callable[..., tuple[Kernel, Kernel]]) -> None:
    first, second = pair("PULL", "PUSH", route("net", "app"), here={}, there={})
    with first.open("app") as pull, second.open("app") as push:
        push.send_many(BODIES, timeout=TIMEOUT)
        push.send_parts([b"a", b"", b"x" * 70_000], timeout=TIMEOUT)
        assert [bytes(pull.receive(timeout=TIMEOUT)) for _ in BODIES] == BODIES
        assert pull.receive_message(timeout=TIMEOUT).parts == (b"a", b"", b"x" * 70_000)


def test_subscriptions(pair: Callable[..., tuple[Kernel, Kernel]]) -> None:
    first, second = pair("PUB", "SUB", route("app", "net"), here={}, there={"subscribe": ["tea"]})
    with first.open("app") as pub, second.open("app") as sub:
        until(lambda: any(row.get("subscriptions") for row in first.inspect("connections").rows))
        for key in ("coffee", "tea", "teapot"):
            pub.send(b"1", key=key)
        assert [sub.receive_message(timeout=TIMEOUT).envelope.key for _ in range(2)] == ["tea", "teapot"]


def test_questions_find_their_way_back(kernel_factory: KernelFactory) -> None:
    net = socket_of("ROUTER", bind=["ws://127.0.0.1:0"])
    first = kernel_factory(APP, net, route("net", "app"), route("app", "net", router="reply"))
    asks = (route("app", "net", router="round-robin"), route("net", "app", router="reply"))
    second = kernel_factory(APP, socket_of("REQ", identity="anna", connect=[first.address_of("net")]), *asks)
    with first.open("app") as server, second.open("app") as client:
        for text in (b"one", b"two"):
            number = client.ask(text, None, TIMEOUT)
            question = server.receive_message(timeout=TIMEOUT)
            assert (question.envelope.reply_to, question.parts) == ("net/anna", (b"", text))
            server.send_message(_answer(question, b"re: " + text))
            assert client.answer(number, TIMEOUT).body == b"re: " + text


def _answer(question: Any, body: bytes) -> Any:
    from kernel import Message

    return Message(b"", question.envelope, (b"", body))


def test_plain_over_a_web_socket(kernel_factory: KernelFactory) -> None:
    broker = EnginePlan(
        name="broker", kind="amqp", options={"address": "127.0.0.1:0", "users": {"anna": {"password": "tea"}}}
    )
    events = Events()
    net = socket_of("PULL", bind=["ws://127.0.0.1:0"], mechanism="PLAIN", authenticator="broker")
    first = kernel_factory(APP, broker, net, route("net", "app"), on_event=events)
    place = first.address_of("net")

    def push(password: str) -> EnginePlan:
        return socket_of("PUSH", connect=[place], mechanism="PLAIN", username="anna", password=password)

    wrong = kernel_factory(APP, push("coffee"), route("app", "net"))
    assert "login of 'anna'" in events.wait("refused", "net").detail
    wrong.close()
    second = kernel_factory(APP, push("tea"), route("app", "net"))
    with first.open("app") as pull, second.open("app") as app:
        app.send(b"hello", timeout=TIMEOUT)
        message = pull.receive_message(timeout=TIMEOUT)
        assert (message.body, message.envelope.properties["user_id"]) == (b"hello", "anna")


# ---------------------------------------------------------------------- the bytes of 45/ZWS


def bound(kernel_factory: KernelFactory, kind: str = "PULL", *routes: RoutePlan, **options: Any) -> Kernel:
    net = socket_of(kind, bind=["ws://127.0.0.1:0/feed"], **options)
    return kernel_factory(APP, net, *(routes or (route("net", "app"),)))


@contextmanager
def client(kernel: Kernel, *subprotocols: str) -> Iterator[ClientConnection]:
    offered: Any = list(subprotocols) or None
    with connect(kernel.address_of("net"), subprotocols=offered, open_timeout=TIMEOUT) as made:
        yield made


def test_frames_in_pieces(kernel_factory: KernelFactory) -> None:
    kernel = bound(kernel_factory)
    with client(kernel, "ZWS2.0") as peer, kernel.open("app") as app:
        for octets in (b"\0", b"\0hello", b"\1a", b"\1", b"\0c"):
            peer.send(octets)
        # One frame of ZWS in several of WebSocket.
        peer.send([b"\0", b"in ", b"pieces"])
        assert app.receive(timeout=TIMEOUT) == b"hello"
        assert app.receive_message(timeout=TIMEOUT).parts == (b"a", b"", b"c")
        assert app.receive(timeout=TIMEOUT) == b"in pieces"


def test_a_client_without_a_mechanism(kernel_factory: KernelFactory) -> None:
    kernel = bound(kernel_factory, "XPUB", route("app", "net"))
    with client(kernel, "ZWS2.0") as peer, kernel.open("app") as app:
        assert peer.subprotocol == "ZWS2.0"
        assert peer.recv(TIMEOUT) == b"\0", "an identity, which is empty"
        for octets in (b"\0", b"\0\1tea"):
            peer.send(octets)
        until(lambda: any(row["subscriptions"] for row in kernel.inspect("connections").rows))
        app.send(b"cup", key="coffee")
        app.send(b"pot", key="tea")
        assert [peer.recv(TIMEOUT) for _ in range(2)] == [b"\1tea", b"\0pot"]


def test_a_router_names_a_client_without_a_mechanism(kernel_factory: KernelFactory) -> None:
    kernel = bound(kernel_factory, "ROUTER", route("net", "app"), route("app", "net", router="reply"))
    with client(kernel, "ZWS2.0") as peer, kernel.open("app") as app:
        peer.send(b"\0anna")
        peer.send(b"\0question")
        question = app.receive_message(timeout=TIMEOUT)
        assert question.envelope.reply_to == "net/anna"
        app.reply(question, b"answer", timeout=TIMEOUT)
        assert [peer.recv(TIMEOUT) for _ in range(2)] == [b"\0", b"\0answer"]


@pytest.mark.parametrize("octets", [b"", b"\4what", b"\2\x05READY", b"\0" + b"long" * 64, "text"])
def test_a_client_that_says_something_else(kernel_factory: KernelFactory, octets: bytes | str) -> None:
    kernel = bound(kernel_factory)
    with client(kernel, "ZWS2.0") as peer:
        assert peer.recv(TIMEOUT) == b"\0"
        peer.send(octets)
        with pytest.raises(ConnectionClosed):
            peer.recv(TIMEOUT)


@pytest.mark.parametrize("offered", [(), ("mqtt",)])
def test_a_client_that_offers_something_else(kernel_factory: KernelFactory, offered: tuple[str, ...]) -> None:
    kernel = bound(kernel_factory)
    with pytest.raises(InvalidStatus, match="400"), client(kernel, *offered):
        pass


def test_passwords_cannot_be_got_around(kernel_factory: KernelFactory) -> None:
    broker = EnginePlan(name="broker", kind="amqp", options={"address": "127.0.0.1:0"})
    net = socket_of("PULL", bind=["ws://127.0.0.1:0/feed"], mechanism="PLAIN", authenticator="broker")
    kernel = kernel_factory(APP, broker, net, route("net", "app"))
    with pytest.raises(InvalidStatus, match="400"), client(kernel, "ZWS2.0"):
        pass


@pytest.mark.parametrize(
    "options, why",
    [
        ({"connect": ["ws://*:80"]}, "name a host"),
        ({"bind": ["wss://*:80"]}, "needs tls.certificate"),
        ({"bind": ["ws://*:80"], "web": {"subprotocols": ["mqtt"]}}, "ZWS has names of its own"),
        ({"bind": ["ws://*:80"], "mechanism": "CURVE", "curve_clients": {"all": "*"}}, "NULL and PLAIN"),
        ({"connect": ["epgm://eth0;239.192.1.1:5555"]}, "zmtp1.epgm://eth0"),
        ({"connect": ["udp://127.0.0.1:80"]}, "begins with one of tcp://"),
    ],
)
def test_what_cannot_be(kernel_factory: KernelFactory, options: dict[str, Any], why: str) -> None:
    if options.get("mechanism"):
        pytest.importorskip("nacl")
        options = {**options, "curve_secret_key": "D" * 40}
    with pytest.raises(KernelError, match=why):
        kernel_factory(APP, socket_of("PULL", **options), route("net", "app"))
