"""A plugin of pytest for paho-mqtt's suite of MQTT 5.0, which runs in a process of its own: it talks to this test's broker.

The suite starts the broker of paho.mqtt.testing in its process, by the name ``mqtt.brokers``.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

_PORT = int(os.environ["SUITE_MQTT_PORT"])


def _run(config: list[str]) -> None:
    """The broker runs already."""


def _nothing(*_: Any) -> None:
    """It goes on running."""


_socket = SimpleNamespace(getsockname=lambda: ("127.0.0.1", _PORT))
_server = SimpleNamespace(socket=_socket, shutdown=_nothing, server_close=_nothing)
_package, _brokers = ModuleType("mqtt"), ModuleType("mqtt.brokers")
vars(_brokers).update(run=_run, listeners=SimpleNamespace(TCPListeners=SimpleNamespace(server=_server)))
vars(_package).update(brokers=_brokers, __path__=[])
sys.modules.update({"mqtt": _package, "mqtt.brokers": _brokers})
