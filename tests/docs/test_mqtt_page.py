"""The examples of ``docs/mqtt.md`` do what the page says, and its lists are those of the code."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from plugins.engines.mqtt.options import MqttListenerOptions
from plugins.protocols.mqtt.topics import key_to_topic, topic_to_key
from tests.peers import NODE_MODULES
from tests.plugins.engines.mqtt.raw_client import subscription
from tests.plugins.engines.mqtt.still_server import StillServer
from tests.plugins.engines.mqtt.test_retained import everything
from tests.ports import free_port

PAGE = (Path(__file__).parents[2] / "docs" / "mqtt.md").read_text()
PORTS = ("1883", "15675", "5672")


def _block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found[1]


def _section(heading: str) -> str:
    return PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]


@pytest.fixture
def ports(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The first topology of the page runs; return its ports by those on the page."""
    ports = {port: str(free_port()) for port in PORTS}
    text = _block("toml")
    for before, after in ports.items():
        text = text.replace(f":{before}", f":{after}")
    file = tmp_path / "broker.toml"
    file.write_text(text)
    command = [sys.executable, "-m", "kernel", "run", str(file), "--json", "--no-control"]
    broker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert broker.stdout is not None
    while json.loads(broker.stdout.readline())["what"] != "ready":
        pass
    yield ports
    broker.terminate()
    broker.communicate(timeout=60)


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
