"""10,000 clients of MQTT and STOMP that come at once, each get a message, and go at once without a word."""

from __future__ import annotations

import resource
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from plugins.protocols.mqtt.encoder import encode
from plugins.protocols.mqtt.packets import Connack, Pingreq, Pingresp, Suback, Subscribe, Subscription
from tests.interop.brokers import KernelProcess
from tests.plugins.engines.mqtt.raw_client import TIMEOUT, connect_packet, publish
from tests.plugins.engines.stomp.raw_client import frame
from tests.ports import free_port

CROWD = 10_000
_OTHER_DESCRIPTORS = 500
_AT_ONCE = 500
_TOPOLOGY = """
[engines.broker]
kind = "broker"
{{options}}

[[engines.broker.listeners]]
protocol = "amqp"
address = "127.0.0.1:{{port}}"

[[engines.broker.listeners]]
protocol = "mqtt"
address = "127.0.0.1:{mqtt}"

[[engines.broker.listeners]]
protocol = "stomp"
address = "127.0.0.1:{stomp}"
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def descriptors() -> Iterator[int]:
    """Allow this process and the broker's many descriptors; return how many connections that is enough for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CROWD + _OTHER_DESCRIPTORS
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, allowed), hard))
    yield min(CROWD, allowed - _OTHER_DESCRIPTORS)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Client:
    """One of the crowd: it says everything at once, and then reads."""

    def __init__(self, number: int, mqtt: int, stomp: int) -> None:
        self._of_mqtt = bool(number % 2)
        self._wire = socket.create_connection(
            ("127.0.0.1", mqtt if self._of_mqtt else stomp), timeout=TIMEOUT
        )
        if self._of_mqtt:
            login, topic = connect_packet(4, client_id=f"c{number}"), (Subscription("crowd/all"),)
            self._wire.sendall(encode(login, 4) + encode(Subscribe(1, topic), 4))
        else:
            login_frame = frame("CONNECT", accept_version="1.2", host="/", login="guest", passcode="guest")
            subscribe = frame("SUBSCRIBE", id="1", destination="/topic/crowd.all", receipt="there")
            self._wire.sendall(login_frame + subscribe)

    def read_answers(self) -> None:
        if self._of_mqtt:
            wanted = encode(Connack(), 4) + encode(Suback(1, (0,)), 4)
            assert self._wire.recv(len(wanted), socket.MSG_WAITALL) == wanted
        else:
            self._read_until(b"RECEIPT\nreceipt-id:there\n\n\0")

    def read_message(self, body: bytes) -> None:
        if self._of_mqtt:
            wanted = encode(publish("crowd/all", body), 4)
            assert self._wire.recv(len(wanted), socket.MSG_WAITALL) == wanted
        else:
            self._read_until(b"\n\n" + body + b"\0")

    def vanish(self) -> None:
        """Reset the connection."""
        self._wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._wire.close()

    def _read_until(self, end: bytes) -> None:
        came = b""
        while not came.rstrip(b"\n").endswith(end):
            data = self._wire.recv(4096)
            assert data, came
            came += data


def _ping(wire: socket.socket) -> None:
    """Have the broker answer somebody who is connected, and who sees to it that it serves everybody."""
    wire.sendall(encode(Pingreq(), 4))
    wanted = encode(Pingresp(), 4)
    assert wire.recv(len(wanted), socket.MSG_WAITALL) == wanted


def test_a_crowd_comes_and_goes(tmp_path: Path, descriptors: int) -> None:
    mqtt, stomp = free_port(), free_port()
    with (
        KernelProcess(tmp_path, topology=_TOPOLOGY.format(mqtt=mqtt, stomp=stomp)),
        socket.create_connection(("127.0.0.1", mqtt), timeout=TIMEOUT) as bystander,
    ):
        bystander.sendall(encode(connect_packet(4, client_id="bystander"), 4))
        assert bystander.recv(4, socket.MSG_WAITALL) == encode(Connack(), 4)
        for count, body in ((descriptors, b"first"), (_AT_ONCE, b"second")):
            crowd: list[Client] = []
            while len(crowd) < count:
                # The broker has never more than these to accept: its backlog is finite.
                coming = [Client(len(crowd) + at, mqtt, stomp) for at in range(_AT_ONCE)]
                _ping(bystander)
                for each in coming:
                    each.read_answers()
                crowd += coming
            bystander.sendall(encode(publish("crowd/all", body), 4))
            for each in crowd:
                each.read_message(body)
            for each in crowd:
                each.vanish()
            _ping(bystander)
