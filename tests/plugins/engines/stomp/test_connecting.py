"""CONNECT: versions, virtual hosts, users, limits, and heart-beats; and how a connection ends."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from kernel import EnginePlan
from kernel.testing.fixtures import KernelFactory
from plugins.engines.stomp.client import StompClient
from tests.plugins.engines.stomp.conftest import ServeStomp, StompBroker
from tests.plugins.engines.stomp.raw_client import TIMEOUT, RawStomp, frame


def refused(client: RawStomp) -> tuple[str, bytes]:
    """Return what an ERROR frame says.  The connection has to be closed behind it."""
    found = client.next()
    assert found.command == "ERROR", found
    assert client.is_closed()
    assert found["content-type"] == "text/plain"
    return found["message"], found.body


@pytest.mark.parametrize("command", ["CONNECT", "STOMP"])
def test_connected_says_version_session_and_server(broker: StompBroker, command: str) -> None:
    names = set()
    for _ in range(2):
        client = broker.open()
        client.send(command, accept_version="1.0,1.1,1.2,9.9", host="/", login="guest", passcode="guest")
        connected = client.next()
        assert connected.command == "CONNECTED"
        assert connected["version"] == "1.2"
        assert connected["server"] == "messaging-kernel"
        assert connected["heart-beat"] == "0,0"
        names.add(connected["session"])
    assert len(names) == 2


@pytest.mark.parametrize(
    "offered, chosen", [("1.0", "1.0"), ("1.1", "1.1"), ("1.2", "1.2"), ("1.1,2.0", "1.1")]
)
def test_the_highest_common_version_is_chosen(broker: StompBroker, offered: str, chosen: str) -> None:
    assert broker.open().connect(offered)["version"] == chosen


def test_without_a_common_version_the_versions_are_told(broker: StompBroker) -> None:
    client = broker.open()
    error = client.connect("3.0")
    assert (error.command, error["message"], error["version"]) == ("ERROR", "Version mismatch", "1.0,1.1,1.2")
    assert client.is_closed()


def test_headers_of_1_0_may_be_padded(broker: StompBroker) -> None:
    client = broker.open()
    client.socket.sendall(b"CONNECT\nlogin: guest\npasscode: guest\n\n\0")
    assert client.next()["version"] == "1.0"


@pytest.mark.usefixtures("short_login_delay")
@pytest.mark.parametrize(
    "headers",
    [{"passcode": "wrong"}, {"login": "nobody"}, {"login": None}, {"login": ""}, {"passcode": " guest"}],
)
def test_a_login_that_fails(broker: StompBroker, headers: dict[str, object]) -> None:
    client = broker.open()
    error = client.connect(**headers)
    assert (error.command, error["message"]) == ("ERROR", "Bad CONNECT")
    assert b"Access refused" in error.body
    assert client.is_closed()


@pytest.mark.parametrize("empty", [None, ""])
def test_a_client_without_login_is_the_user_whom_the_option_names(
    serve: ServeStomp, empty: str | None
) -> None:
    broker = serve({"anonymous": "guest"})
    broker.connect(login=empty, passcode=empty)
    assert [row["user"] for row in broker.rows("connections")] == ["guest"]


def test_the_header_host_is_the_virtual_host(serve: ServeStomp) -> None:
    broker = serve({"vhost": "shop"}, vhosts=["/", "shop"])
    broker.connect(host="/").ask("SEND", destination="/queue/a")
    broker.connect(host=None).ask("SEND", destination="/queue/b")
    assert {(row["vhost"], row["name"]) for row in broker.rows("queues")} == {("/", "a"), ("shop", "b")}


def test_a_virtual_host_that_is_not_there(broker: StompBroker) -> None:
    client = broker.open()
    error = client.connect(host="nowhere")
    assert (error.command, error["message"]) == ("ERROR", "Bad CONNECT")
    assert b"nowhere" in error.body
    assert client.is_closed()


def test_a_user_may_have_so_many_connections(serve: ServeStomp) -> None:
    broker = serve(users={"guest": {"password": "guest", "max_connections": 1}})
    with broker.connect():
        assert broker.open().connect().command == "ERROR"
    broker.wait(lambda: not broker.rows("connections"))
    broker.connect()


def test_the_first_frame_must_be_connect(broker: StompBroker) -> None:
    client = broker.open()
    client.send("SEND", destination="/queue/a")
    assert refused(client)[0] == "Illegal command"


def test_there_is_one_connect_frame(broker: StompBroker) -> None:
    client = broker.connect()
    client.send("CONNECT", accept_version="1.2", host="/", login="guest", passcode="guest")
    assert refused(client)[0] == "Already connected"


def test_frames_may_follow_connect_at_once(broker: StompBroker) -> None:
    client = broker.open()
    login = frame("CONNECT", accept_version="1.2", host="/", login="guest", passcode="guest")
    client.socket.sendall(login + frame("SEND", b"x", destination="/queue/a\\cb", receipt="1\\r"))
    assert client.next().command == "CONNECTED"
    assert client.next()["receipt-id"] == "1\r"
    assert broker.queue("a:b")["messages"] == 1


def test_a_malformed_frame_is_an_error(broker: StompBroker) -> None:
    client = broker.connect()
    client.socket.sendall(frame("SEND", b"x", destination="/queue/a") + b"SEND\ndestination\n\n\0")
    assert refused(client)[0] == "Malformed frame"
    assert broker.queue("a")["messages"] == 1  # what came before it counts


@pytest.mark.parametrize(
    "limit, headers, body, message",
    [
        ({"max_headers": 3}, {"a": 1, "b": 2, "c": 3}, b"", "Too many headers"),
        ({"header_line_bytes": 64}, {"a": "x" * 63}, b"", "Header too long"),
        ({"header_block_bytes": 100}, {"a": "x" * 90}, b"", "Headers too long"),
        ({"max_body_bytes": 10}, {}, b"x" * 11, "Body too large"),
    ],
)
def test_limits_are_options(
    serve: ServeStomp, limit: dict[str, int], headers: dict[str, object], body: bytes, message: str
) -> None:
    client = serve({"max_headers": 20, **limit}).open()
    # Before a login the limits hold as well.
    client.send("CONNECT", body, login="guest", **headers)
    assert refused(client)[0] == message


def test_who_does_not_log_in_is_closed(serve: ServeStomp) -> None:
    broker = serve({"handshake_seconds": 0.05})
    silent, logged_in = broker.open(), broker.connect()
    assert refused(silent)[0] == "Bad CONNECT"
    assert logged_in.ask("SEND", destination="/queue/a").command == "RECEIPT"


def test_a_failed_login_is_not_asked_about_again_and_again(
    serve: ServeStomp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time to log in may be over before the answer to a failed login is due."""
    calls = []
    on_due = StompClient.on_due

    def counted(client: StompClient, now: float) -> None:
        calls.append(now)
        on_due(client, now)

    monkeypatch.setattr(StompClient, "on_due", counted)
    monkeypatch.setattr("plugins.engines.broker.host.stream_client.LOGIN_DELAY", 0.15)
    client = serve({"handshake_seconds": 0.05}).open()
    error = client.connect(passcode="wrong")
    assert b"Access refused" in error.body
    assert client.is_closed()
    assert len(calls) <= 1


@pytest.mark.parametrize("header", ["1000", "a,b", "-1,0"])
def test_a_header_heart_beat_that_is_none(broker: StompBroker, header: str) -> None:
    client = broker.open()
    error = client.connect(heart_beat=header)
    assert (error.command, error["message"]) == ("ERROR", "Bad CONNECT")
    assert client.is_closed()


def test_disconnect_closes_the_connection(broker: StompBroker) -> None:
    client = broker.connect()
    client.send("DISCONNECT")
    assert client.is_closed()
    client = broker.connect()
    assert client.ask("DISCONNECT", receipt="77")["receipt-id"] == "77"
    assert client.is_closed()


def test_nothing_is_read_behind_disconnect(broker: StompBroker) -> None:
    client = broker.connect()
    client.socket.sendall(frame("DISCONNECT", receipt="77") + frame("SEND", destination="/queue/a"))
    assert client.next()["receipt-id"] == "77"
    assert client.is_closed()
    assert broker.queue_names() == set()


def test_an_error_names_the_receipt_of_its_frame(broker: StompBroker) -> None:
    client = broker.connect()
    error = client.ask("SEND", destination="/nowhere/a", receipt="message-12345")
    assert (error.command, error["receipt-id"]) == ("ERROR", "message-12345")
    assert client.is_closed()


def test_an_error_does_not_name_the_receipt_of_another_frame(broker: StompBroker) -> None:
    client = broker.connect()
    bad = frame("SEND", destination="/nowhere/a")
    client.socket.sendall(bad + frame("SEND", destination="/nowhere/a", receipt="second"))
    error = client.next()
    assert error.command == "ERROR"
    assert "receipt-id" not in error.headers


def test_a_broker_that_stops_says_so(broker: StompBroker) -> None:
    client = broker.connect()
    broker.kernel.close(linger=0)
    assert refused(client)[0] == "connection_forced"


def test_an_operator_sees_clients_and_subscriptions(broker: StompBroker) -> None:
    client = broker.connect()
    client.ask("SUBSCRIBE", id="mine", destination="/queue/a", ack="client", prefetch_count="7")
    (connection,) = broker.rows("connections")
    assert (connection["user"], connection["vhost"], connection["client"]) == ("guest", "/", "STOMP 1.2")
    (consumer,) = broker.rows("consumers")
    assert consumer["consumer_tag"] == "T_mine"
    assert (consumer["queue_name"], consumer["prefetch_count"], consumer["ack_required"]) == ("a", 7, True)


def test_only_message_and_error_have_a_body(broker: StompBroker) -> None:
    client = broker.open()
    assert client.connect().body == b""
    assert client.ask("SEND", b"x", destination="/queue/a").body == b""


def test_over_a_unix_socket(kernel_factory: KernelFactory, tmp_path: Path) -> None:
    """Each frame is compared byte for byte, but for the name of the session."""
    path = tmp_path / "stomp.sock"
    listeners = [{"protocol": "stomp", "address": f"unix://{path}"}]
    kernel = kernel_factory(EnginePlan(name="broker", kind="broker", options={"listeners": listeners}))
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(TIMEOUT)
        client.connect(str(path))

        def talk(sent: bytes) -> bytes:
            client.sendall(sent)
            came = b""
            while not came.endswith(b"\0\n"):
                came += client.recv(1)
            return came

        connected = talk(b"CONNECT\naccept-version:1.2\nhost:/\nlogin:guest\npasscode:guest\n\n\0")
        session = connected.partition(b"\nsession:")[2].partition(b"\n")[0]
        (row,) = kernel.inspect("connections").rows
        assert (row["user"], row["client"], row["ssl"]) == ("guest", "STOMP 1.2", False)
        assert row["name"].startswith("unix#")
        assert [
            connected,
            talk(b"SEND\ndestination:/queue/q\nreceipt:1\n\nhello\0"),
            talk(b"SUBSCRIBE\nid:7\ndestination:/queue/q\n\n\0"),
            talk(b"DISCONNECT\nreceipt:2\n\n\0"),
        ] == [
            b"CONNECTED\nversion:1.2\nsession:%b\nheart-beat:0,0\nserver:messaging-kernel\n\n\0\n" % session,
            b"RECEIPT\nreceipt-id:1\n\n\0\n",
            b"MESSAGE\nsubscription:7\ndestination:/queue/q\nmessage-id:T_7@@%b@@1\nredelivered:false\n"
            b"content-length:5\n\nhello\0\n" % session,
            b"RECEIPT\nreceipt-id:2\n\n\0\n",
        ]
        assert client.recv(1) == b""
