"""CURVE against libzmq (pyzmq): each pattern, with the kernel as server and as client, bound and connected."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kernel import Message
from kernel.contracts.errors import KernelError, PlanError
from kernel.testing.fixtures import KernelFactory, kernel_factory
from kernel.topology.plan import EnginePlan
from kernel.topology.system import Kernel
from tests.events import Events
from tests.interop.until import until
from tests.plans import route
from tests.plugins.engines.zmq.test_pyzmq import (
    ANSWER,
    APP,
    ASK,
    BODIES,
    BOTH,
    TIMEOUT,
    Doorkeeper,
    Ends,
    Sockets,
    ends,
    rows,
    socket_of,
    sockets,
    subscribed,
)

__all__ = ["ends", "kernel_factory", "sockets"]

pytestmark = pytest.mark.peer("pyzmq")
pytest.importorskip("nacl")


class Keys:
    """Keys of both sides, made by libzmq, as options of the kernel and of pyzmq."""

    def __init__(self) -> None:
        import zmq

        # A dollar is written twice in a topology; these plans are no text.
        self.server, self.server_secret = (key.decode() for key in zmq.curve_keypair())
        self.client, self.client_secret = (key.decode() for key in zmq.curve_keypair())

    def ours(self, role: str) -> dict[str, Any]:
        if role == "server":
            keys = {"curve_secret_key": self.server_secret, "curve_clients": {"anna": self.client}}
        else:
            keys = {"curve_secret_key": self.client_secret, "curve_server_key": self.server}
        return {"mechanism": "CURVE", **keys}

    def theirs(self, role: str) -> dict[str, Any]:
        """Options of pyzmq, if this is the kernel's role."""
        if role == "client":
            return {"curve_server": True, "curve_secretkey": self.server_secret.encode()}
        return {
            "curve_serverkey": self.server.encode(),
            "curve_publickey": self.client.encode(),
            "curve_secretkey": self.client_secret.encode(),
        }


@pytest.fixture
def keys() -> Keys:
    return Keys()


both_roles = pytest.mark.parametrize("role", ["server", "client"])
PARTS = [b"a", b"", b"x" * 70_000]
LARGE = b"x" * 2_000_000
"""More than a read, and than a buffer of a socket."""


@both_roles
def test_push(ends: Ends, keys: Keys, role: str) -> None:
    kernel, pull = ends.open("PUSH", "PULL", (route("app", "net"),), keys.ours(role), **keys.theirs(role))
    with kernel.open("app") as app:
        until(lambda: any(row["state"] == "running" for row in rows(kernel)))
        app.send_many(BODIES)
        app.send_parts(PARTS)
        assert [pull.recv() for _ in BODIES] == BODIES
        assert pull.recv_multipart() == PARTS


@both_roles
def test_pull(ends: Ends, keys: Keys, role: str) -> None:
    kernel, push = ends.open("PULL", "PUSH", (route("net", "app"),), keys.ours(role), **keys.theirs(role))
    with kernel.open("app") as app:
        for body in BODIES:
            push.send(body)
        push.send_multipart(PARTS)
        assert [bytes(app.receive(timeout=TIMEOUT)) for _ in BODIES] == BODIES
        message = app.receive_message(timeout=TIMEOUT)
        assert message.parts == tuple(PARTS)
        user = "anna" if role == "server" else None
        assert message.envelope.properties.get("user_id") == user
        assert [row["user"] for row in rows(kernel)] == [user or ""]


@both_roles
@pytest.mark.parametrize("kind", ["PUB", "XPUB"])
def test_publishers(ends: Ends, keys: Keys, kind: str, role: str) -> None:
    routes = (route("app", "net", router="by-key"),)
    kernel, sub = ends.open(kind, "SUB", routes, keys.ours(role), **keys.theirs(role))
    sub.subscribe("tea")
    with kernel.open("app") as app:
        until(subscribed(kernel, 1, sub))
        for key in ("coffee", "tea", "teapot"):
            app.send_many([b"1", b"2"], key=key)
        got = [sub.recv_multipart() for _ in range(4)]
        assert got == [[key, body] for key in (b"tea", b"teapot") for body in (b"1", b"2")]
        sub.unsubscribe("tea")
        until(subscribed(kernel, 0, sub))


@both_roles
@pytest.mark.parametrize("kind", ["SUB", "XSUB"])
def test_subscribers(ends: Ends, keys: Keys, kind: str, role: str) -> None:
    options = {"subscribe": ["tea"], **keys.ours(role)}
    kernel, pub = ends.open(kind, "XPUB", (route("net", "app"),), options, **keys.theirs(role))
    with kernel.open("app") as app:
        assert pub.recv() == b"\1tea"
        for key in (b"coffee", b"tea"):
            pub.send_multipart([key, b"1", b"2"])
        got = app.receive_message(timeout=TIMEOUT)
        assert (got.envelope.key, got.parts) == ("tea", (b"1", b"2"))


@both_roles
def test_pair_and_heartbeats(ends: Ends, keys: Keys, role: str) -> None:
    """The PING of libzmq is sealed, and so is the answer."""
    options = keys.ours(role)
    peer = {"heartbeat_ivl": 20, "heartbeat_timeout": int(TIMEOUT * 1000), **keys.theirs(role)}
    kernel, pair = ends.open("PAIR", "PAIR", (route("app", "net"), route("net", "app")), options, **peer)
    with kernel.open("app") as app:
        pair.send_multipart([b"a", b"b"])
        assert app.receive_message(timeout=TIMEOUT).parts == (b"a", b"b")
        octets = rows(kernel)[0]["send_oct"]
        # More than what one PONG has.
        until(lambda: rows(kernel)[0]["send_oct"] > octets + 500)
        app.send(b"back")
        assert pair.recv() == b"back"
        assert [row["state"] for row in rows(kernel)] == ["running"]


@both_roles
@pytest.mark.parametrize("correlate", [False, True])
@pytest.mark.parametrize("theirs", ["REP", "ROUTER"])
def test_req(ends: Ends, keys: Keys, role: str, theirs: str, correlate: bool) -> None:
    options = {"correlate": correlate, **keys.ours(role)}
    kernel, peer = ends.open("REQ", theirs, ASK, options, **keys.theirs(role))
    with kernel.open("app") as app:
        for text in (b"one", LARGE):
            number = app.ask(text, None, TIMEOUT)
            parts = peer.recv_multipart()
            assert parts[-1] == text
            peer.send_multipart([*parts[:-1], b"re: " + text])
            assert app.answer(number, TIMEOUT).body == b"re: " + text


@both_roles
@pytest.mark.parametrize("theirs", ["REQ", "DEALER"])
def test_rep(ends: Ends, keys: Keys, role: str, theirs: str) -> None:
    kernel, peer = ends.open("REP", theirs, ANSWER, keys.ours(role), **keys.theirs(role))
    before = [b"hop", b""] if theirs == "DEALER" else []
    with kernel.open("app") as app:
        for text in (b"one", LARGE):
            peer.send_multipart([*before, text])
            app.reply(app.receive_message(timeout=TIMEOUT), b"re: " + text, timeout=TIMEOUT)
            assert peer.recv_multipart() == [*before, b"re: " + text]


@both_roles
@pytest.mark.parametrize("theirs", ["DEALER", "ROUTER"])
def test_dealer(ends: Ends, keys: Keys, role: str, theirs: str) -> None:
    options = {"identity": "ours", **keys.ours(role)}
    kernel, peer = ends.open("DEALER", theirs, BOTH, options, **keys.theirs(role))
    name = [b"ours"] if theirs == "ROUTER" else []
    with kernel.open("app") as app:
        app.send_parts(PARTS, timeout=TIMEOUT)
        assert peer.recv_multipart() == name + PARTS
        peer.send_multipart(name + PARTS)
        assert app.receive_message(timeout=TIMEOUT).parts == tuple(PARTS)


@both_roles
@pytest.mark.parametrize("theirs", ["REQ", "DEALER", "ROUTER"])
def test_router(ends: Ends, keys: Keys, role: str, theirs: str) -> None:
    options = {**keys.ours(role), "identity": "ours"}
    kernel, peer = ends.open("ROUTER", theirs, ANSWER, options, routing_id=b"anna", **keys.theirs(role))
    name = [b"ours"] if theirs == "ROUTER" else []

    def asked() -> bool:
        # A ROUTER of libzmq drops what is for a peer that it does not know yet.
        peer.send_multipart([*name, b"a", LARGE])
        return any(row["messages_in"] for row in rows(kernel))

    with kernel.open("app") as app:
        until(asked) if name else peer.send_multipart([b"a", LARGE])
        question = app.receive_message(timeout=TIMEOUT)
        assert question.parts == ((b"", b"a", LARGE) if theirs == "REQ" else (b"a", LARGE))
        assert question.envelope.reply_to == "net/anna"
        empty = [b""] if theirs == "REQ" else []
        app.send_message(Message(b"", question.envelope, (*empty, b"re", LARGE)), timeout=TIMEOUT)
        assert peer.recv_multipart() == [*name, b"re", LARGE]


# ---------------------------------------------------------------------- who is let in


@contextmanager
def monitored(socket: Any) -> Iterator[Any]:
    """Tell what happens to a socket.  libzmq waits for the monitor's end when a context ends."""
    import zmq

    monitor = socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL)
    monitor.setsockopt(zmq.RCVTIMEO, int(TIMEOUT * 1000))
    try:
        yield monitor
    finally:
        monitor.close(0)
        socket.disable_monitor()


def test_a_key_that_is_not_listed_is_refused(
    kernel_factory: KernelFactory, sockets: Sockets, keys: Keys
) -> None:
    import zmq
    from zmq.utils.monitor import recv_monitor_message

    events = Events()
    net = socket_of("PULL", bind=["tcp://127.0.0.1:0"], **keys.ours("server"))
    kernel = kernel_factory(APP, net, route("net", "app"), on_event=events)
    stranger = sockets("PUSH", **(keys.theirs("server") | _pair()))
    friend = sockets("PUSH", **keys.theirs("server"))
    with kernel.open("app") as app, monitored(stranger) as monitor:
        stranger.connect(kernel.address_of("net"))
        assert "no such key" in events.wait("refused", "net").detail
        event = recv_monitor_message(monitor)
        assert (event["event"], event["value"]) == (zmq.EVENT_HANDSHAKE_FAILED_AUTH, 400)
        friend.connect(kernel.address_of("net"))
        friend.send(b"let in")
        assert bytes(app.receive(timeout=TIMEOUT)) == b"let in"
        assert counters(kernel)["refused"] >= 1


def counters(kernel: Kernel) -> Mapping[str, Any]:
    return next(each.counters for each in kernel.statistics().engines if each.name == "net")


def _pair() -> dict[str, bytes]:
    import zmq

    public, secret = zmq.curve_keypair()
    return {"curve_publickey": public, "curve_secretkey": secret}


def test_a_wrong_key_of_the_server(kernel_factory: KernelFactory, sockets: Sockets, keys: Keys) -> None:
    events = Events()
    net = socket_of("PULL", bind=["tcp://127.0.0.1:0"], **keys.ours("server"))
    kernel = kernel_factory(APP, net, route("net", "app"), on_event=events)
    astray = sockets("PUSH", **(keys.theirs("server") | {"curve_serverkey": keys.client.encode()}))
    astray.connect(kernel.address_of("net"))
    assert "HELLO does not open" in events.wait("disconnected", "net").detail
    assert counters(kernel)["protocol_errors"] >= 1


def test_libzmq_refuses_us(kernel_factory: KernelFactory, sockets: Sockets, keys: Keys) -> None:
    from zmq.auth.thread import ThreadAuthenticator

    door = ThreadAuthenticator(sockets.context)
    door.start()
    try:
        door.configure_curve_callback(domain="*", credentials_provider=_Nobody())
        pull = sockets("PULL", **keys.theirs("client"))
        pull.bind("tcp://127.0.0.1:0")
        events = Events()
        net = socket_of("PUSH", connect=[pull.last_endpoint.decode()], **keys.ours("client"))
        kernel_factory(APP, net, route("app", "net"), on_event=events)
        assert "400, authentication failure" in events.wait("retrying", "net").detail
    finally:
        door.stop()


class _Nobody:
    def callback(self, domain: str, key: bytes) -> bool:
        return False


def test_libzmq_with_zap_lets_us_in(kernel_factory: KernelFactory, sockets: Sockets, keys: Keys) -> None:
    from zmq.auth.thread import ThreadAuthenticator

    seen: list[bytes] = []

    class Provider:
        def callback(self, domain: str, key: bytes) -> bool:
            seen.append(key)
            return True

    door = ThreadAuthenticator(sockets.context)
    door.start()
    try:
        door.configure_curve_callback(domain="*", credentials_provider=Provider())
        pull = sockets("PULL", **keys.theirs("client"))
        pull.bind("tcp://127.0.0.1:0")
        net = socket_of("PUSH", connect=[pull.last_endpoint.decode()], **keys.ours("client"))
        kernel = kernel_factory(APP, net, route("app", "net"))
        with kernel.open("app") as app:
            app.send(b"let in")
            assert pull.recv() == b"let in"
        assert seen == [keys.client.encode()]
    finally:
        door.stop()


class KeyDoor(Doorkeeper):
    """Lets one key in."""

    def __init__(self, key: str) -> None:
        self._key = key

    def operate(self, what: str, login: Any) -> Any:
        assert (what, login["mechanism"], len(login["secret"])) == ("authenticate", "CURVE", 32)
        assert login["facts"]["domain"] == "lab"
        if login["user"] != self._key:
            raise KernelError("not you")
        return {"user": "berta"}


def test_an_engine_decides(kernel_factory: KernelFactory, sockets: Sockets, keys: Keys) -> None:
    options = {"mechanism": "CURVE", "curve_secret_key": keys.server_secret, "authenticator": "door"}
    net = socket_of("PULL", bind=["tcp://127.0.0.1:0"], zap_domain="lab", **options)
    events = Events()
    kernel = kernel_factory(APP, net, route("net", "app"), on_event=events)
    kernel.host("door", lambda setup: KeyDoor(keys.client))
    events.wait("running", "door")
    stranger = sockets("PUSH", **(keys.theirs("server") | _pair()))
    friend = sockets("PUSH", **keys.theirs("server"))
    with kernel.open("app") as app:
        stranger.connect(kernel.address_of("net"))
        assert "not you" in events.wait("refused", "net").detail
        friend.connect(kernel.address_of("net"))
        friend.send(b"let in")
        message = app.receive_message(timeout=TIMEOUT)
        assert (bytes(message.body), message.envelope.properties["user_id"]) == (b"let in", "berta")


def test_a_folder_of_certificates(kernel_factory: KernelFactory, sockets: Sockets, tmp_path: Path) -> None:
    """Certificates of pyzmq's ``zmq.auth``: one for the server, and one for each client."""
    import zmq.auth

    _, own = zmq.auth.create_certificates(tmp_path, "server")
    clients = tmp_path / "clients"
    clients.mkdir()
    options = {"mechanism": "CURVE", "curve_certificate": own, "curve_clients_folder": str(clients)}
    net = socket_of("PULL", bind=["tcp://127.0.0.1:0"], **options)
    events = Events()
    kernel = kernel_factory(APP, net, route("net", "app"), on_event=events)
    server, _ = zmq.auth.load_certificate(tmp_path / "server.key")
    _, secret_file = zmq.auth.create_certificates(tmp_path, "carla")
    public, secret = zmq.auth.load_certificate(secret_file)
    known: dict[str, Any] = {"curve_serverkey": server, "curve_publickey": public, "curve_secretkey": secret}
    with kernel.open("app") as app:
        early = sockets("PUSH", **known)
        early.connect(kernel.address_of("net"))
        events.wait("refused", "net")
        (tmp_path / "carla.key").rename(clients / "carla.key")
        late = sockets("PUSH", **known)
        late.connect(kernel.address_of("net"))
        late.send(b"let in")
        message = app.receive_message(timeout=TIMEOUT)
        assert message.envelope.properties["user_id"] == "carla"


# ---------------------------------------------------------------------- options

KEY = "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID"


@pytest.mark.parametrize(
    "options, complaint",
    [
        ({"mechanism": "CURVE"}, "CURVE needs curve_secret_key at a server"),
        ({"mechanism": "CURVE", "curve_secret_key": KEY}, "whom to let in"),
        ({"mechanism": "CURVE", "curve_secret_key": KEY[:-1]}, "40 characters, this one 39"),
        ({"mechanism": "CURVE", "curve_secret_key": "~" + KEY[1:]}, "character 1 is none of Z85"),
        ({"mechanism": "CURVE", "curve_secret_key": "#" * 40}, "more than four octets"),
        ({"curve_secret_key": KEY}, 'for mechanism = "CURVE"'),
        ({"mechanism": "CURVE", "curve_secret_key": KEY, "curve_clients": {"anna": "short"}}, "anna: a key"),
        ({"mechanism": "CURVE", "curve_server_key": KEY, "curve_clients": {"anna": KEY}}, "for a server"),
        ({"mechanism": "CURVE", "curve_secret_key": KEY, "curve_certificate": "x"}, "say the same"),
    ],
)
def test_wrong_options(kernel_factory: KernelFactory, options: dict[str, Any], complaint: str) -> None:
    plan = EnginePlan(
        name="net", kind="zmq", options={"type": "PULL", "bind": ["tcp://127.0.0.1:0"], **options}
    )
    with pytest.raises(PlanError) as caught:
        kernel_factory(APP, plan, route("net", "app"))
    assert complaint in str(caught.value)
    assert KEY not in str(caught.value)
