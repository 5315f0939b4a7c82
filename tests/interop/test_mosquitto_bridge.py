"""A bridge of mosquitto to our broker, with mosquitto's default settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.mqtt_brokers import Mosquitto, MqttKernel
from tests.interop.paho_client import Paho

pytestmark = [pytest.mark.slow, pytest.mark.peer("mosquitto"), pytest.mark.peer("paho-mqtt")]

BRIDGE = """
connection bridge
address 127.0.0.1:{port}
remote_username guest
remote_password guest
bridge_protocol_version {version}
restart_timeout 1
topic # both 2 {name}/both/ {name}/both/
topic # in 2 {name}/in/ {name}/in/
topic # out 1 {name}/out/ {name}/out/
"""

MANY = 500


@pytest.mark.parametrize("version", ["mqttv31", "mqttv311", "mqttv50"])
def test_a_bridge_passes_messages_on_and_tells_its_state(
    mqtt_kernel: MqttKernel, tmp_path: Path, name: str, version: str
) -> None:
    here = mqtt_kernel.mqtt
    with Paho(here, f"{name}-here") as ours:
        ours.subscribe("$SYS/broker/connection/#", 0)
        ours.subscribe(f"{name}/#", 2)
        there = Mosquitto(tmp_path, BRIDGE.format(port=here.port, version=version, name=name))
        try:
            state = ours.next()
            while not state.topic.endswith(".bridge/state") or bytes(state.payload) != b"1":
                state = ours.next()
            with Paho(there.mqtt, f"{name}-there") as theirs:
                theirs.subscribe(f"{name}/#", 2)
                theirs.publish(f"{name}/out/a", b"out", 1)
                theirs.publish(f"{name}/both/a", b"theirs", 2)
                assert sorted(ours.bodies(2)) == [b"out", b"theirs"]
                ours.publish(f"{name}/in/a", b"in", 2)
                ours.publish(f"{name}/both/b", b"ours", 2)
                assert sorted(ours.bodies(2)) == [b"in", b"ours"]
                # What it has published itself comes once only: nothing comes back over the bridge.
                assert sorted(theirs.bodies(4)) == [b"in", b"ours", b"out", b"theirs"]
                theirs.publish(f"{name}/out/last", b"last", 1)
                assert (ours.bodies(1), theirs.bodies(1)) == ([b"last"], [b"last"])
                # Many at once: a bridge that is sent more than it can keep ends the connection.
                bodies = [b"%d" % number for number in range(MANY)]
                with there.halted():
                    for body in bodies:
                        ours.publish(f"{name}/in/many", body, 2)
                    assert ours.bodies(MANY) == bodies
                assert theirs.bodies(MANY) == bodies
        finally:
            there.stop()
        ended = ours.next()
        assert (ended.topic, bytes(ended.payload)) == (state.topic, b"0")
