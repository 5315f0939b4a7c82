"""Monitor: events of a socket's connections as messages at an ``inproc`` place."""

from __future__ import annotations

import errno
import struct
import threading
from typing import TYPE_CHECKING, Final, cast

from zmq import constants
from zmq.constants import Event

from kernel.contracts.errors import KernelError
from plugins.apis.sockets.monitor import SocketEvent, What
from plugins.protocols.zmtp.faults import Fault
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
    "disconnected": (Event.DISCONNECTED,),
    "bind failed": (Event.BIND_FAILED,),
    "accept failed": (Event.ACCEPT_FAILED,),
}
TOLD: frozenset[Event] = frozenset(
    {
        *(event for events in _NUMBERS.values() for event in events),
        Event.HANDSHAKE_FAILED_AUTH,
        Event.HANDSHAKE_FAILED_PROTOCOL,
        Event.HANDSHAKE_FAILED_NO_DETAIL,
        Event.MONITOR_STOPPED,
    }
)
"""The events that there are."""
_FAULTS: dict[Fault, int] = {
    "cryptographic": constants.PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC,
    "invalid-metadata": constants.PROTOCOL_ERROR_ZMTP_INVALID_METADATA,
    "invalid-sequence": constants.PROTOCOL_ERROR_ZMTP_INVALID_SEQUENCE,
    "key-exchange": constants.PROTOCOL_ERROR_ZMTP_KEY_EXCHANGE,
    "malformed-command": constants.PROTOCOL_ERROR_ZMTP_MALFORMED_COMMAND_UNSPECIFIED,
    "malformed-ERROR": constants.PROTOCOL_ERROR_ZMTP_MALFORMED_COMMAND_ERROR,
    "malformed-HELLO": constants.PROTOCOL_ERROR_ZMTP_MALFORMED_COMMAND_HELLO,
    "malformed-INITIATE": constants.PROTOCOL_ERROR_ZMTP_MALFORMED_COMMAND_INITIATE,
    "malformed-READY": constants.PROTOCOL_ERROR_ZMTP_MALFORMED_COMMAND_READY,
    "malformed-WELCOME": constants.PROTOCOL_ERROR_ZMTP_MALFORMED_COMMAND_WELCOME,
    "mechanism-mismatch": constants.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH,
    "unexpected-command": constants.PROTOCOL_ERROR_ZMTP_UNEXPECTED_COMMAND,
    "unspecified": constants.PROTOCOL_ERROR_ZMTP_UNSPECIFIED,
}
_NO_DETAIL: dict[str, int] = {"closed": errno.EPIPE, "timed-out": errno.EAGAIN}
"""As in libzmq, which has numbers of the system for these."""


def _failure_of(code: str) -> tuple[Event, int]:
    """Return the event of a handshake that has failed, and its value."""
    if code in MEANINGS:
        return Event.HANDSHAKE_FAILED_AUTH, int(code)
    number = _FAULTS.get(cast("Fault", code))
    if number is not None:
        return Event.HANDSHAKE_FAILED_PROTOCOL, number
    return Event.HANDSHAKE_FAILED_NO_DETAIL, _NO_DETAIL.get(code, 0)


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
        if event.what == "refused":
            what, value = _failure_of(event.code)
            self._send(what, value, event.place)
            return
        if event.what in ("bind failed", "accept failed"):
            number = getattr(errno, event.code, errno.EINVAL)
            self._send(_NUMBERS[event.what][0], number, event.place)
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
