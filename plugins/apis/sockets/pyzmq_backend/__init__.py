"""A backend for pyzmq: ``PYZMQ_BACKEND=plugins.apis.sockets.pyzmq_backend`` runs its programs on this kernel.

pyzmq imports it, and takes from it what ``zmq.backend.select`` names.  So ``zmq`` is there whenever this
package is used, and nothing else of the project imports it.
"""

from __future__ import annotations

from plugins.apis.sockets.pyzmq_backend.context import Context
from plugins.apis.sockets.pyzmq_backend.devices import monitored_queue, proxy, proxy_steerable
from plugins.apis.sockets.pyzmq_backend.errors import strerror, zmq_errno
from plugins.apis.sockets.pyzmq_backend.frame import Frame
from plugins.apis.sockets.pyzmq_backend.polling import zmq_poll
from plugins.apis.sockets.pyzmq_backend.socket import Socket
from plugins.apis.sockets.pyzmq_backend.utilities import (
    IPC_PATH_MAX_LEN,
    PYZMQ_DRAFT_API,
    curve_keypair,
    curve_public,
    has,
    zmq_version_info,
)

Message = Frame

__all__ = [
    "IPC_PATH_MAX_LEN",
    "PYZMQ_DRAFT_API",
    "Context",
    "Frame",
    "Message",
    "Socket",
    "curve_keypair",
    "curve_public",
    "has",
    "monitored_queue",
    "proxy",
    "proxy_steerable",
    "strerror",
    "zmq_errno",
    "zmq_poll",
    "zmq_version_info",
]
