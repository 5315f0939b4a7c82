"""Node's amqplib: the same roles, in a node process that speaks lines of JSON (``amqplib_client.js``).

Node ends when its standard input does."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.amqp.work import Work
from benchmarks.scenario import Unavailable
from tests.peers import NODE_AMQPLIB

_SCRIPT = Path(__file__).with_name("amqplib_client.js")


def publish(link: Connection, address: str, work: Work) -> None:
    """Publish as fast as the socket's buffer takes it; with confirms all are under way at once."""
    with _node("publish", address, work) as node:
        link.recv()
        _say(node)
        link.send(_heard(node))
        link.recv()
        _say(node)


def consume(link: Connection, address: str, work: Work) -> None:
    """Consume with a callback."""
    with _node("consume", address, work) as node:
        link.send(_heard(node))
        link.send(_heard(node))
        link.recv()
        _say(node)


def _node(role: str, address: str, work: Work) -> subprocess.Popen[str]:
    command = shutil.which("node")
    amqplib = Path(NODE_AMQPLIB)
    if command is None or not amqplib.is_dir():
        raise Unavailable("amqplib for node is not installed: make peers (root)")
    url = f"amqp://guest:guest@{address.rpartition('/')[2]}/"
    return subprocess.Popen(
        [command, str(_SCRIPT), role, url, json.dumps(asdict(work))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "NODE_PATH": str(amqplib.parent)},
    )


def _heard(node: subprocess.Popen[str]) -> Any:
    assert node.stdout is not None
    line = node.stdout.readline()
    if not line:
        raise Unavailable(f"amqplib: node ended with status {node.wait()}")
    said = json.loads(line)
    return tuple(said) if isinstance(said, list) else said


def _say(node: subprocess.Popen[str]) -> None:
    assert node.stdin is not None
    node.stdin.write("go\n")
    node.stdin.flush()
