"""Client certificates as logins, with clients of others: MQTT and STOMP over TLS, and over WebSocket with TLS."""

from __future__ import annotations

import queue
import re
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pytest
import trustme
from websockets.exceptions import InvalidMessage

from kernel import EnginePlan, Kernel, Plan
from tests.events import Events
from tests.peers import optional
from tests.secure_web import secure_web_client

stomp = optional("stomp")

pytestmark = [pytest.mark.peer("paho-mqtt"), pytest.mark.peer("stomp-py")]

TIMEOUT = 60.0
NAMES = ("mqtt", "stomp", "web", "stomp over web")


class Guarded:
    """A broker whose listeners let in who shows a certificate of a user, and the files of some clients."""

    def __init__(self, folder: Path) -> None:
        authority = trustme.CA()
        self.authority = str(folder / "authority.pem")
        authority.cert_pem.write_to_path(self.authority)
        server = str(folder / "server.pem")
        authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(server)
        self.files: dict[str, str] = {}
        for name, issuer in (("sensor", authority), ("nobody", authority), ("forged", trustme.CA())):
            self.files[name] = str(folder / f"{name}.pem")
            issued = issuer.issue_cert(f"{name}.example", common_name="sensor" if name == "forged" else name)
            issued.private_key_and_cert_chain_pem.write_to_path(self.files[name])
        tls = {"certificate": server, "authorities": self.authority, "require_client_certificate": True}
        listeners = [
            {"protocol": protocol, "address": address, "tls": tls}
            for protocol, address in (
                ("mqtt", "tls://127.0.0.1:0"),
                ("stomp", "tls://127.0.0.1:0"),
                ("mqtt", "wss://127.0.0.1:0/mqtt"),
                ("stomp", "wss://127.0.0.1:0/stomp"),
            )
        ]
        users = {"sensor": {"configure": ".*", "write": ".*", "read": ".*"}}
        engine = EnginePlan(name="broker", kind="broker", options={"listeners": listeners, "users": users})
        self.kernel = Kernel(Plan(engines=(engine,)))
        self.events = Events()
        self.kernel.events.append(self.events)
        self.kernel.start()
        self.kernel.wait_running()
        found = re.findall(r":(\d+)", self.kernel.address_of("broker"))
        self.ports = dict(zip(NAMES, map(int, found), strict=True))

    def users(self) -> list[tuple[Any, Any]]:
        return [(row["user"], row["certificate"]) for row in self.kernel.inspect("connections").rows]


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Guarded]:
    made = Guarded(tmp_path)
    yield made
    made.kernel.close(linger=0)
    made.kernel.join()


def over_mqtt(broker: Guarded, who: str, over: str = "mqtt") -> tuple[mqtt.Client, Any]:
    """Connect with paho and no password; return the client, and what came: a reason code, or the failure."""
    transport: Any = "websockets" if over == "web" else "tcp"
    client = mqtt.Client(
        mqtt.CallbackAPIVersion.VERSION2,
        protocol=mqtt.MQTTv5,
        transport=transport,
        reconnect_on_failure=False,
    )
    client.tls_set(broker.authority, broker.files[who])
    if over == "web":
        client.ws_set_options("/mqtt")
    came: queue.Queue[Any] = queue.Queue()
    client.on_connect = lambda client, _, flags, code, given: came.put(code)
    client.on_disconnect = lambda client, _, flags, code, given: came.put(code)
    try:
        client.connect("127.0.0.1", broker.ports[over])
    except OSError as error:
        return client, error
    client.loop_start()
    return client, came.get(timeout=TIMEOUT)


def over_stomp(broker: Guarded, who: str) -> Any:
    """Return a connection of stomp.py that is going to show a certificate, and no login."""
    place = ("127.0.0.1", broker.ports["stomp"])
    connection = stomp.Connection12([place], vhost="/", reconnect_attempts_max=1)
    file = broker.files[who]
    connection.set_ssl([place], ca_certs=broker.authority, cert_file=file, key_file=file)
    return connection


@pytest.mark.parametrize("over", ["mqtt", "web"])
def test_paho_logs_in(guarded: Guarded, over: str) -> None:
    client, code = over_mqtt(guarded, "sensor", over)
    assert code == 0
    assert guarded.users() == [("sensor", "sensor")]
    client.disconnect()
    client.loop_stop()


@pytest.mark.parametrize("who", ["nobody", "forged"])
def test_paho_is_refused(guarded: Guarded, who: str) -> None:
    """A certificate of a stranger's authority, and one whose name is no user's."""
    client, outcome = over_mqtt(guarded, who)
    assert isinstance(outcome, OSError) or outcome.is_failure
    client.loop_stop()
    assert guarded.users() == []


def test_stomp_py_logs_in(guarded: Guarded) -> None:
    connection = over_stomp(guarded, "sensor")
    connection.connect(wait=True)
    assert guarded.users() == [("sensor", "sensor")]
    connection.disconnect(receipt="last")  # with one, it waits for the end


@pytest.mark.parametrize("who,refused", [("nobody", "login refused"), ("forged", "refused")])
def test_stomp_py_is_refused(guarded: Guarded, who: str, refused: str) -> None:
    connection = over_stomp(guarded, who)
    failures: list[Exception] = []

    def connect() -> None:
        try:
            connection.connect(wait=True)
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=connect)
    thread.start()
    guarded.events.wait(refused)
    thread.join(5)
    # stomp.py does not notice every end of a TLS connection.  Then it waits for ever, and its own thread asks for what
    # has come without a pause, until it is told to end.  ``stop`` tells it nothing.
    connection.transport.disconnect_socket()
    thread.join(TIMEOUT)
    assert not thread.is_alive()
    assert failures
    assert guarded.users() == []


def over_web_socket(broker: Guarded, who: str) -> Any:
    """Connect with ``websockets``.  stomp.py's own client for WebSocket reads and writes TLS in two threads at once."""
    context = ssl.create_default_context(cafile=broker.authority)
    context.load_cert_chain(broker.files[who])
    return secure_web_client(f"wss://127.0.0.1:{broker.ports['stomp over web']}/stomp", context, TIMEOUT)


def test_stomp_over_web_socket_logs_in(guarded: Guarded) -> None:
    with over_web_socket(guarded, "sensor") as client:
        client.send(b"CONNECT\naccept-version:1.2\nhost:/\n\n\0")
        assert client.recv(TIMEOUT).startswith(b"CONNECTED\nversion:1.2\n")
        assert guarded.users() == [("sensor", "sensor")]
        client.send(b"SUBSCRIBE\nid:1\ndestination:/topic/t\nreceipt:2\n\n\0")
        assert client.recv(TIMEOUT) == b"RECEIPT\nreceipt-id:2\n\n\0\n"
        client.send(b"SEND\ndestination:/topic/t\n\nhello\0")
        frame = client.recv(TIMEOUT)
        assert frame.startswith(b"MESSAGE\n")
        assert frame.endswith(b"\n\nhello\0\n")


def test_stomp_over_web_socket_is_refused(guarded: Guarded) -> None:
    """A name that is no user's gets an ERROR frame.  A certificate of a stranger's authority gets no answer."""
    with over_web_socket(guarded, "nobody") as client:
        client.send(b"CONNECT\naccept-version:1.2\nhost:/\n\n\0")
        assert client.recv(TIMEOUT).startswith(b"ERROR\nmessage:Bad CONNECT\n")
    # TLS 1.3 ends the handshake at the client before the broker has looked at its certificate.
    with pytest.raises((OSError, EOFError, InvalidMessage)), over_web_socket(guarded, "forged"):
        pass
    guarded.events.wait("refused")
    assert guarded.users() == []
