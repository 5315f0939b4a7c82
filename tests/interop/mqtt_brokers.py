"""MQTT brokers for clients of others: ours and mosquitto."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import trustme

from tests.interop.brokers import KernelProcess
from tests.interop.until import until
from tests.ports import free_port

WEB_PATH = "/mqtt"
TIMEOUT = 60.0


def _version() -> tuple[int, ...]:
    """What mosquitto says of itself; nothing if there is none."""
    if shutil.which("mosquitto") is None:
        return ()
    said = subprocess.run(["mosquitto", "-h"], capture_output=True, text=True, check=False).stdout
    return tuple(map(int, re.findall(r"\d+", said.partition("\n")[0])))


MOSQUITTO_VERSION = _version()
"""As ``(2, 0, 11)``."""

# The first listener is for AMQP.  Its port is given by the system, the others by the test.
_LISTENERS = """
[engines.broker]
kind = "broker"
{{options}}

[[engines.broker.listeners]]
protocol = "amqp"
address = "127.0.0.1:{{port}}"

[[engines.broker.listeners]]
protocol = "mqtt"
address = "127.0.0.1:{mqtt}"
status_seconds = 1
{mqtt_options}

[[engines.broker.listeners]]
protocol = "mqtt"
address = "ws://127.0.0.1:{web}{path}"

[[engines.broker.listeners]]
protocol = "mqtt"
address = "unix://{unix}"

[[engines.broker.listeners]]
protocol = "mqtt"
address = "tls://127.0.0.1:{tls}"
tls = {{{{ certificate = "{certificate}" }}}}
"""

_MOSQUITTO = """
listener {mqtt} 127.0.0.1
listener {web} 127.0.0.1
protocol websockets
listener {tls} 127.0.0.1
certfile {folder}/server.pem
keyfile {folder}/server.pem
allow_anonymous false
password_file {folder}/passwords
persistence {persistence}
persistence_location {folder}/
sys_interval 1
{settings}
"""


class MqttBroker(msgspec.Struct, frozen=True):
    """Where an MQTT broker listens, for guest/guest.  0 and empty: it does not."""

    kind: str
    port: int
    web_port: int = 0
    amqp_port: int = 0
    tls_port: int = 0
    unix: str = ""
    authority: str = ""
    """A file with the certificate of the authority that has signed the broker's."""
    host: str = "127.0.0.1"

    @property
    def url(self) -> str:
        return f"mqtt://guest:guest@{self.host}:{self.port}"


def write_certificate(folder: Path) -> tuple[Path, str]:
    """Write a server's certificate with its key, and that of the authority; return the files."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "authority.pem")
    server = authority.issue_cert("127.0.0.1")
    server.private_key_and_cert_chain_pem.write_to_path(folder / "server.pem")
    return folder / "server.pem", str(folder / "authority.pem")


class MqttKernel(KernelProcess):
    """A `kernel run` with listeners for AMQP and for MQTT over TCP, WebSocket, a Unix socket and TLS."""

    def __init__(self, folder: Path, options: str = "", mqtt_options: str = "") -> None:
        """``options``: lines of TOML for the broker.  ``mqtt_options``: for its MQTT listener over TCP."""
        certificate, self._authority = write_certificate(folder)
        ports = {name: free_port() for name in ("mqtt", "web", "tls")}
        self._unix = str(folder / "mqtt.sock")
        topology = _LISTENERS.format(
            **ports,
            path=WEB_PATH,
            unix=self._unix,
            certificate=certificate,
            mqtt_options=mqtt_options,
        )
        self._ports = ports
        super().__init__(folder, options, topology=topology)

    @property
    def mqtt(self) -> MqttBroker:
        ports = self._ports
        return MqttBroker(
            "kernel",
            ports["mqtt"],
            ports["web"],
            self.broker.port,
            ports["tls"],
            self._unix,
            self._authority,
        )


class Mosquitto:
    """A mosquitto with its files in a folder of the test."""

    def __init__(self, folder: Path, settings: str = "", *, persistence: bool = False) -> None:
        """``settings``: lines of its configuration file.  ``persistence``: it keeps sessions when it is stopped."""
        ports = {name: free_port() for name in ("mqtt", "web", "tls")}
        _, authority = write_certificate(folder)
        passwords = folder / "passwords"
        passwords.touch(mode=0o600)
        subprocess.run(["mosquitto_passwd", "-b", str(passwords), "guest", "guest"], check=True)
        self._configuration = folder / "mosquitto.conf"
        lines = _MOSQUITTO.format(
            **ports, folder=folder, settings=settings, persistence="true" if persistence else "false"
        )
        # It changes to the user ``mosquitto`` otherwise, who cannot read the folder.
        self._configuration.write_text(f"user root\n{lines}")
        self.mqtt = MqttBroker(
            "mosquitto", ports["mqtt"], ports["web"], tls_port=ports["tls"], authority=authority
        )
        self._log = folder / "mosquitto.log"
        self.start()

    def start(self) -> None:
        """Start it, on the same ports as before if it has run before, and wait until it listens."""
        command = ["mosquitto", "-c", str(self._configuration)]
        with self._log.open("w") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        until(self._has_started)

    def _has_started(self) -> bool:
        assert self._process.poll() is None, self._log.read_text()
        return "running" in self._log.read_text()

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait(TIMEOUT)

    def kill(self) -> None:
        """Kill it: it has no time to write anything."""
        self._process.kill()
        self._process.wait(TIMEOUT)

    @contextmanager
    def halted(self) -> Iterator[None]:
        """Let it do nothing meanwhile: it reads all at once afterwards."""
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)
