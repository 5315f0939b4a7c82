"""Monitor: events of a socket's connections as messages at an ``inproc`` place."""

from __future__ import annotations

import struct
import threading
from typing import TYPE_CHECKING, Final

from zmq.constants import Event

from kernel.contracts.engine import EngineEvent
from kernel.contracts.errors import KernelError
from plugins.protocols.zmtp.zap import MEANINGS

if TYPE_CHECKING:
    from plugins.apis.sockets.pyzmq_backend.core import Core

EVERY_EVENT: Final = 0xFFFF


class Monitor:
    """Sends what the engine of a socket reports through a PAIR."""

    def __init__(self, core: Core, place: str, wanted: int) -> None:
        self._wanted = wanted
        self._engine = core.socket._place.engine
        self._lock = threading.Lock()
        self._context = core.context
        self._pair = core.context.make("PAIR")
        self._pair.bind(place)
        core.context.listen(self._told)

    def _told(self, event: EngineEvent) -> None:
        """Take an event of any engine of the kernel.  Any thread."""
        if event.engine != self._engine:
            return
        peer = event.peer if "://" in event.peer else f"tcp://{event.peer}"
        if event.what == "connected":
            self._send(Event.CONNECTED if "://" in event.peer else Event.ACCEPTED, 0, peer)
            self._send(Event.HANDSHAKE_SUCCEEDED, 0, peer)
        elif event.what == "disconnected":
            self._send(Event.DISCONNECTED, 0, peer)
        elif event.what == "refused" and event.code in MEANINGS:
            self._send(Event.HANDSHAKE_FAILED_AUTH, int(event.code), peer)
        elif event.what == "refused":
            self._send(Event.HANDSHAKE_FAILED_NO_DETAIL, 0, peer)
        elif event.what == "retrying":
            self._send(Event.CONNECT_RETRIED, int((event.next_try or 0) * 1000), peer)

    def places_changed(self, what: Event, place: str) -> None:
        """Tell that the application has bound or unbound, connected or disconnected."""
        self._send(what, 0, place)

    def _send(self, what: int, value: int, place: str) -> None:
        if not what & self._wanted:
            return
        with self._lock:
            try:
                self._pair.send_multipart([struct.pack("=Hi", what, value), place.encode()], timeout=0)
            except KernelError:
                return  # nobody receives, or it is over

    def stop(self) -> None:
        """Send that it is over, and send no more."""
        self._context.unlisten(self._told)
        self._send(Event.MONITOR_STOPPED, 0, "")
        with self._lock:
            self._pair.close(0.2)
