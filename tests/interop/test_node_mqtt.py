"""Everyday life with MQTT.js in Node, over TCP and WebSocket; the checks are in node/mqtt.js."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.interop.mqtt_brokers import WEB_PATH, MqttBroker

pytestmark = pytest.mark.peer("node-mqtt")

PROGRAM = Path(__file__).parent / "node" / "mqtt.js"


@pytest.mark.parametrize("version", ["4", "5"])
@pytest.mark.parametrize("transport", ["mqtt", "ws"])
def test_a_day_with_mqtt_js(mqtt_broker: MqttBroker, name: str, transport: str, version: str) -> None:
    host = mqtt_broker.host
    url = f"mqtt://{host}:{mqtt_broker.port}"
    if transport == "ws":
        url = f"ws://{host}:{mqtt_broker.web_port}{WEB_PATH}"
    done = subprocess.run(
        ["node", str(PROGRAM), url, version, name], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
