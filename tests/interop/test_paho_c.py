"""Everyday life with Eclipse Paho's C client, over TCP and TLS; the checks are in c/everyday.c.

Not over WebSocket: there version 1.3.12 of the client fails in some checks with mosquitto as well.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.interop.mqtt_brokers import MqttBroker

pytestmark = [pytest.mark.peer("paho-c"), pytest.mark.slow]

_SOURCE = Path(__file__).parent / "c" / "everyday.c"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled program."""
    made = tmp_path_factory.mktemp("c") / "everyday"
    subprocess.run(["gcc", "-Wall", "-o", str(made), str(_SOURCE), "-lpaho-mqtt3cs"], check=True)
    return made


@pytest.mark.parametrize("transport, version", [("tcp", "3"), ("tcp", "4"), ("tcp", "5"), ("ssl", "5")])
def test_a_day_with_paho_c(
    program: Path, mqtt_broker: MqttBroker, name: str, transport: str, version: str
) -> None:
    port = mqtt_broker.port if transport == "tcp" else mqtt_broker.tls_port
    url = f"{transport}://{mqtt_broker.host}:{port}"
    done = subprocess.run(
        [str(program), url, version, name, mqtt_broker.authority], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
