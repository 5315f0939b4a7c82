"""Node's amqplib: the same roles, in a node process that speaks lines of JSON (``amqplib_client.js``)."""

from __future__ import annotations

import json
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks.amqp.work import Work
from benchmarks.node_programs import NodeProgram
from tests.peers import NODE_AMQPLIB

_SCRIPT = Path(__file__).with_name("amqplib_client.js")


def publish(link: Connection, address: str, work: Work) -> None:
    """Publish as fast as the socket's buffer takes it; with confirms all are under way at once."""
    with _node("publish", address, work) as node:
        link.recv()
        node.say()
        link.send(node.heard())
        link.recv()
        node.say()


def consume(link: Connection, address: str, work: Work) -> None:
    """Consume with a callback."""
    with _node("consume", address, work) as node:
        link.send(node.heard())
        link.send(node.heard())
        link.recv()
        node.say()


def _node(role: str, address: str, work: Work) -> NodeProgram:
    url = f"amqp://guest:guest@{address.rpartition('/')[2]}/"
    return NodeProgram(_SCRIPT, NODE_AMQPLIB, role, url, json.dumps(asdict(work)))
