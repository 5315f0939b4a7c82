"""The examples of ``docs/mqtt.md`` do what the page says, and its lists are those of the code."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trustme

from plugins.engines.mqtt.options import MqttListenerOptions
from plugins.protocols.mqtt.topics import key_to_topic, topic_to_key
from tests.interop.mqtt_brokers import MqttBroker
from tests.interop.paho_client import Paho
from tests.peers import NODE_MODULES
from tests.plugins.engines.mqtt.raw_client import subscription
from tests.plugins.engines.mqtt.still_server import StillServer
from tests.plugins.engines.mqtt.test_retained import everything
from tests.ports import free_port

PAGE = (Path(__file__).parents[2] / "docs" / "mqtt.md").read_text()
PORTS = ("1883", "8883", "15675", "5672")


def _block(language: str, number: int = 0) -> str:
    found: list[str] = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return found[number]


def _section(heading: str) -> str:
    return PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]


@contextmanager
def _running(folder: Path, topology: str) -> Iterator[dict[str, str]]:
    """Run a topology of the page; yield its ports by those on the page."""
    ports = {port: str(free_port()) for port in PORTS}
    for before, after in ports.items():
        topology = topology.replace(f":{before}", f":{after}")
    (folder / "broker.toml").write_text(topology)
    command = [sys.executable, "-m", "kernel", "run", "broker.toml", "--json", "--no-control"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder) as broker:
        try:
            assert broker.stdout is not None
            while json.loads(broker.stdout.readline())["what"] != "ready":
                pass
            yield ports
        finally:
            broker.terminate()
            broker.stdout.read()


@pytest.fixture
def ports(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The first topology of the page runs."""
    with _running(tmp_path, _block("toml")) as ports:
        yield ports


def _commands(ports: dict[str, str]) -> tuple[list[str], list[str]]:
    """Return the commands of the page, to subscribe and to publish."""
    subscribe, publish = (shlex.split(line) for line in _block("sh").splitlines())
    return [[each[0], "-p", ports["1883"], *each[1:]] for each in (subscribe, publish)]  # type: ignore[return-value]


@pytest.mark.peer("mosquitto-clients")
def test_the_subscriber_prints_what_is_published(ports: dict[str, str]) -> None:
    subscribe, publish = _commands(ports)
    command = ["stdbuf", "-oL", *subscribe, "-d", "-C", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as program:
        assert program.stdout is not None
        while not program.stdout.readline().startswith("Subscribed"):
            pass
        subprocess.run(publish, check=True, timeout=60)
        printed = [line for line in program.stdout if not line.startswith("Client ")]
    assert printed == ["plant/v1.2/temperature 21.5\n"]


@pytest.mark.peer("mosquitto-clients")
@pytest.mark.peer("node-mqtt")
def test_a_browser_s_program_prints_what_is_published(ports: dict[str, str]) -> None:
    program = "const mqtt = require('mqtt');\n" + _block("js").replace(":15675", f":{ports['15675']}")
    with subprocess.Popen(
        ["node", "-e", program], stdout=subprocess.PIPE, text=True, cwd=NODE_MODULES.parent
    ) as node:
        assert node.stdout is not None
        assert node.stdout.readline() == "subscribed\n"
        subprocess.run(_commands(ports)[1], check=True, timeout=60)
        assert node.stdout.readline() == "plant/v1.2/temperature 21.5\n"
        node.terminate()


@pytest.mark.peer("paho-mqtt")
def test_a_certificate_says_who_a_client_is(tmp_path: Path) -> None:
    servers, clients = trustme.CA(), trustme.CA()
    servers.cert_pem.write_to_path(tmp_path / "servers.pem")
    clients.cert_pem.write_to_path(tmp_path / "clients.pem")
    servers.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    certified = clients.issue_cert("sensors.plant", common_name="sensors")
    certified.private_key_and_cert_chain_pem.write_to_path(tmp_path / "client.pem")

    def show(client: Any) -> None:
        client.username_pw_set(None)
        client.tls_set(str(tmp_path / "servers.pem"), str(tmp_path / "client.pem"))

    with _running(tmp_path, _block("toml", 1)) as ports:
        broker = MqttBroker("kernel", int(ports["8883"]))
        with Paho(broker, "sensor", set_up=show) as client:
            assert str(client.code) == "Success"
            assert client.subscribe("plant/#", 1) == 1
            client.publish("plant/oven", b"210")
            assert client.bodies(1) == [b"210"]


def test_topics_and_keys_are_as_the_page_says() -> None:
    rows = re.findall(r"^\| `(\S+)` \| `(\S+)` \|$", _section("Topics and keys"), re.MULTILINE)
    assert len(rows) >= 5
    for topic, key in rows:
        assert (topic_to_key(topic), key_to_topic(key)) == (key, topic)


def test_the_limits_have_the_defaults_that_the_page_says() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| `(\d+)` \|", _section("Limits"), re.MULTILINE))
    defaults = {field.name: field.default for field in msgspec.structs.fields(MqttListenerOptions)}
    assert {name: defaults[name] for name in rows} == {name: int(value) for name, value in rows.items()}
    assert len(rows) >= 9


def test_the_status_has_the_topics_that_the_page_says() -> None:
    named = set(re.findall(r"`([a-z_ /]+)`", _section("The broker's status"))) - {"status_seconds"}
    server = StillServer({}, {})
    try:
        client = server.connect()
        client.subscribe(subscription("$SYS/#"))
        told = {each.topic.removeprefix("$SYS/broker/") for each in everything(client)}
    finally:
        server.close()
    assert named == told
