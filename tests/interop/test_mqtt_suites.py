"""The suite of MQTT 5.0 that comes with paho-mqtt, unchanged, against our broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.brokers import KernelProcess
from tests.interop.client_suites import Suite, check_results, own_environment, run_suite
from tests.ports import free_port

pytestmark = [pytest.mark.peer("client-suites"), pytest.mark.slow, pytest.mark.timeout(400)]

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
anonymous = "guest"
"""
_SUITE = Suite(
    "paho_mqtt",
    ("tests/test_mqttv5.py",),
    20,
    {
        "subscribe_failure": "expects a topic that nobody may read; rights are for exchanges and queues here",
        "reboots": "end the broker of paho.mqtt.testing, which runs in their own process",
    },
    ("-p", "tests.interop.suites.paho_broker"),
    "pyproject.toml",
)


def test_the_suite_of_paho_passes(tmp_path: Path) -> None:
    port = free_port()
    with KernelProcess(tmp_path, topology=_LISTENERS.format(mqtt=port)):
        environment = own_environment() | {"SUITE_MQTT_PORT": str(port)}
        check_results(_SUITE, run_suite(_SUITE, tmp_path, environment))
