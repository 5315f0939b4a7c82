"""MQTT brokers: ours and mosquitto, started for each measurement, and a RabbitMQ with its plugin for a run."""

from __future__ import annotations

import atexit
import ctypes
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.amqp.brokers import Broker
from benchmarks.processes import PR_SET_PDEATHSIG, Child, end_with_parent
from benchmarks.scenario import Unavailable
from kernel.topology.plan import EnginePlan, Plan, ThreadPlan
from kernel.topology.system import Kernel
from tests.plugins.engines.amqp_client.rabbitmq import RabbitMq
from tests.ports import free_port

_STARTED_WITHIN = 10.0
"""Seconds."""

# As many messages in flight to a client as ours allows.  With the default, 20, a batch would take many round
# trips.
_MOSQUITTO = """
listener {port} 127.0.0.1
allow_anonymous true
persistence {persistence}
persistence_location {folder}/
max_queued_messages 0
max_inflight_messages 1024
set_tcp_nodelay true
"""


@contextmanager
def our_broker(durable: bool = False, **listener: Any) -> Iterator[Broker]:
    """Run ours.  ``durable``: with a store in a temporary folder.  ``listener``: options of its listener."""
    with tempfile.TemporaryDirectory(prefix="kernel-bench-") as folder:
        options = {"data_dir": folder} if durable else {}
        with Child(_serve_ours, options, listener) as child:
            yield Broker("kernel", child.hear(), child.pid)


@contextmanager
def mosquitto(durable: bool = False) -> Iterator[Broker]:
    """Run mosquitto.  ``durable``: it writes what it has to disk when it ends, and every 30 minutes."""
    program = shutil.which("mosquitto")
    if program is None:
        raise Unavailable("mosquitto is not installed: make peers (root)")
    with tempfile.TemporaryDirectory(prefix="kernel-bench-") as folder:
        port = free_port()
        configuration = Path(folder) / "mosquitto.conf"
        # As root it would change to a user that cannot read the folder.
        configuration.write_text(
            "user root\n"
            + _MOSQUITTO.format(port=port, folder=folder, persistence="true" if durable else "false")
        )
        with (Path(folder) / "log").open("w") as log:
            process = subprocess.Popen(
                [program, "-c", str(configuration)],
                stdout=log,
                stderr=log,
                preexec_fn=end_with_parent,  # noqa: PLW1509 - this process has one thread
            )
        try:
            _wait_for(port, process)
            yield Broker("mosquitto", f"127.0.0.1:{port}", process.pid)
        finally:
            process.kill()
            process.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _STARTED_WITHIN
    while time.monotonic() < end and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            time.sleep(0.01)
        else:
            return
    raise Unavailable(f"mosquitto does not listen on port {port}")


class Node(Broker):
    """A RabbitMQ with ``rabbitmq_mqtt``, and Debian's defaults otherwise."""

    def __init__(self) -> None:
        self._child = Child(_serve_rabbitmq)
        atexit.register(self._child.__exit__, None, None, None)
        address, pid = self._child.hear()
        super().__init__("RabbitMQ", address, pid)


@cache
def _rabbitmq() -> Node:
    if shutil.which("rabbitmq-server") is None:
        raise Unavailable("RabbitMQ is not installed: make peers (root)")
    return Node()


@contextmanager
def rabbitmq(durable: bool = False) -> Iterator[Broker]:
    """Return the node of this run; it stays."""
    yield _rabbitmq()


def _serve_ours(link: Connection, options: dict[str, Any], listener: dict[str, Any]) -> None:
    mqtt = {"protocol": "mqtt", "address": "127.0.0.1:0", "anonymous": "guest", **listener}
    engine = EnginePlan(name="broker", kind="broker", options={**options, "listeners": [mqtt]})
    with Kernel(Plan(threads=(ThreadPlan(name="io"),), engines=(engine,))) as kernel:
        kernel.wait_running()
        link.send(kernel.address_of("broker"))
        link.recv()


def _serve_rabbitmq(link: Connection) -> None:
    # Not killed with the parent, as other roles are: it has a server to take along.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    with tempfile.TemporaryDirectory(prefix="kernel-bench-") as folder:
        port = free_port()
        node = RabbitMq(Path(folder), ["rabbitmq_mqtt"], [f"mqtt.listeners.tcp.default = {port}"])
        try:
            node.start()
            link.send((f"127.0.0.1:{port}", int((Path(folder) / "pid").read_text())))
            link.recv()
        except (EOFError, KeyboardInterrupt):  # the parent is gone, or the whole batch is given up
            pass
        finally:
            node.close()
