"""Paho's clients of a broker with a data directory that is killed under them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.interop.mqtt_brokers import MqttKernel
from tests.interop.paho_client import TIMEOUT, Paho

pytestmark = pytest.mark.peer("paho-mqtt")


def test_sessions_and_retained_messages_outlive_the_broker(name: str, tmp_path: Path) -> None:
    """Messages of QoS 1 and 2 are on disk when they are acknowledged."""
    with MqttKernel(tmp_path, f'data_dir = "{tmp_path}/data"') as kernel:
        with Paho(kernel.mqtt, f"{name}-s", clean=False) as subscriber:
            subscriber.subscribe(f"{name}/#", 2)
        with Paho(kernel.mqtt, f"{name}-p", version=5) as publisher:
            publisher.publish(f"{name}/1", b"one", 1)
            publisher.publish(f"{name}/2", b"two", 2)
            publisher.publish(f"{name}/kept", b"kept", 1, retain=True)
        kernel.kill()
        kernel.start()
        with Paho(kernel.mqtt, f"{name}-s", clean=False) as subscriber:
            assert subscriber.flags.session_present is True
            # paho hands a message of QoS 2 over after its PUBREL.
            assert sorted(subscriber.bodies(3)) == [b"kept", b"one", b"two"]
        with Paho(kernel.mqtt, f"{name}-t") as late:
            late.subscribe(f"{name}/kept", 1)
            message = late.next()
            assert (bytes(message.payload), message.retain) == (b"kept", True)


@pytest.mark.slow
@pytest.mark.parametrize("version", [4, 5])
def test_qos_2_is_exactly_once_whenever_the_broker_is_killed(name: str, tmp_path: Path, version: int) -> None:
    """The publisher has several messages in flight; both clients come back with what they know."""
    with MqttKernel(tmp_path, f'data_dir = "{tmp_path}/data"') as kernel:
        options: dict[str, Any] = {"version": version, "clean": False, "expiry": 1000}
        subscriber = Paho(kernel.mqtt, f"{name}-s", **options)
        subscriber.subscribe(f"{name}/#", 2)
        publisher = Paho(kernel.mqtt, f"{name}-p", **options)
        got: list[bytes] = []
        sent = []
        for restart in range(5):
            for number in range(40):
                sent.append(b"%d.%d" % (restart, number))
                last = publisher.client.publish(f"{name}/a", sent[-1], 2)
            # Somewhere in the middle of the exchange.
            got += subscriber.bodies(3 * restart + 1)
            kernel.kill()
            kernel.start()
            # With an attempt that fails in between, paho forgets that it has sent PUBREL, and publishes again.
            for client in (subscriber, publisher):
                client.come_back()
                assert client.flags.session_present
        last.wait_for_publish(TIMEOUT)
        publisher.publish(f"{name}/end", b"end", 2)
        while b"end" not in got:
            got += subscriber.bodies(1)
        lost, twice = Counter([*sent, b"end"]) - Counter(got), Counter(got) - Counter([*sent, b"end"])
        assert (lost, twice) == (Counter(), Counter())
        for client in (subscriber, publisher):
            client.close()
