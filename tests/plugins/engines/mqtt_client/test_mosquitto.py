"""The client and mosquitto: a bridge both ways, restarts, kills, TLS, refusals."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kernel.contracts.errors import TimedOut
from kernel.contracts.message import Envelope, Message
from kernel.testing.fixtures import KernelFactory
from kernel.topology.plan import EnginePlan, RoutePlan
from tests.events import Events
from tests.interop.mqtt_brokers import Mosquitto
from tests.interop.until import until
from tests.plugins.engines.mqtt_client.conftest import FAST, GUEST, TIMEOUT, Client, bodies, receive

pytestmark = pytest.mark.peer("mosquitto")

DYNAMIC_SECURITY = "/usr/lib/x86_64-linux-gnu/mosquitto_dynamic_security.so"
EVERYTHING: tuple[dict[str, Any], ...] = ({"filter": "#", "qos": 2},)


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[Mosquitto]:
    # After a restart mosquitto 2.0.11 sends a client of MQTT 3.1.1 nothing of what was behind its limit of messages in
    # flight.
    broker = Mosquitto(tmp_path, "max_inflight_messages 0\nmax_queued_messages 0", persistence=True)
    yield broker
    broker.stop()


def _address(broker: Mosquitto) -> str:
    return f"mqtt+tcp://127.0.0.1:{broker.mqtt.port}"


def _bridge(make: KernelFactory, broker: Mosquitto, events: Events) -> Any:
    """A broker of ours, and a client of mosquitto: commands go there, readings come here."""
    client = {
        "address": _address(broker),
        **GUEST,
        "client_id": "bridge",
        "reconnect": FAST,
        "exchange": "amq.topic",
        "subscriptions": ({"filter": "readings/#", "qos": 1},),
    }
    return make(
        EnginePlan(
            name="broker",
            kind="broker",
            options={"listeners": [{"protocol": "mqtt", "address": "127.0.0.1:0"}]},
        ),
        EnginePlan(name="bridge", kind="mqtt-client", options=client),
        RoutePlan(source="broker", targets=("bridge",), match=("commands.#",), confirm=True),
        RoutePlan(source="bridge", targets=("broker",), confirm=True),
        on_event=events,
    )


def test_a_bridge_both_ways_outlives_a_restart_of_mosquitto(
    kernel_factory: KernelFactory, mosquitto: Mosquitto
) -> None:
    events = Events()
    ours = _bridge(kernel_factory, mosquitto, events)
    events.wait("connected")
    here = Client(
        kernel_factory,
        f"mqtt+tcp://{ours.address_of('broker')}",
        subscriptions=({"filter": "readings/#"},),
    )
    there = Client(kernel_factory, _address(mosquitto), subscriptions=({"filter": "commands/#"},))
    to_there, from_there = here.open("out"), here.open("in")
    to_here, from_here = there.open("out"), there.open("in")

    def persistent(key: str, body: bytes) -> Message:
        return Message(body, Envelope(key=key, persistent=True))

    for round_ in range(2):
        for body in bodies(0, 100):
            to_there.send_message(persistent("commands.a", b"%d " % round_ + body), timeout=TIMEOUT)
            to_here.send_message(persistent("readings.b", b"%d " % round_ + body), timeout=TIMEOUT)
        receive(from_here, [b"%d " % round_ + body for body in bodies(0, 100)])
        receive(from_there, [b"%d " % round_ + body for body in bodies(0, 100)])
        if not round_:
            mosquitto.stop()
            events.wait("disconnected")
            there.events.wait("disconnected")
            mosquitto.start()


@pytest.mark.parametrize("qos", [1, 2])
def test_a_restart_of_mosquitto_loses_nothing_and_resumes_the_session(
    kernel_factory: KernelFactory, mosquitto: Mosquitto, version: int, qos: int
) -> None:
    """Some messages come twice, with QoS 2 too.

    After a restart mosquitto 2.0.11 publishes again what it has already released.
    """
    client = Client(
        kernel_factory, _address(mosquitto), qos=qos, topic="t", version=version, subscriptions=EVERYTHING
    )
    out, into = client.open("out"), client.open("in")
    for cut in range(3):
        first = cut * 1000
        out.send_many(bodies(first, first + 500), timeout=TIMEOUT)
        got = receive(into, bodies(first, first + 10))
        mosquitto.stop()
        client.events.wait("disconnected", times=cut + 1)
        out.send_many(bodies(first + 500, first + 1000), timeout=TIMEOUT)
        mosquitto.start()
        client.events.wait("connected", times=cut + 2)
        receive(into, set(bodies(first, first + 1000)) - set(got))
    out.wait_confirmed(TIMEOUT)


def test_a_kernel_that_comes_back_gets_what_came_meanwhile(
    kernel_factory: KernelFactory, mosquitto: Mosquitto
) -> None:
    """And mosquitto takes its messages of QoS 2, although their identifiers may be in use there."""
    options: dict[str, Any] = {"subscriptions": ({"filter": "to/#", "qos": 2},), "topic": "from", "qos": 2}
    first = Client(kernel_factory, _address(mosquitto), **options)
    first.kernel.close()
    assert first.kernel.join(TIMEOUT)
    other = Client(
        kernel_factory,
        _address(mosquitto),
        client_id="other",
        topic="to/it",
        qos=2,
        subscriptions=({"filter": "from", "qos": 2},),
    )
    out = other.open("out")
    out.send_many(bodies(0, 50), timeout=TIMEOUT)
    out.wait_confirmed(TIMEOUT)
    second = Client(kernel_factory, _address(mosquitto), **options)
    assert receive(second.open("in"), bodies(0, 50)) == bodies(0, 50)
    second.open("out").send_many(bodies(0, 50), timeout=TIMEOUT)
    assert receive(other.open("in"), bodies(0, 50)) == bodies(0, 50)


def test_a_mosquitto_that_is_killed_is_found_again(
    kernel_factory: KernelFactory, mosquitto: Mosquitto, version: int
) -> None:
    """It forgets the session: the client subscribes anew, and sends again what was not acknowledged."""
    client = Client(
        kernel_factory, _address(mosquitto), topic="t", qos=1, version=version, subscriptions=EVERYTHING
    )
    out, into = client.open("out"), client.open("in")
    for cut in range(3):
        mosquitto.kill()
        client.events.wait("disconnected", times=cut + 1)
        wanted = bodies(cut * 100, cut * 100 + 100)
        out.send_many(list(wanted), timeout=TIMEOUT)
        mosquitto.start()
        client.events.wait("connected", times=cut + 2)
        receive(into, wanted)
        out.wait_confirmed(TIMEOUT)
    assert client.statistics()["reconnects"] == 3


@pytest.mark.parametrize("transport", ["tls", "ws"])
def test_over_tls_and_web_socket(transport: str, kernel_factory: KernelFactory, mosquitto: Mosquitto) -> None:
    broker = mosquitto.mqtt
    place = {"tls": f"127.0.0.1:{broker.tls_port}", "ws": f"127.0.0.1:{broker.web_port}/mqtt"}[transport]
    client = Client(
        kernel_factory,
        f"mqtt+{transport}://{place}",
        tls={"authorities": broker.authority},
        topic="t",
        qos=1,
        subscriptions=EVERYTHING,
    )
    out, into = client.open("out"), client.open("in")
    # Over WebSocket mosquitto reads slowly.
    for body in (b"small", b"x" * (1_000_000 if transport == "tls" else 10_000)):
        out.send(body, timeout=TIMEOUT)
        assert bytes(into.receive(TIMEOUT)) == body


def test_a_server_of_a_stranger_is_not_believed(kernel_factory: KernelFactory, mosquitto: Mosquitto) -> None:
    client = Client(kernel_factory, f"mqtt+tls://127.0.0.1:{mosquitto.mqtt.tls_port}", wait=False)
    assert "certificate verify failed" in client.events.wait("retrying").detail


def test_a_wrong_password_is_named(kernel_factory: KernelFactory, mosquitto: Mosquitto, version: int) -> None:
    client = Client(kernel_factory, _address(mosquitto), password="wrong", version=version, wait=False)
    detail = client.events.wait("refused").detail
    assert f"{_address(mosquitto)} refuses the connection" in detail
    assert "check user 'guest' and password" in detail
    assert client.events.wait("retrying", times=2).next_try


def _dynamic_security(tmp_path: Path) -> Mosquitto:
    """Start a mosquitto where `guest` may do everything below `open` and nothing elsewhere."""
    file = tmp_path / "security.json"
    command = ["mosquitto_ctrl", "dynsec", "init", str(file), "admin", "admin"]
    subprocess.run(command, check=True, capture_output=True)
    rights = json.loads(file.read_text())
    kinds = ("publishClientSend", "publishClientReceive", "subscribePattern")
    rights["roles"].append(
        {
            "rolename": "open",
            "acls": [{"acltype": kind, "topic": "open/#", "priority": 0, "allow": True} for kind in kinds],
        }
    )
    rights["defaultACLAccess"] = dict.fromkeys(
        ("publishClientSend", "publishClientReceive", "subscribe"), False
    )
    (admin,) = rights["clients"]
    rights["clients"].append({**admin, "username": "guest", "roles": [{"rolename": "open"}]})
    file.write_text(json.dumps(rights))
    settings = f"plugin {DYNAMIC_SECURITY}\nplugin_opt_config_file {file}"
    return Mosquitto(tmp_path, settings)


def test_a_limit_that_mosquitto_does_not_tell_to_version_4_is_named(
    kernel_factory: KernelFactory, tmp_path: Path
) -> None:
    broker = Mosquitto(tmp_path, "max_packet_size 2000")
    try:
        events, link = (
            Events(),
            {"address": _address(broker), "version": 4, "qos": 1, **GUEST, "reconnect": FAST},
        )
        for limit in (0, 2000):
            kernel = kernel_factory(
                EnginePlan(
                    name="net", kind="mqtt-client", options={**link, "broker_max_packet_bytes": limit}
                ),
                RoutePlan(source="app", targets=("net",), confirm=True),
                on_event=events,
            )
            with kernel.open("app", "native") as app:
                for body in (b"small", b"x" * 5000, b"small"):
                    app.send(body, key="k")
                if limit:
                    app.wait_confirmed(TIMEOUT)
                else:
                    until(
                        lambda: any(
                            "5000 bytes (key 'k')" in event.detail for event in events.all("retrying")
                        )
                    )
            kernel.close(linger=0)
    finally:
        broker.stop()


@pytest.mark.skipif(not Path(DYNAMIC_SECURITY).exists(), reason="mosquitto has no plugin for permissions")
def test_what_mosquitto_refuses_is_named(kernel_factory: KernelFactory, tmp_path: Path) -> None:
    """A subscription, and a message: the message goes to the dead letters."""
    broker = _dynamic_security(tmp_path)
    try:
        client = Client(
            kernel_factory,
            _address(broker),
            password="admin",
            subscriptions=({"filter": "secret/#"}, {"filter": "open/#"}),
        )
        refused = client.events.wait("refused").detail
        assert "subscribing to 'secret/#'" in refused
        assert "0x87 Not authorized" in refused
        out = client.open("out")
        for key in ("secret.a", "open.a"):
            out.send_message(Message(key.encode(), Envelope(key=key, persistent=True)), timeout=TIMEOUT)
        assert bytes(client.open("in").receive(TIMEOUT)) == b"open.a"
        dead = client.open("dead")

        def passed_on() -> bytes:
            # The thread of a source passes on what was refused, while it is inside a call.
            with suppress(TimedOut):
                out.wait_confirmed(0.01)
            with suppress(TimedOut):
                return bytes(dead.receive(0.01))
            return b""

        assert until(passed_on) == b"secret.a"
        assert client.statistics()["messages_refused"] == 1
    finally:
        broker.stop()
