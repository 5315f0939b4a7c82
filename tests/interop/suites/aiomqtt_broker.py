"""A plugin of pytest for aiomqtt's suite, which runs in a process of its own: it talks to this test's broker.

The suite has the ports and the certificate of test.mosquitto.org.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from typing import Any

import aiomqtt

_PORTS = {
    1883: int(os.environ["SUITE_MQTT_PORT"]),
    8080: int(os.environ["SUITE_MQTT_WEB_PORT"]),
    8883: int(os.environ["SUITE_MQTT_TLS_PORT"]),
}
_connect = aiomqtt.Client.__init__


@functools.wraps(_connect)
def _to_broker(self: aiomqtt.Client, hostname: str, port: int = 1883, **options: Any) -> None:
    if hostname == "test.mosquitto.org":
        hostname, port = "127.0.0.1", _PORTS[port]
    if "tls_params" in options:
        options["tls_params"] = dataclasses.replace(
            options["tls_params"], ca_certs=os.environ["SUITE_MQTT_AUTHORITY"]
        )
    _connect(self, hostname, port, **options)


aiomqtt.Client.__init__ = _to_broker  # type: ignore[method-assign]
