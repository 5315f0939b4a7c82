"""The RabbitMQ of a whole run: started once, when the first side wants it, and gone when the run ends.

For another protocol than AMQP there is a node of its own, with the plugin.
"""

from __future__ import annotations

import atexit
import ctypes
import shutil
import signal
import sys
import tempfile
import time
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks.amqp.brokers import Broker
from benchmarks.processes import PR_SET_PDEATHSIG, Child
from benchmarks.scenario import Unavailable
from tests.plugins.engines.amqp_client.rabbitmq import RabbitMq

MISSING = "RabbitMQ is not installed: make peers (root)"


class Node(Broker):
    """A RabbitMQ with Debian's defaults, on a free port, its files in a temporary folder."""

    def __init__(self, protocol: str) -> None:
        self._child = Child(_serve, protocol)
        atexit.register(self._child.__exit__, None, None, None)
        address, pid, seconds = self._child.hear()
        super().__init__("RabbitMQ", address, pid)
        self.start_seconds: float = seconds
        """From the start of its process until it accepted."""
        self.idle = self.resident()
        """Bytes of memory that it took before anybody used it."""


@cache
def rabbitmq(protocol: str = "amqp") -> Node:
    """Return the node that all sides share; ``protocol``: what its address is for."""
    if shutil.which("rabbitmq-server") is None:
        raise Unavailable(MISSING)
    return Node(protocol)


def _serve(link: Connection, protocol: str) -> None:
    # Not killed with the parent, as other roles are: it has a server to take along.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    with tempfile.TemporaryDirectory(prefix="kernel-bench-") as folder:
        node = RabbitMq(Path(folder), [] if protocol == "amqp" else [f"rabbitmq_{protocol}"])
        port = {"amqp": node.port, "mqtt": node.mqtt_port, "stomp": node.stomp_port}[protocol]
        try:
            start = time.perf_counter()
            node.start()
            seconds = time.perf_counter() - start
            link.send((f"127.0.0.1:{port}", int((Path(folder) / "pid").read_text()), seconds))
            link.recv()
        except (EOFError, KeyboardInterrupt):  # the parent is gone, or the whole batch is given up
            pass
        finally:
            node.close()
