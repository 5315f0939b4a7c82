"""Sockets of ØMQ: ``from kernel.sockets import Context`` (docs/sockets.md).

They are a plugin, which is imported when one of these names is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel.contracts.protocol import Login

if TYPE_CHECKING:
    from plugins.apis.sockets.context import Context
    from plugins.apis.sockets.errors import (
        Again,
        ContextClosed,
        NotSupported,
        OptionError,
        PlaceError,
        SocketClosed,
        SocketError,
        Unreachable,
        WrongState,
    )
    from plugins.apis.sockets.monitor import Monitor, SocketEvent
    from plugins.apis.sockets.options import OPTIONS, Option
    from plugins.apis.sockets.proxy import proxy
    from plugins.apis.sockets.socket import Socket, poll
    from plugins.apis.sockets.statistics import PeerStatistics, SocketStatistics
    from plugins.apis.sockets.tasks import TaskMonitor, TaskSocket

__all__ = [
    "OPTIONS",
    "Again",
    "Context",
    "ContextClosed",
    "Login",
    "Monitor",
    "NotSupported",
    "Option",
    "OptionError",
    "PeerStatistics",
    "PlaceError",
    "Socket",
    "SocketClosed",
    "SocketError",
    "SocketEvent",
    "SocketStatistics",
    "TaskMonitor",
    "TaskSocket",
    "Unreachable",
    "WrongState",
    "poll",
    "proxy",
]

_FOLDER = "plugins.apis.sockets"
# All other names are errors, which are in one module (``__getattr__``). ``Login`` is a contract and is
# imported above.
_MODULES = {
    "Context": "context",
    "Monitor": "monitor",
    "OPTIONS": "options",
    "Option": "options",
    "PeerStatistics": "statistics",
    "Socket": "socket",
    "SocketEvent": "monitor",
    "SocketStatistics": "statistics",
    "TaskMonitor": "tasks",
    "TaskSocket": "tasks",
    "poll": "socket",
    "proxy": "proxy",
}


def __getattr__(name: str) -> object:
    """Give a name of the plugin without importing it before it is wanted."""
    import importlib

    if name not in __all__:
        raise AttributeError(f"module 'kernel.sockets' has no attribute {name!r}")
    return getattr(importlib.import_module(f"{_FOLDER}.{_MODULES.get(name, 'errors')}"), name)
