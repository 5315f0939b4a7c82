"""MQTT brokers: ours and mosquitto, started for each measurement, and a RabbitMQ with its plugin for a run."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks import front_ends
from benchmarks.amqp.brokers import Broker
from benchmarks.processes import end_with_parent
from benchmarks.scenario import Unavailable
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


our_broker = partial(front_ends.our_broker, "mqtt")
rabbitmq = partial(front_ends.rabbitmq_with, "mqtt")


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
