"""MQTT.js: the usual client library of Node (``mqtt_js_client.js``)."""

from __future__ import annotations

from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks.floods import BODY
from benchmarks.node_programs import NodeProgram
from tests.peers import NODE_MQTT

_SCRIPT = Path(__file__).with_name("mqtt_js_client.js")


def subscribe(link: Connection, address: str, qos: int, count: int) -> None:
    """Receive so many messages; send their rate from the first on."""
    with _node("subscribe", address, qos, count) as node:
        link.send(node.heard())
        link.send(node.heard())
        link.recv()
        node.say()


def publish(link: Connection, address: str, qos: int, count: int) -> None:
    """Publish, a message a call."""
    with _node("publish", address, qos, count) as node:
        node.heard()
        link.recv()
        node.say()
        link.recv()
        node.say()


def _node(role: str, address: str, qos: int, count: int) -> NodeProgram:
    url = f"mqtt://{address.rpartition('/')[2]}"
    return NodeProgram(_SCRIPT, NODE_MQTT, role, url, str(qos), str(count), str(len(BODY)))
