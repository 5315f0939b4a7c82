"""A RabbitMQ of the tests' own: its files in a temporary folder, its ports free ones, gone at the end."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from time import monotonic
from typing import IO

from tests.ports import free_port

# Debian's own rabbitmq-server changes to the user and the folder of the system's service.  Another version can be
# compared with: these name its scripts.
SERVER = os.environ.get("KERNEL_RABBITMQ_SERVER", "/usr/lib/rabbitmq/bin/rabbitmq-server")
CONTROL = os.environ.get("KERNEL_RABBITMQ_CONTROL", "/usr/lib/rabbitmq/bin/rabbitmqctl")
TIMEOUT = 240.0
"""Erlang and Elixir take their time to start where others do as well."""
_LISTENERS = {
    "rabbitmq_mqtt": ("mqtt.listeners.tcp.1 = 127.0.0.1:{mqtt}",),
    "rabbitmq_stomp": ("stomp.listeners.tcp.1 = 127.0.0.1:{stomp}",),
}
"""Settings of plugins that have listeners of their own."""
_LARGE = f"max_message_size = {128 << 20}"
"""What 3.10 takes without being told; 4.0 takes 16 MiB."""


class RabbitMq:
    """One node."""

    def __init__(self, folder: Path, plugins: Sequence[str] = (), settings: Iterable[str] = ()) -> None:
        """``settings``: lines of its configuration file, besides those for the plugins' listeners."""
        self._folder = folder
        self.port, distribution, self._epmd_port = (free_port() for _ in range(3))
        self.mqtt_port, self.stomp_port = free_port(), free_port()
        ports = {"mqtt": self.mqtt_port, "stomp": self.stomp_port}
        listeners = [line.format(**ports) for plugin in plugins for line in _LISTENERS.get(plugin, ())]
        self._environment = {
            **os.environ,
            "HOME": str(folder),
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq"),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            "RABBITMQ_NODENAME": f"kernel-{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(distribution),
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            # Of ``rabbitmqctl``.  Erlang's schedulers spin while they wait, and so keep each other from the cores
            # of a busy machine: half a minute for a command of one second.
            "RABBITMQ_CTL_ERL_ARGS": "+S 1:1 +sbwt none +sbwtdcpu none +sbwtdio none",
        }
        (folder / "plugins").write_text(f"[{','.join(plugins)}].")
        (folder / "rabbitmq.conf").write_text(
            "".join(f"{line}\n" for line in (_LARGE, *listeners, *settings))
        )
        # One for all starts: who looks for leaks in between finds nothing new.
        reading, self._said = os.pipe()
        self._says = os.fdopen(reading)
        self._epmd = subprocess.Popen(["epmd", "-port", str(self._epmd_port), "-address", "127.0.0.1"])
        self._server: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start, and wait until it says that it has."""
        with (self._folder / "errors").open("a") as errors:
            self._server = subprocess.Popen(
                [SERVER],
                env=self._environment,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=self._said,
                stderr=errors,
                start_new_session=True,
            )
        _read_until(self._says, lambda line: "completed with" in line)

    def control(self, *arguments: str) -> str:
        """Run ``rabbitmqctl`` and return what it says."""
        command = [CONTROL, "--quiet", *arguments]
        return subprocess.run(
            command, env=self._environment, capture_output=True, text=True, check=True, timeout=TIMEOUT
        ).stdout

    def stop(self) -> None:
        """Kill it, as a power cut would; the shell that started it ends by itself when it is gone."""
        if self._server is None:
            return
        pid = self._folder / "pid"
        if pid.exists():
            os.kill(int(pid.read_text()), signal.SIGKILL)
            pid.unlink()
        else:  # it had not come so far
            os.killpg(self._server.pid, signal.SIGKILL)
        self._server.wait(TIMEOUT)
        self._server = None

    def close(self) -> None:
        """Stop it, and what it needed."""
        self.stop()
        self._epmd.kill()
        self._epmd.wait()
        self._says.close()
        os.close(self._said)


def _read_until(stream: IO[str], there: Callable[[str], bool]) -> None:
    said: list[str] = []
    deadline = monotonic() + TIMEOUT
    while monotonic() < deadline:
        line = stream.readline()
        said.append(line)
        if there(line):
            return
        assert line, "RabbitMQ did not start: " + "".join(said)
    raise AssertionError("RabbitMQ did not start in time: " + "".join(said))
