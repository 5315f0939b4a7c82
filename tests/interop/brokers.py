"""What the clients talk to: a `kernel run` in a process of its own, or a RabbitMQ, which knows the right answers."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import msgspec

from tests.interop.until import until
from tests.plugins.engines.amqp_client.rabbitmq import VERSION

TOPOLOGY = """
[engines.broker]
kind = "amqp"
address = "127.0.0.1:{port}"
{options}
"""
TIMEOUT = 60.0


class Broker(msgspec.Struct, frozen=True):
    """Where an AMQP 0-9-1 broker listens, for guest/guest and the virtual host ``/``."""

    kind: str
    port: int
    host: str = "127.0.0.1"

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@{self.address}/"

    def is_rabbitmq(self, *version: int) -> bool:
        """Whether it is a RabbitMQ of this version or a later one; ours is like 3.10."""
        return self.kind == "rabbitmq" and version <= VERSION


def in_words_of_3_10(text: str) -> str:
    """Leave out which right somebody lacks: RabbitMQ 4 says it."""
    return re.sub(r"^ACCESS_REFUSED - (configure|write|read) access to ", "ACCESS_REFUSED - access to ", text)


class KernelProcess:
    """A `kernel run` with an AMQP server, and with other listeners if the topology has them."""

    def __init__(self, folder: Path, options: str = "", *, port: int = 0, topology: str = TOPOLOGY) -> None:
        """``options`` are lines of TOML for the engine; the first listener of ``topology`` is for AMQP."""
        self._topology = topology
        self._file = folder / "broker.toml"
        self._log = folder / "broker.log"
        self._options = options
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        assert self._process is not None, "it does not run"
        return self._process.pid

    @property
    def broker(self) -> Broker:
        return Broker("kernel", self._port)

    def start(self) -> None:
        """Start it, on the same port as before if it has run before, and wait until it listens."""
        self._write()
        command = [sys.executable, "-m", "kernel", "run", str(self._file), "--json", "--no-control"]
        reading, writing = os.pipe()
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [*command, "--ready-fd", str(writing)], stdout=log, stderr=log, pass_fds=(writing,)
            )
        os.close(writing)
        with os.fdopen(reading) as ready:
            assert ready.read() == "ready\n", self._log.read_text()
        (running,) = self.said("running")
        self._port = int(running["detail"].partition(", ")[0].rpartition(":")[2])

    def _write(self) -> None:
        self._file.write_text(self._topology.format(port=self._port, options=self._options))

    def reload(self, options: str) -> None:
        """Change the lines of TOML for the engine, and have them applied."""
        before = len(self.said("reloaded"))
        self._options = options
        self._write()
        os.kill(self.pid, signal.SIGHUP)
        until(lambda: len(self.said("reloaded")) > before)

    def said(self, what: str) -> list[dict[str, Any]]:
        """Return the events of a sort that it has reported so far."""
        lines = self._log.read_text().rpartition("\n")[0].splitlines()  # the last may not be whole yet
        return [event for line in lines if (event := json.loads(line))["what"] == what]

    def stop(self) -> None:
        """Ask it to stop, and see that it does, without a complaint."""
        if self._process is not None:
            self._process.terminate()
            status = self._process.wait(TIMEOUT)
            self._process = None
            assert status == 0, self._log.read_text()
            assert not self.said("failed"), self._log.read_text()

    def kill(self) -> None:
        """End it as a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(TIMEOUT)
            self._process = None

    def descriptors(self) -> int:
        """How many files it has open."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def resident(self) -> int:
        """Bytes of memory that it occupies."""
        pages = Path(f"/proc/{self.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Let no line of it run meanwhile."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)
