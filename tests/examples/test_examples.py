"""Every example, run as a user runs it."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from tests.peers import optional
from tests.plugins.engines.amqp.raw_client import RawClient
from tests.ports import free_port

EXAMPLES = Path(__file__).parents[2] / "examples"
TIMEOUT = 200.0


@pytest.fixture(autouse=True)
def _ports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody who runs an example by hand meet a test."""
    for name in (
        "AMQP_PORT",
        "BRIDGE_PORT",
        "MQTT_PORT",
        "ORDERS_PORT",
        "STOMP_PORT",
        "TRIO_PORT",
        "WEB_PORT",
        "WS_PORT",
        "ZMQ_PORT",
    ):
        monkeypatch.setenv(name, str(free_port()))


@pytest.fixture
def spawned() -> Iterator[list[subprocess.Popen[str]]]:
    """Programs that are killed at the end if they are still there."""
    programs: list[subprocess.Popen[str]] = []
    yield programs
    for program in programs:
        program.kill()
        program.communicate()


def _spawn(path: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error", str(EXAMPLES / path), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _output(program: subprocess.Popen[str]) -> str:
    out, _ = program.communicate(timeout=TIMEOUT)
    assert program.returncode == 0
    return out


@pytest.mark.slow
def test_in_process_shows_all_readings_in_order() -> None:
    lines = _output(_spawn("in_process/main.py")).splitlines()
    assert lines == [f"room.{number % 2} {20 + number} degrees" for number in range(1, 6)]


@pytest.mark.slow
@pytest.mark.parametrize("first", ["sender", "receiver"])
def test_point_to_point_confirms_all_orders_whoever_starts_first(
    first: str, spawned: list[subprocess.Popen[str]]
) -> None:
    second = "receiver" if first == "sender" else "sender"
    spawned += [_spawn(f"point_to_point/{name}.py") for name in (first, second)]
    outputs = dict(zip((first, second), map(_output, spawned), strict=True))
    assert outputs["sender"] == "all orders are confirmed\n"
    assert outputs["receiver"].splitlines()[1:] == [*(f"order {n}" for n in range(1, 6)), "5 orders received"]


@pytest.mark.slow
def test_trio_application_needs_no_second_thread() -> None:
    lines = _output(_spawn("trio_application/main.py")).splitlines()
    assert lines == ["tick 1", "tick 2", "tick 3", "threads: 1"]


def _kernel_run(spawned: list[subprocess.Popen[str]], path: str) -> subprocess.Popen[str]:
    """Start ``kernel run`` and wait until every engine is up."""
    command = [sys.executable, "-W", "error", "-m", "kernel", "run", str(EXAMPLES / path)]
    program = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    spawned.append(program)
    assert program.stdout is not None
    said: list[str] = []
    while " ready " not in (line := program.stdout.readline()):
        said.append(line)
        assert line, "".join(said)
    return program


def _amqp_url() -> str:
    return f"amqp://guest:guest@127.0.0.1:{os.environ['AMQP_PORT']}/"


@pytest.mark.peer("pika")
def test_broker_serves_an_amqp_client(spawned: list[subprocess.Popen[str]]) -> None:
    import pika

    broker = _kernel_run(spawned, "broker.toml")
    with pika.BlockingConnection(pika.URLParameters(_amqp_url())) as connection:
        channel = connection.channel()
        channel.queue_declare("greetings")
        channel.basic_publish("", "greetings", b"hello")
        assert channel.basic_get("greetings", auto_ack=True)[2] == b"hello"
    broker.terminate()
    assert _output(broker).splitlines()[-1].split()[1] == "stopped"


@pytest.mark.peer("pika")
def test_clients_of_all_addresses_of_a_broker_use_the_same_queues(
    spawned: list[subprocess.Popen[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pika

    authority = trustme.CA()
    certificate, unix = tmp_path / "server.pem", tmp_path / "socket"
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(certificate)
    port = str(free_port())
    for name, value in (("AMQP_CERTIFICATE", certificate), ("AMQP_SOCKET", unix), ("AMQPS_PORT", port)):
        monkeypatch.setenv(name, str(value))
    _kernel_run(spawned, "broker_addresses.toml")
    with pika.BlockingConnection(pika.URLParameters(_amqp_url())) as connection:
        connection.channel().queue_declare("greetings")
        connection.channel().basic_publish("", "greetings", b"over TCP")
    context = ssl.create_default_context()
    authority.configure_trust(context)
    over_tls = pika.ConnectionParameters(
        "127.0.0.1", int(port), ssl_options=pika.SSLOptions(context, "localhost")
    )
    with pika.BlockingConnection(over_tls) as connection:
        connection.channel().basic_publish("", "greetings", b"over TLS")
    wire = socket.socket(socket.AF_UNIX)
    wire.settimeout(TIMEOUT)
    wire.connect(str(unix))
    with RawClient(wire=wire) as client:
        bodies = [bytes(client.get("greetings").batch.bodies[0]) for _ in range(2)]
    assert bodies == [b"over TCP", b"over TLS"]


@pytest.mark.peer("pika")
@pytest.mark.peer("prometheus-client")
def test_watched_broker_tells_prometheus_what_waits(spawned: list[subprocess.Popen[str]]) -> None:
    import pika
    from prometheus_client.parser import text_string_to_metric_families

    _kernel_run(spawned, "watched_broker.toml")
    with pika.BlockingConnection(pika.URLParameters(_amqp_url())) as connection:
        channel = connection.channel()
        channel.queue_declare("greetings")
        channel.confirm_delivery()
        channel.basic_publish("", "greetings", b"hello")
        pages = f"127.0.0.1:{os.environ['WEB_PORT']}"
        client = http.client.HTTPConnection(pages, timeout=TIMEOUT)
        client.request("GET", "/metrics", headers={"Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q="})  # guest:guest
        page = client.getresponse().read().decode()
        client.request("GET", "/health/ready")
        assert client.getresponse().status == 200
        client.close()
    samples = {
        (sample.name, sample.labels.get("queue")): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }
    assert samples["kernel_queue_messages_ready", "greetings"] == 1
    assert samples["rabbitmq_queue_messages_ready", None] == 1
    assert samples["rabbitmq_connections", None] == 1


@pytest.mark.peer("paho-mqtt")
@pytest.mark.peer("pika")
@pytest.mark.peer("stomp-py")
def test_everyone_exchanges_messages_that_are_also_in_the_journal(
    spawned: list[subprocess.Popen[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pika
    from websockets.sync.client import connect
    from websockets.typing import Subprotocol

    from tests.interop.mqtt_brokers import MqttBroker
    from tests.interop.paho_client import Paho
    from tests.plugins.engines.stomp.raw_client import frame

    stomp = optional("stomp")
    monkeypatch.setenv("JOURNAL_DIR", str(tmp_path / "journal"))
    process = _kernel_run(spawned, "everyone.toml")
    broker = MqttBroker("kernel", int(os.environ["MQTT_PORT"]), int(os.environ["WS_PORT"]))
    with (
        pika.BlockingConnection(pika.URLParameters(_amqp_url())) as connection,
        Paho(broker, "sensor") as sensor,
        Paho(broker, "browser", version=5, transport="websockets") as browser,
        connect(f"ws://127.0.0.1:{broker.web_port}/stomp", subprotocols=[Subprotocol("v12.stomp")]) as page,
    ):
        page.send(frame("CONNECT", accept_version="1.2", host="/", login="guest", passcode="guest"))
        assert page.recv(TIMEOUT).startswith(b"CONNECTED\n")
        page.send(frame("SUBSCRIBE", id="1", destination="/topic/weather.#", receipt="there"))
        assert page.recv(TIMEOUT).startswith(b"RECEIPT\n")
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("weather")
        channel.queue_bind("weather", "amq.topic", "weather.*")
        browser.subscribe("weather/#", 1)
        sensor.publish("weather/wien", b"sunny")
        assert channel.basic_get("weather", auto_ack=True)[2] == b"sunny"
        channel.basic_publish("amq.topic", "weather.praha", b"rain")
        station = stomp.Connection12([("127.0.0.1", int(os.environ["STOMP_PORT"]))], vhost="/")
        station.connect("guest", "guest", wait=True)
        station.send("/topic/weather.brno", "fog")
        found = [(each.topic, bytes(each.payload)) for each in [browser.next() for _ in range(3)]]
        station.disconnect()
        shown = b""
        while shown.count(b"MESSAGE\n") < 3:
            shown += page.recv(TIMEOUT)
    assert [text in shown for text in (b"\n\nsunny\0", b"\n\nrain\0", b"\n\nfog\0")] == [True] * 3
    assert found == [("weather/wien", b"sunny"), ("weather/praha", b"rain"), ("weather/brno", b"fog")]
    process.terminate()
    _output(process)
    command = [sys.executable, "-m", "kernel", "journal", "tail", str(tmp_path / "journal")]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=True).stdout
    assert [line.split()[-1] for line in printed.splitlines()] == ["sunny", "rain", "fog"]


@pytest.mark.peer("pika")
def test_durable_broker_keeps_messages_whatever_ends_it(
    spawned: list[subprocess.Popen[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pika

    monkeypatch.setenv("DATA_DIR", str(tmp_path / "data"))
    broker = _kernel_run(spawned, "durable_broker.toml")
    with pika.BlockingConnection(pika.URLParameters(_amqp_url())) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("orders", durable=True)
        channel.basic_publish("", "orders", b"an order", pika.BasicProperties(delivery_mode=2))
    broker.kill()
    broker.communicate(timeout=TIMEOUT)
    _kernel_run(spawned, "durable_broker.toml")
    with pika.BlockingConnection(pika.URLParameters(_amqp_url())) as connection:
        assert connection.channel().basic_get("orders", auto_ack=True)[2] == b"an order"


@pytest.mark.peer("pika")
def test_a_first_client_gets_what_it_has_published(spawned: list[subprocess.Popen[str]]) -> None:
    _kernel_run(spawned, "broker.toml")
    assert _output(_spawn("first_client.py")) == "one pair of boots\n"


@pytest.mark.peer("pika")
def test_bridge_confirms_to_the_publisher_what_the_subscriber_has_printed(
    spawned: list[subprocess.Popen[str]],
) -> None:
    import pika

    subscriber = _spawn("bridge_subscriber.py")
    spawned.append(subscriber)
    _kernel_run(spawned, "bridge.toml")
    with pika.BlockingConnection(pika.URLParameters(_amqp_url())) as connection:
        connection.channel().basic_publish("amq.topic", "weather.wien", b"of another exchange")
    confirmed = ["confirmed: weather of bratislava", "confirmed: weather of praha"]
    assert _output(_spawn("bridge_publisher.py")).splitlines() == confirmed
    subscriber.send_signal(signal.SIGINT)
    assert _output(subscriber).splitlines()[1:] == ["weather.bratislava sunny", "weather.praha rain"]


@pytest.mark.slow
@pytest.mark.peer("pika")
@pytest.mark.parametrize("multicast_from", ["1", "3"], ids=["by multicast", "by TCP"])
def test_one_to_many_answers_the_publisher_when_the_receiver_s_subscriber_has_confirmed(
    multicast_from: str, spawned: list[subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    import pika

    for name in ("FEED_PORT", "PGM_PORT"):
        monkeypatch.setenv(name, str(free_port()))
    monkeypatch.setenv("LISTEN", "127.0.0.1")
    monkeypatch.setenv("PGM_INTERFACE", "lo")
    monkeypatch.setenv("PGM_GROUP", "239.192.77.3")
    monkeypatch.setenv("SENDER", f"127.0.0.1:{os.environ['FEED_PORT']}")
    monkeypatch.setenv("MULTICAST_FROM", multicast_from)
    subscriber = _spawn("bridge_subscriber.py")
    spawned.append(subscriber)
    sender = _kernel_run(spawned, "one_to_many.toml")
    _kernel_run(spawned, "one_to_many_receiver.toml")
    assert sender.stdout is not None
    wanted = "switched" if multicast_from == "1" else "connected"
    while wanted not in (line := sender.stdout.readline()):
        assert line, f"no {wanted!r}"
    with pika.BlockingConnection(pika.URLParameters(_amqp_url())) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("feed", "weather.wien", b"sunny")
        channel.basic_publish("feed", "weather.praha", b"rain")
    subscriber.send_signal(signal.SIGINT)
    assert _output(subscriber).splitlines()[1:] == ["weather.wien sunny", "weather.praha rain"]


@pytest.mark.peer("pika")
def test_the_amqp_client_takes_from_a_broker_what_the_subscriber_has_printed(
    spawned: list[subprocess.Popen[str]],
) -> None:
    import pika

    _kernel_run(spawned, "broker.toml")
    with pika.BlockingConnection(pika.URLParameters(_amqp_url())) as connection:
        channel = connection.channel()
        channel.queue_declare("forecasts", durable=True)  # as the example does, which may come later
        channel.queue_bind("forecasts", "amq.topic", "weather.#")
        for key, body in (("weather.wien", b"sunny"), ("news.wien", b"none"), ("weather.praha", b"rain")):
            channel.basic_publish("amq.topic", key, body)
    client = _kernel_run(spawned, "amqp_client.toml")
    subscriber = _spawn("bridge_subscriber.py")  # what came before it has waited
    spawned.append(subscriber)
    assert subscriber.stdout is not None
    lines = [subscriber.stdout.readline() for _ in range(3)]
    assert lines[1:] == ["weather.wien sunny\n", "weather.praha rain\n"]
    client.terminate()
    assert _output(client).splitlines()[-1].split()[1] == "stopped"


@pytest.mark.parametrize(
    "file, tests",
    [
        pytest.param("test_orders.py", 2, marks=pytest.mark.peer("pika")),
        pytest.param(
            "test_with_faults.py",
            10,
            marks=[pytest.mark.slow, *map(pytest.mark.peer, ("pika", "aio-pika", "celery"))],
        ),
        pytest.param("test_faststream.py", 2, marks=[pytest.mark.slow, pytest.mark.peer("faststream")]),
    ],
)
def test_a_test_suite_of_somebody_has_its_broker(file: str, tests: int) -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        str(EXAMPLES / "broker_in_pytest" / file),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert f"{tests} passed" in done.stdout, done.stdout + done.stderr


def test_the_list_of_examples_is_complete() -> None:
    listed = (EXAMPLES.parent / "docs" / "examples.md").read_text()
    names = {
        path.name
        for path in EXAMPLES.iterdir()
        if path.name not in ("README.md", "__pycache__", "__init__.py")
    }
    assert {name for name in names if f"`{name}`" not in listed and f"`{name}/`" not in listed} == set()
