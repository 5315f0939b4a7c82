"""MQTT.js in a browser: a page on loopback talks to the broker over WebSocket, and paho-mqtt is on the other side."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.mqtt_brokers import WEB_PATH, MqttKernel
from tests.interop.paho_client import Paho
from tests.interop.web_page import TIMEOUT, Site, shown
from tests.peers import NODE_MQTT

pytestmark = [
    pytest.mark.peer("chromium"),
    pytest.mark.peer("node-mqtt"),
    pytest.mark.peer("paho-mqtt"),
    pytest.mark.slow,
]

LIBRARY = Path(NODE_MQTT) / "dist" / "mqtt.min.js"
PAGE = """<!doctype html>
<title>MQTT</title>
<script src="/mqtt.min.js"></script>
<script>
const tell = (what) => fetch('/tell', { method: 'POST', body: what });
const client = mqtt.connect('%(url)s', { username: 'guest', password: 'guest', protocolVersion: %(version)s, reconnectPeriod: 0 });
client.on('error', (error) => tell(`error: ${error}`));
client.on('message', (topic, payload) => tell(`${topic} ${payload}`));
client.on('connect', async () => {
  await client.subscribeAsync('%(name)s/down', { qos: 1 });
  await client.publishAsync('%(name)s/up', 'from the browser', { qos: 1 });
});
</script>
"""


@pytest.fixture(params=[4, 5])
def site(request: pytest.FixtureRequest, mqtt_kernel: MqttKernel, name: str) -> Iterator[Site]:
    broker = mqtt_kernel.mqtt
    url = f"ws://{broker.host}:{broker.web_port}{WEB_PATH}"
    site = Site(PAGE % {"url": url, "version": request.param, "name": name}, LIBRARY)
    yield site
    site.close()


def test_one_message_each_way(mqtt_kernel: MqttKernel, site: Site, name: str, tmp_path: Path) -> None:
    with Paho(mqtt_kernel.mqtt, f"{name}-p") as other:
        other.subscribe(f"{name}/up", 1)
        with shown(site, tmp_path):
            assert bytes(other.got.get(timeout=TIMEOUT).payload) == b"from the browser"
            other.publish(f"{name}/down", b"to the browser")
            assert site.told.get(timeout=TIMEOUT) == f"{name}/down to the browser"
