"""@stomp/stompjs in a browser: its page talks to the broker over WebSocket, and a raw client to the page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel import EnginePlan
from kernel.testing.fixtures import KernelFactory, kernel_factory
from tests.interop.web_page import TIMEOUT, Site, shown
from tests.peers import NODE_STOMPJS
from tests.plugins.engines.stomp.raw_client import RawStomp

__all__ = ["kernel_factory"]

pytestmark = [pytest.mark.peer("chromium"), pytest.mark.peer("node-stompjs"), pytest.mark.slow]

LIBRARY = Path(NODE_STOMPJS) / "bundles" / "stomp.umd.min.js"
PAGE = """<!doctype html>
<meta charset="utf-8">
<title>STOMP</title>
<script src="/stomp.umd.min.js"></script>
<script>
const tell = (what) => fetch('/tell', { method: 'POST', body: what });
const client = new StompJs.Client({
  brokerURL: '%(url)s',
  connectHeaders: { login: 'guest', passcode: 'guest', host: '/' },
  reconnectDelay: 0,
});
client.onStompError = (frame) => tell(`error: ${frame.body}`);
client.onConnect = (frame) => {
  client.subscribe('/queue/down', (message) => {
    message.ack();
    tell(`${frame.headers.version} ${message.headers.own} ${message.body}`);
  }, { ack: 'client-individual' });
  client.publish({ destination: '/queue/up', body: 'from the browser ü', headers: { own: 'value' } });
};
client.activate();
</script>
"""


@pytest.fixture
def ports(kernel_factory: KernelFactory) -> Iterator[tuple[int, int]]:
    """Where a broker listens for STOMP over WebSocket, and over TCP."""
    pytest.importorskip("wsproto")
    listeners = [
        {"protocol": "stomp", "address": "ws://127.0.0.1:0/ws"},
        {"protocol": "stomp", "address": "tcp://127.0.0.1:0"},
    ]
    kernel = kernel_factory(EnginePlan(name="broker", kind="broker", options={"listeners": listeners}))
    web, tcp = (int(port) for port in re.findall(r":(\d+)", kernel.address_of("broker")))
    yield web, tcp
    kernel.close(linger=0)


@pytest.fixture
def site(ports: tuple[int, int]) -> Iterator[Site]:
    site = Site(PAGE % {"url": f"ws://127.0.0.1:{ports[0]}/ws"}, LIBRARY)
    yield site
    site.close()


def test_one_message_each_way(ports: tuple[int, int], site: Site, tmp_path: Path) -> None:
    with RawStomp(ports[1]) as other:
        other.connect()
        other.ask("SUBSCRIBE", id="1", destination="/queue/up")
        with shown(site, tmp_path):
            message = other.next()
            assert (message["own"], message.body.decode()) == ("value", "from the browser ü")
            other.send("SEND", b"to the browser", destination="/queue/down", own="a\\cb")
            assert site.told.get(timeout=TIMEOUT) == "1.2 a:b to the browser"
