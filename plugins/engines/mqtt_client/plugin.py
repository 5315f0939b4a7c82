"""The MQTT client as a plugin."""

from __future__ import annotations

from typing import Any

from kernel import hookimpl
from kernel.contracts.assurance import Assurance, Level
from kernel.contracts.engine import Engine
from kernel.contracts.kinds import EngineKind, EngineSetup, Flow


@hookimpl
def register_engines() -> list[EngineKind]:
    """Register kind ``mqtt-client``."""
    return [
        EngineKind(
            name="mqtt-client",
            summary="MQTT 5.0 and 3.1.1 client: publishes and subscribes with QoS 0 to 2, resumes its session",
            options="plugins.engines.mqtt_client.options:MqttClientOptions",
            create=_create,
            # Without subscriptions nothing comes from the broker.
            flow=lambda options: Flow(gives=bool(options.subscriptions), alone=False),
            assures=_assures,
        )
    ]


def _assures(options: Any) -> Assurance:
    level: Level = "sent" if options.qos == 0 else "peer"
    return Assurance(
        acknowledges="PUBACK or PUBREC to the broker that it subscribes to",
        waits=True,
        confirms=level,
        how="QoS 0: the operating system has its bytes"
        if level == "sent"
        else "the broker sends PUBACK or PUBCOMP",
        but="transient messages are published with QoS 0" if options.qos is None else "",
    )


def _create(setup: EngineSetup) -> Engine:
    from plugins.engines.mqtt_client.engine import MqttClientEngine

    return MqttClientEngine(setup.name, setup.options)
