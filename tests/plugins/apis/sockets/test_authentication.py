"""Who is let in: ``Context.authenticate`` and handlers of ZAP, with libzmq (pyzmq) on the other side."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kernel.contracts.engine import EngineEvent
from kernel.contracts.errors import KernelError
from kernel.sockets import Context, Login, PlaceError, Socket
from tests.events import Events
from tests.plugins.apis.sockets.test_with_pyzmq import TIMEOUT, Peers, context, peers

__all__ = ["context", "peers"]

pytestmark = pytest.mark.peer("pyzmq")
PLACE = "tcp://127.0.0.1:0"
ZAP = "inproc://zeromq.zap.01"


@pytest.fixture
def events(context: Context) -> Events:
    told = Events()
    context.kernel.events.append(told)
    return told


@contextmanager
def monitored(socket: Any) -> Iterator[Callable[[], tuple[int, int]]]:
    """Return a function that returns what libzmq tells of the handshakes of a socket."""
    import zmq
    from zmq.utils.monitor import recv_monitor_message

    monitor = socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL)
    monitor.rcvtimeo = int(TIMEOUT * 1000)

    def told() -> tuple[int, int]:
        message = recv_monitor_message(monitor)
        return message["event"], message["value"]

    try:
        yield told
    finally:
        monitor.close(0)
        socket.disable_monitor()


def users(login: Login) -> str | None:
    return "Anna" if (login.user, login.secret) == ("anna", b"secret") else None


def test_passwords(context: Context, peers: Peers, events: Events) -> None:
    context.authenticate(users)
    pull = context.socket("PULL", rcvtimeo=TIMEOUT, engine={"mechanism": "PLAIN"})
    place = pull.bind(PLACE)
    wrong = peers("PUSH", plain_username=b"anna", plain_password=b"guess")
    wrong.connect(place)
    refused = events.wait("refused", f"{pull.name}.net")
    assert (refused.code, "'anna'" in refused.detail) == ("400", True)
    right = peers("PUSH", plain_username=b"anna", plain_password=b"secret")
    right.connect(place)
    right.send_multipart([b"let", b"in"])
    assert pull.recv_multipart() == [b"let", b"in"]
    assert pull.envelope.properties["user_id"] == "Anna"


def test_passwords_of_this_side(context: Context, peers: Peers, events: Events) -> None:
    """libzmq has a handler, and refuses this side or lets it in."""
    from zmq.auth.thread import ThreadAuthenticator

    door = ThreadAuthenticator(peers.context)
    door.start()
    try:
        door.configure_plain(domain="*", passwords={"anna": "secret"})
        pull = peers("PULL", plain_server=True)
        pull.bind(PLACE)
        for password in ("guess", "secret"):
            engine = {"mechanism": "PLAIN", "username": "anna", "password": password}
            push = context.socket("PUSH", engine=engine, linger=0)
            push.connect(pull.last_endpoint.decode())
            push.send(password.encode())
            if password == "guess":
                assert events.wait("refused", f"{push.name}.net").code == "400"
                push.close()
        assert pull.recv() == b"secret"
    finally:
        door.stop()


def test_keys(context: Context, peers: Peers) -> None:
    """Also where the server connects."""
    import zmq
    from zmq.utils import z85

    pytest.importorskip("nacl")
    (server, server_secret), (public, secret) = zmq.curve_keypair(), zmq.curve_keypair()
    (stranger, strangers_secret) = zmq.curve_keypair()
    asked: list[Login] = []

    def decide(login: Login) -> str | None:
        asked.append(login)
        return "berta" if login.user == public.decode() else None

    context.authenticate(decide)
    engine = {"mechanism": "CURVE", "curve_secret_key": server_secret.decode()}
    pull = context.socket("PULL", rcvtimeo=TIMEOUT, engine=engine)
    wrong = peers("PUSH", curve_publickey=stranger, curve_secretkey=strangers_secret, curve_serverkey=server)
    with monitored(wrong) as told:
        wrong.connect(pull.bind(PLACE))
        assert told() == (zmq.EVENT_HANDSHAKE_FAILED_AUTH, 400)
    right = peers("PUSH", curve_publickey=public, curve_secretkey=secret, curve_serverkey=server)
    right.bind(PLACE)
    pull.connect(right.last_endpoint.decode())
    right.send(b"let in")
    assert pull.recv() == b"let in"
    assert pull.envelope.properties["user_id"] == "berta"
    assert {login.peer for login in asked} == {"127.0.0.1"}
    assert asked[-1].secret == z85.decode(public)


def test_addresses(context: Context, peers: Peers) -> None:
    """NULL with a domain, with libzmq on both sides; without one nobody is asked."""
    import zmq

    asked: list[Login] = []
    verdicts: list[str | None] = [None, "somebody"]

    def decide(login: Login) -> str | None:
        asked.append(login)
        return verdicts.pop(0)

    context.authenticate(decide)
    open_to_all = context.socket("PULL", rcvtimeo=TIMEOUT)
    push = peers("PUSH")
    push.connect(open_to_all.bind(PLACE))
    push.send(b"x")
    assert (open_to_all.recv(), asked) == (b"x", [])
    rep = context.socket("ROUTER", rcvtimeo=TIMEOUT, identity=b"me", engine={"zap_domain": "lab"})
    place = rep.bind(PLACE)
    refused = peers("DEALER", reconnect_ivl=-1)
    with monitored(refused) as told:
        refused.connect(place)
        assert told() == (zmq.EVENT_HANDSHAKE_FAILED_AUTH, 400)
    accepted = peers("DEALER")
    accepted.connect(place)
    accepted.send(b"hello")
    assert rep.recv_multipart()[1] == b"hello"
    for login in asked:
        assert (login.mechanism, login.peer) == ("NULL", "127.0.0.1")
        assert login.facts == {"domain": "lab", "identity": b"me"}


@pytest.mark.parametrize("raised", [KernelError("not today"), ValueError("a fault")])
def test_what_the_function_raises(context: Context, peers: Peers, events: Events, raised: Exception) -> None:
    def decide(login: Login) -> str | None:
        raise raised

    context.authenticate(decide)
    pull = context.socket("PULL", engine={"zap_domain": "lab"})
    peers("PUSH").connect(pull.bind(PLACE))
    refused = events.wait("refused", f"{pull.name}.net")
    code = "400" if isinstance(raised, KernelError) else "500"
    assert (refused.code, str(raised) in refused.detail) == (code, True)


def test_one_function(context: Context) -> None:
    context.authenticate(users)
    with pytest.raises(PlaceError, match="address is in use"):
        context.authenticate(users)


def test_nobody_decides_yet(context: Context, peers: Peers, events: Events) -> None:
    """A socket that names the place is closed to all until somebody is bound there, and libzmq tries again."""
    engine = {"mechanism": "PLAIN", "authenticator": ZAP}
    pull = context.socket("PULL", rcvtimeo=TIMEOUT, engine=engine)
    push = peers("PUSH", plain_username=b"anna", plain_password=b"secret")
    push.connect(pull.bind(PLACE))
    refused = events.wait("refused", f"{pull.name}.net")
    assert f"nobody is bound at {ZAP}" in refused.detail
    context.authenticate(users)
    again = peers("PUSH", plain_username=b"anna", plain_password=b"secret")
    again.connect(pull.last_endpoint)
    again.send(b"let in")
    assert pull.recv() == b"let in"


class Handler:
    """Answers questions as it is told to."""

    def __init__(self, context: Context, kind: str, answer: Callable[[list[bytes]], list[bytes]]) -> None:
        self._socket: Socket = context.socket(kind)  # type: ignore[arg-type]  # a name of a type
        self._socket.bind(ZAP)
        self._answer = answer
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        try:
            while True:
                question = self._socket.recv_multipart()
                begin = question.index(b"1.0")
                self._socket.send_multipart([*question[:begin], *self._answer(question[begin:])])
        except KernelError:
            return  # the test is over


def _events_of(told: Events, pull: Socket) -> EngineEvent:
    return told.wait("refused", f"{pull.name}.net")


@pytest.mark.parametrize("kind", ["REP", "ROUTER"])
def test_metadata_of_a_handler(context: Context, peers: Peers, kind: str) -> None:
    handler = Handler(
        context, kind, lambda asked: [b"1.0", asked[1], b"200", b"OK", b"anna", b"\5Color\0\0\0\4blue"]
    )
    assert handler
    pull = context.socket("PULL", rcvtimeo=TIMEOUT, engine={"authenticator": ZAP, "zap_domain": "lab"})
    push = peers("PUSH")
    push.connect(pull.bind(PLACE))
    push.send(b"hello")
    assert pull.recv() == b"hello"
    assert pull.envelope.properties == {"user_id": "anna", "headers": {"Color": "blue"}}


@pytest.mark.parametrize(
    "answer, code, told",
    [
        ([b"1.0", b"1", b"300", b"later", b"", b""], "300", None),
        ([b"1.0", b"1", b"500", b"broken", b"", b""], "500", 500),
        ([b"1.0", b"1", b"403", b"odd", b"", b""], "400", 400),
        ([b"1.0", b"1", b"999", b"odd", b"", b""], "500", 500),
        ([b"2.0", b"1", b"200", b"OK", b"", b""], "500", 500),
        ([b"1.0"], "500", 500),
    ],
)
def test_each_status(
    context: Context, peers: Peers, events: Events, answer: list[bytes], code: str, told: int | None
) -> None:
    """With 300 the peer is told nothing, and comes again."""
    import zmq

    Handler(context, "ROUTER", lambda asked: answer)
    pull = context.socket("PULL", engine={"authenticator": ZAP, "zap_domain": "lab"})
    push = peers("PUSH")
    with monitored(push) as tells:
        push.connect(pull.bind(PLACE))
        assert _events_of(events, pull).code == code
        if told is not None:
            assert tells() == (zmq.EVENT_HANDSHAKE_FAILED_AUTH, told)


def test_a_handler_that_does_not_answer(context: Context, peers: Peers, events: Events) -> None:
    """The handshake has its limit, and a handler that goes is an error."""
    rep = context.socket("REP", rcvtimeo=TIMEOUT)
    rep.bind(ZAP)
    engine = {"authenticator": ZAP, "zap_domain": "lab"}
    slow = context.socket("PULL", engine={**engine, "handshake": 0.05})
    peers("PUSH").connect(slow.bind(PLACE))
    assert "no READY within" in events.wait("disconnected", f"{slow.name}.net").detail
    pull = context.socket("PULL", engine=engine)
    peers("PUSH").connect(pull.bind(PLACE))
    while rep.recv_multipart()[2] != b"lab":
        pass
    rep.close()
    assert _events_of(events, pull).code in ("400", "500")


def test_a_req_that_is_the_server(context: Context, peers: Peers) -> None:
    """Answers come under the envelope of the question, and the user is known as well."""
    context.authenticate(lambda login: "anna")
    req = context.socket("REQ", rcvtimeo=TIMEOUT, engine={"zap_domain": "lab"})
    rep = peers("REP")
    rep.connect(req.bind(PLACE))
    for question in (b"1", b"2"):
        req.send(question)
        rep.send(rep.recv())
        assert req.recv() == question
    assert req.envelope.properties["user_id"] == "anna"


def test_options_that_do_not_fit(context: Context) -> None:
    with pytest.raises(PlaceError, match="neither an engine nor a place of inproc"):
        context.socket("PULL", engine={"authenticator": "tcp://127.0.0.1:1"}).bind(PLACE)
    with pytest.raises(PlaceError, match="say by whom"):
        context.socket("PULL", engine={"zap_domain": "lab"}).bind(PLACE)
