"""What this folder adds to the kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel import hookimpl
from plugins.engines.broker.contract import FrontEndKind, FrontEndSetup

if TYPE_CHECKING:
    from plugins.engines.broker.contract import FrontEnd


@hookimpl
def register_front_ends() -> list[FrontEndKind]:
    """Offer MQTT to brokers."""
    return [
        FrontEndKind(
            name="mqtt",
            summary="MQTT 3.1.1 and 5.0: sensors, browsers, paho, mosquitto's clients",
            options="plugins.engines.mqtt.options:MqttListenerOptions",
            create=_create,
        )
    ]


def _create(setup: FrontEndSetup) -> FrontEnd:
    from plugins.engines.mqtt.front_end import make_front_end

    return make_front_end(setup.engine, setup.options)
