"""MQTT.js in a browser: a page on loopback talks to the broker over WebSocket, and paho-mqtt is on the other side."""

from __future__ import annotations

import queue
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.interop.mqtt_brokers import WEB_PATH, MqttKernel
from tests.interop.paho_client import Paho
from tests.peers import NODE_MQTT

pytestmark = [
    pytest.mark.peer("chromium"),
    pytest.mark.peer("node-mqtt"),
    pytest.mark.peer("paho-mqtt"),
    pytest.mark.slow,
]

TIMEOUT = 120.0
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


class Site:
    """A web server with one page, which hears what the page has to tell."""

    def __init__(self, page: str) -> None:
        self.told: queue.Queue[str] = queue.Queue()
        answers = {
            "/": ("text/html", page.encode()),
            "/mqtt.min.js": ("text/javascript", LIBRARY.read_bytes()),
        }
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                kind, body = answers.get(self.path, ("", b""))
                self._answer(200 if kind else 404, kind or "text/plain", body)

            def do_POST(self) -> None:
                length = int(self.headers["content-length"])
                site.told.put(self.rfile.read(length).decode())
                self._answer(204, "text/plain", b"")

            def _answer(self, status: int, kind: str, body: bytes) -> None:
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture(params=[4, 5])
def site(request: pytest.FixtureRequest, mqtt_kernel: MqttKernel, name: str) -> Iterator[Site]:
    broker = mqtt_kernel.mqtt
    url = f"ws://{broker.host}:{broker.web_port}{WEB_PATH}"
    site = Site(PAGE % {"url": url, "version": request.param, "name": name})
    yield site
    site.close()


def test_one_message_each_way(mqtt_kernel: MqttKernel, site: Site, name: str, tmp_path: Path) -> None:
    with Paho(mqtt_kernel.mqtt, f"{name}-p") as other:
        other.subscribe(f"{name}/up", 1)
        command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
        # With the port it stays until somebody ends it.
        options = [f"--user-data-dir={tmp_path}/profile", "--remote-debugging-port=0"]
        with (tmp_path / "log").open("w") as log:
            browser = subprocess.Popen([*command, *options, site.url], stdout=log, stderr=log)
        try:
            assert bytes(other.got.get(timeout=TIMEOUT).payload) == b"from the browser"
            other.publish(f"{name}/down", b"to the browser")
            assert site.told.get(timeout=TIMEOUT) == f"{name}/down to the browser"
        finally:
            browser.terminate()
            browser.wait(TIMEOUT)
