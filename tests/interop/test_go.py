"""The suites of Go's clients, from Debian's packages of their sources.

Of AMQP clients amqp091-go, and the one that it comes from; of MQTT clients Eclipse Paho's.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.interop.brokers import KernelProcess
from tests.interop.managed_brokers import watched_broker
from tests.peers import GO_PATH

pytestmark = [pytest.mark.slow, pytest.mark.timeout(540)]

_SOURCES = Path(GO_PATH) / "src"
AMQP091_GO = "github.com/rabbitmq/amqp091-go"
STREADWAY = "github.com/streadway/amqp"
PAHO = "github.com/eclipse/paho.mqtt.golang"
MANAGEMENT = 15672 if (_SOURCES / AMQP091_GO / "internal" / "utils").exists() else None
"""Where later versions of the suite look for the management API."""
_MQTT_HOST = "127.18.83.1"
"""An address of this machine that nobody else uses: the suite chooses the port, which is MQTT's."""
_MQTT = f"""
[engines.broker]
kind = "broker"
{{options}}

[[engines.broker.listeners]]
protocol = "amqp"
address = "127.0.0.1:{{port}}"

[[engines.broker.listeners]]
protocol = "mqtt"
address = "{_MQTT_HOST}:1883"
anonymous = "guest"
"""
RACE = "TestRepeatedChannelExceptionWithPublishAndMaxProcsIssue46"
"""It publishes on a channel that the broker has closed; RabbitMQ, too, may end the connection for it."""
WITHIN_A_MILLISECOND = "TestNotifyClosesAllChansAfterConnectionClose"
"""It asks no broker, and expects that another thread of its own runs within 1 ms: not on a machine at work."""
TOO_FAST = "Test_cleanUpMids"
"""It expects that a broker needs more than 10 ms for QoS 2; mosquitto needs less as well."""
DOES_NOT_COMPILE = "unit_router_test.go"
"""A variable in it is never read, which today's Go refuses.  Its tests need no broker."""


class GoSuite:
    """The tests of a package, compiled."""

    def __init__(self, folder: Path, package: str, *, without_file: str = "") -> None:
        self._program = folder / "suite"
        self._folder = _SOURCES / package
        self._environment = os.environ | {
            "GO111MODULE": "off",
            "GOPATH": GO_PATH,
            "GOCACHE": str(folder / "cache"),
            "GOFLAGS": "",
        }
        overlay = folder / "overlay.json"
        replaced = {str(self._folder / without_file): ""} if without_file else {}
        overlay.write_text(json.dumps({"Replace": replaced}))
        options = ["-tags", "integration", "-overlay", str(overlay), "-o", str(self._program)]
        compiled = self._run(["go", "test", "-c", *options, package])
        assert compiled.returncode == 0, compiled.stderr

    def _run(self, command: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            env=self._environment | variables,
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=270,
        )

    def passes(self, least: int, *without: str, **variables: str) -> None:
        """Run it; with fewer tests than ``least`` it is not whole."""
        # Go has had an option to leave out tests since 1.20 only.
        names = self._run([str(self._program), "-test.list", "."], **variables).stdout.split()
        for name in without:
            names.remove(name)
        chosen = f"^({'|'.join(names)})$"
        done = self._run(
            [str(self._program), "-test.v", "-test.timeout=240s", "-test.run", chosen], **variables
        )
        failed = re.findall(
            r"^=== RUN   (\w+)\n((?:(?!=== RUN).*\n)*?)--- FAIL: \1", done.stdout, re.MULTILINE
        )
        assert failed == [], done.stderr
        assert done.returncode == 0, done.stdout[-5000:] + done.stderr
        assert len(re.findall(r"^--- PASS: ", done.stdout, re.MULTILINE)) >= least


@pytest.mark.peer("amqp091-go")
@pytest.mark.peer("prometheus-client")
def test_the_suite_of_amqp091_go_passes(tmp_path: Path) -> None:
    suite = GoSuite(tmp_path, AMQP091_GO)
    with watched_broker(MANAGEMENT) as broker:
        # It had 116 in version 1.6 and 246 in 1.16.
        suite.passes(100, WITHIN_A_MILLISECOND, AMQP_URL=f"amqp://guest:guest@127.0.0.1:{broker.amqp}/")


@pytest.mark.peer("streadway-amqp")
def test_the_suite_of_the_amqp_client_before_it_passes(tmp_path: Path) -> None:
    suite = GoSuite(tmp_path, STREADWAY)
    with KernelProcess(tmp_path) as process:
        suite.passes(95, RACE, WITHIN_A_MILLISECOND, AMQP_URL=process.broker.url)


@pytest.mark.peer("paho-go")
def test_the_suite_of_paho_passes(tmp_path: Path) -> None:
    suite = GoSuite(tmp_path, PAHO, without_file=DOES_NOT_COMPILE)
    with KernelProcess(tmp_path, topology=_MQTT):
        suite.passes(80, TOO_FAST, TEST_FVT_ADDR=_MQTT_HOST)
