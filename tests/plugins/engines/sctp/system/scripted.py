"""A socket of SCTP that says what a test has written down, and keeps what it is told."""

from __future__ import annotations

import errno
import socket
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from plugins.engines.sctp.system import layout
from plugins.engines.sctp.system.layout import Cmsg, Option

EOR = socket.MSG_EOR


def data(payload: bytes, stream: int = 0, protocol: int = 0, *, whole: bool = True) -> tuple[Any, ...]:
    """What ``recvmsg_into`` says of a message, or of a part of it."""
    information = stream.to_bytes(2, "little") + bytes(6) + protocol.to_bytes(4, "big") + bytes(16)
    return payload, [(layout.IPPROTO_SCTP, Cmsg.RCVINFO, information)], EOR if whole else 0


def news(text: str, *, whole: bool = True) -> tuple[Any, ...]:
    """The same of a notification, in hexadecimal digits."""
    return bytes.fromhex(text), [], layout.MSG_NOTIFICATION | (EOR if whole else 0)


UP = news("01800000 14000000 0000 0000 0a00 0a00 00000000")
DRY = news("09800000 0c000000 00000000")


class Scripted:
    """``incoming``: what is read; ``room``: how many messages are taken before there is none; ``queued``: unacknowledged bytes."""

    def __init__(self, *incoming: Any) -> None:
        self.incoming: deque[Any] = deque(incoming)
        self.sent: list[tuple[bytes, list[layout.Ancillary]]] = []
        self.options: list[tuple[int, bytes]] = []
        self.room = 1000
        self.queued = 0
        self.shut = self.gone = False

    def recvmsg_into(self, buffers: Sequence[memoryview], space: int) -> tuple[Any, ...]:
        if not self.incoming:
            raise BlockingIOError
        found = self.incoming.popleft()
        if isinstance(found, OSError):
            raise found
        payload, ancillary, flags = found
        buffers[0][: len(payload)] = payload
        return len(payload), ancillary, flags, None

    def sendmsg(self, buffers: Iterable[bytes], ancillary: list[layout.Ancillary]) -> int:
        if not self.room:
            raise BlockingIOError
        if self.room < 0:
            raise OSError(errno.EPIPE, "Broken pipe")
        self.room -= 1
        body = b"".join(buffers)
        self.sent.append((body, ancillary))
        return len(body)

    def setsockopt(self, level: int, option: int, value: bytes) -> None:
        self._check()
        self.options.append((option, value))

    def getsockopt(self, level: int, option: int, size: int = 0) -> Any:
        if level == socket.SOL_SOCKET:
            if option == layout.SO_MEMINFO:
                return layout.MEMINFO.pack(0, 0, 0, 0, 0, self.queued, 0, 0, 0)
            return 0 if option == socket.SO_ERROR else 100_000
        self._check()
        if option == Option.STATUS:
            return layout.STATUS.pack(0, 4, 60_000, 0, 0, 10, 10, 1000)
        return bytes(4) + b"\2\0\0\0" + b"".join(layout.socket_address(each, 5000) for each in PEER)

    def _check(self) -> None:
        if self.gone:
            raise OSError(errno.EINVAL, "Invalid argument")

    def shutdown(self, how: int) -> None:
        self.shut = True


PEER = (bytes((10, 0, 0, 1)), bytes((10, 1, 0, 1)))
