"""Monitor: events of a socket's connections as messages at an ``inproc`` place."""

from __future__ import annotations

import struct
import threading
from typing import TYPE_CHECKING, Final

from zmq.constants import Event

from kernel.contracts.errors import KernelError
from plugins.apis.sockets.monitor import SocketEvent, What
from plugins.protocols.zmtp.zap import MEANINGS

if TYPE_CHECKING:
    from plugins.apis.sockets.pyzmq_backend.core import Core

EVERY_EVENT: Final = 0xFFFF

_NUMBERS: dict[What, tuple[Event, ...]] = {
    "listening": (Event.LISTENING,),
    "closed": (Event.CLOSED,),
    "connecting": (Event.CONNECT_DELAYED,),
    "retrying": (Event.CONNECT_RETRIED,),
    "connected": (Event.CONNECTED, Event.HANDSHAKE_SUCCEEDED),
    "accepted": (Event.ACCEPTED, Event.HANDSHAKE_SUCCEEDED),
    "refused": (Event.HANDSHAKE_FAILED_NO_DETAIL,),
    "disconnected": (Event.DISCONNECTED,),
}


class Monitor:
    """Sends what happens to a socket through a PAIR."""

    def __init__(self, core: Core, place: str, wanted: int) -> None:
        self._wanted = wanted
        self._lock = threading.Lock()
        self._pair = core.context.make("PAIR")
        self._pair.bind(place)
        self._stop_watching = core.socket.watch(self._told, lambda: None)

    def _told(self, event: SocketEvent) -> None:
        """Take an event.  Any thread."""
        if event.what == "refused" and event.code in MEANINGS:
            self._send(Event.HANDSHAKE_FAILED_AUTH, int(event.code), event.place)
            return
        for number in _NUMBERS[event.what]:
            self._send(number, int((event.next_try or 0) * 1000), event.place)

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
        self._stop_watching()
        self._send(Event.MONITOR_STOPPED, 0, "")
        with self._lock:
            self._pair.close(0.2)
