"""Peers: programs and libraries of others that interoperability tests talk to, and how to get them."""

from __future__ import annotations

import importlib
import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from tests import lan
from tests.plugins.engines.pgm import libzmq_peer, openpgm
from tests.plugins.protocols.sctp import usrsctp_peer
from tests.plugins.protocols.sctp.linux import guest, user_mode

_SETUP = "make setup"
_PEERS = "make peers (root)"
_SUITES = "make suites"

JAVA_CLIENT = "/usr/share/java/amqp-client.jar"
"""Where Debian puts RabbitMQ's client for Java."""
DOTNET_CLIENT = "/usr/lib/mono/4.5/RabbitMQ.Client.dll"
"""Where Debian puts RabbitMQ's client for .NET, of the time of AMQP 0-8, as a part of Mono."""
JEROMQ = "/usr/share/java/jeromq.jar"
"""Where Debian puts JeroMQ; that of Debian 12 is 0.3, of the time of ZMTP 2.0."""
PHP_AMQPLIB = "/usr/share/php/PhpAmqpLib/autoload.php"
"""Where Debian puts php-amqplib."""
RABBITMQADMIN = next(
    iter(Path("/usr/lib/rabbitmq/lib").glob("*/plugins/rabbitmq_management-3*/priv/www/cli/rabbitmqadmin")),
    None,
)
"""Where Debian's RabbitMQ has its program for the management API; of version 4 it is a project of its own."""
GO_PATH = "/usr/share/gocode"
"""Where Debian puts sources of Go."""
BUNNY = "/usr/share/rubygems-integration/all/gems"
"""Where Debian puts Bunny, with other packages for Ruby."""
CLIENT_SUITES = Path(__file__).parent / "interop" / "suites" / ".sources"
"""Where `make suites` puts clients' source distributions, which have their suites."""
PROGRAMS = CLIENT_SUITES.parent / ".programs"
"""The environment of programs that need more than the project, which `make suites` makes."""
PROGRAMS_PYTHON = PROGRAMS / "bin" / "python"
PROGRAMS_SUITES = PROGRAMS / "sources"
"""Where it puts the suites of these programs."""
LIBZMQ_2 = str(CLIENT_SUITES.parent / ".libzmq2" / "libzmq2.so")
"""Where it puts libzmq 2.1, which it builds."""
NODE_MODULES = Path(__file__).parent / "interop" / "node" / "node_modules"
"""Where `make peers` has npm put what tests want from Node."""
NODE_AMQPLIB = str(NODE_MODULES / "amqplib")
NODE_AMQP_CLIENT = str(NODE_MODULES / "@cloudamqp" / "amqp-client")
NODE_RABBITMQ_MANAGER = str(NODE_MODULES / "http-rabbitmq-manager")
NODE_MQTT = str(NODE_MODULES / "mqtt")
NODE_STOMPJS = str(NODE_MODULES / "@stomp" / "stompjs")
NODE_ZEROMQ = str(NODE_MODULES / "zeromq")
PYRIGHT = str(NODE_MODULES / ".bin" / "pyright")
"""A program for Node."""


def _has_module(name: str) -> Callable[[], bool]:
    return lambda: name in sys.modules or importlib.util.find_spec(name) is not None


def _has_php_stomp() -> bool:
    if not shutil.which("php"):
        return False
    loaded = subprocess.run(["php", "-m"], capture_output=True, text=True, check=False, timeout=60).stdout
    return "Stomp" in loaded.split()


def _has_command(name: str) -> Callable[[], bool]:
    return lambda: shutil.which(name) is not None


def _has_file(path: str, command: str) -> Callable[[], bool]:
    return lambda: Path(path).exists() and shutil.which(command) is not None


def _has_bunny() -> bool:
    return shutil.which("ruby") is not None and any(Path(BUNNY).glob("bunny-*"))


def _has_suites() -> bool:
    return any(CLIENT_SUITES.glob("stamp-*"))


def _has_programs() -> bool:
    return PROGRAMS_SUITES.is_dir() and any(PROGRAMS.glob("stamp-*"))


def optional(module: str) -> Any:
    """Import a peer's module; None without it, where the mark ``peer`` keeps its tests from running."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        return None


class Peer(msgspec.Struct, frozen=True):
    """Something that a test may want to find on this machine."""

    name: str
    present: Callable[[], bool]
    install: str


PEERS: dict[str, Peer] = {
    peer.name: peer
    for peer in (
        Peer("aiomqtt", _has_module("aiomqtt"), _SETUP),
        Peer("aio-pika", _has_module("aio_pika"), _SETUP),
        Peer("aiormq", _has_module("aiormq"), _SETUP),
        Peer("amqp", _has_module("amqp"), _SETUP),
        Peer("amqp091-go", _has_file(f"{GO_PATH}/src/github.com/rabbitmq/amqp091-go/go.mod", "go"), _PEERS),
        Peer("amqp-tools", _has_command("amqp-publish"), _PEERS),
        Peer("amqpstorm", _has_module("amqpstorm"), _SETUP),
        Peer("bunny", _has_bunny, _PEERS),
        Peer("celery", _has_module("celery"), _SETUP),
        Peer("chromium", _has_command("chromium"), _PEERS),
        Peer("client-suites", _has_suites, _SUITES),
        Peer("deltalake", _has_module("deltalake"), "pip install deltalake"),
        Peer("dotnet-client", _has_file(DOTNET_CLIENT, "mcs"), _PEERS),
        Peer("faststream", _has_module("faststream"), _SETUP),
        Peer("flower", _has_module("flower"), _SETUP),
        Peer("gcc", _has_command("gcc"), _PEERS),
        Peer("gmqtt", _has_module("gmqtt"), _SETUP),
        Peer("greenstalk", _has_module("greenstalk"), _SETUP),
        Peer("grpc", _has_module("grpc_status"), _SETUP),
        Peer("java-client", _has_file(JAVA_CLIENT, "javac"), _PEERS),
        Peer("jeromq", _has_file(JEROMQ, "javac"), _PEERS),
        Peer("kombu", _has_module("kombu"), _SETUP),
        Peer("mosquitto", _has_command("mosquitto"), _PEERS),
        Peer("mosquitto-clients", _has_command("mosquitto_pub"), _PEERS),
        Peer("nagios-plugins-rabbitmq", _has_command("check_rabbitmq_overview"), _PEERS),
        Peer("nats-py", _has_module("nats"), _SETUP),
        Peer("node-amqp-client", _has_file(NODE_AMQP_CLIENT, "node"), _PEERS),
        Peer("node-amqplib", _has_file(NODE_AMQPLIB, "node"), _PEERS),
        Peer("node-mqtt", _has_file(NODE_MQTT, "node"), _PEERS),
        Peer("node-rabbitmq-manager", _has_file(NODE_RABBITMQ_MANAGER, "node"), _PEERS),
        Peer("node-stompjs", _has_file(NODE_STOMPJS, "node"), _PEERS),
        Peer("node-zeromq", _has_file(NODE_ZEROMQ, "node"), _PEERS),
        Peer("pyright", _has_file(PYRIGHT, "node"), _PEERS),
        Peer("libzmq 2", lambda: Path(LIBZMQ_2).exists(), _SUITES),
        Peer("libzmq with PGM", libzmq_peer.is_there, _PEERS),
        Peer("namespaces", lan.possible, "iproute2, and root"),
        Peer("openpgm", openpgm.is_there, _PEERS),
        Peer("nft", _has_command("nft"), _PEERS),
        Peer("paho-c", _has_file("/usr/include/MQTTClient.h", "gcc"), _PEERS),
        Peer(
            "paho-go", _has_file(f"{GO_PATH}/src/github.com/eclipse/paho.mqtt.golang/client.go", "go"), _PEERS
        ),
        Peer("paho-mqtt", _has_module("paho"), _SETUP),
        Peer("pamqp", _has_module("pamqp"), _SETUP),
        Peer("php-stomp", _has_php_stomp, _PEERS),
        Peer("php-amqplib", _has_file(PHP_AMQPLIB, "php"), _PEERS),
        Peer("pika", _has_module("pika"), _SETUP),
        Peer("programs", _has_programs, _SUITES),
        Peer("prometheus-client", _has_module("prometheus_client"), _SETUP),
        Peer("prometheus", _has_command("prometheus"), _PEERS),
        Peer("promtool", _has_command("promtool"), _PEERS),
        Peer("pyrabbit2", _has_module("pyrabbit2"), _SETUP),
        Peer("pyzmq", _has_module("zmq"), _SETUP),
        Peer("qemu-sctp", guest.is_there, _PEERS),
        Peer("rabbitmq", _has_command("rabbitmq-server"), _PEERS),
        Peer("rabbitmqadmin", lambda: RABBITMQADMIN is not None, "RabbitMQ 3, whose server has it"),
        Peer("redis", _has_module("redis"), _SETUP),
        Peer("redis-server", _has_command("redis-server"), _PEERS),
        Peer("scapy", _has_module("scapy"), _SETUP),
        Peer("scramp", _has_module("scramp"), _SETUP),
        Peer("stomp-py", _has_module("stomp"), _SETUP),
        Peer("streadway-amqp", _has_file(f"{GO_PATH}/src/github.com/streadway/amqp/go.mod", "go"), _PEERS),
        Peer("user-mode-linux", user_mode.is_there, _PEERS),
        Peer("usrsctp", usrsctp_peer.is_there, _PEERS),
        Peer("tshark", _has_command("tshark"), _PEERS),
        Peer("uvloop", _has_module("uvloop"), _SETUP),
    )
}
