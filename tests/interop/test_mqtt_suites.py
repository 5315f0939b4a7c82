"""The suites of MQTT clients that come with their sources, unchanged, against our broker.

paho-mqtt has one of MQTT 5.0.  aiomqtt's is for a broker on the Internet, whose ports a plugin exchanges.  gmqtt's is in its
wheel, and test_gmqtt.py runs it.  The packages of MQTT.js, stompjs and stomp.py have no tests in them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.brokers import KernelProcess
from tests.interop.client_suites import Suite, check_results, own_environment, run_suite
from tests.interop.mqtt_brokers import write_certificate
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

[[engines.broker.listeners]]
protocol = "mqtt"
address = "ws://127.0.0.1:{web}/"
anonymous = "guest"

[[engines.broker.listeners]]
protocol = "mqtt"
address = "tls://127.0.0.1:{tls}"
anonymous = "guest"
tls = {{{{ certificate = "{certificate}" }}}}
"""
_PAHO = Suite(
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
_AIOMQTT = Suite(
    "aiomqtt",
    ("tests",),
    40,
    {
        "test_client_reusable_message": "expects of anyio 3 that a group raises what its one task has raised",
        "aenter_state_reset_connack_timeout": "expects that a broker cannot answer at once",
        "test_messages_view_len": "begins to wait after publishing, when the message may be there already",
    },
    ("-p", "tests.interop.suites.aiomqtt_broker"),
    "pyproject.toml",
)


@pytest.mark.parametrize("suite", [_PAHO, _AIOMQTT], ids=lambda suite: suite.folder)
def test_the_suite_passes(suite: Suite, tmp_path: Path) -> None:
    certificate, authority = write_certificate(tmp_path)
    ports = {name: free_port() for name in ("mqtt", "web", "tls")}
    with KernelProcess(tmp_path, topology=_LISTENERS.format(**ports, certificate=certificate)):
        environment = own_environment() | {
            "SUITE_MQTT_PORT": str(ports["mqtt"]),
            "SUITE_MQTT_WEB_PORT": str(ports["web"]),
            "SUITE_MQTT_TLS_PORT": str(ports["tls"]),
            "SUITE_MQTT_AUTHORITY": authority,
        }
        check_results(suite, run_suite(suite, tmp_path, environment))
