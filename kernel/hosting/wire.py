"""Wire: a connected, non-blocking stream socket, plain or TLS, with one face."""

from __future__ import annotations

import socket
import ssl
from collections import deque
from typing import Protocol

from kernel.contracts.message import Buffer

BUFFERS_A_CALL = 512
"""IOV_MAX is 1,024; a call with more buffers than this is no faster."""


class Wire(Protocol):
    """What a stream host needs of one.  ``OSError`` says that the connection is lost."""

    @property
    def connected(self) -> socket.socket | None:
        """The socket under it; None for a wire without one."""
        ...

    @property
    def at_end(self) -> bool:
        """Whether the end of the stream came together with the last bytes received.

        The descriptor tells nothing of such an end, and ``receive`` is not called for it.
        """
        ...

    @property
    def has_early_data(self) -> bool:
        """Whether ``receive`` has something of which the descriptor does not tell, from a handshake before."""
        ...

    def fileno(self) -> int:
        """The descriptor to watch."""
        ...

    def receive(self, most: int) -> bytes | None:
        """Up to ``most`` bytes; ``b""`` at the end of the stream; None when there is nothing now."""
        ...

    def send(self, buffers: deque[Buffer]) -> bool:
        """Write as much as goes, removing it from the left; True when all is written."""
        ...

    def shut_down(self) -> None:
        """Send no more: the peer sees the end of the stream.  Receiving goes on, and what it gives is of no use."""
        ...

    def close(self) -> None:
        """Hang up."""
        ...


class PlainWire:
    """tcp and unix."""

    __slots__ = ("_begun", "connected")
    at_end = False  # a plain socket stays readable at its end
    has_early_data = False

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        self.connected: socket.socket = connected
        self._begun: list[Buffer] = []

    def fileno(self) -> int:
        """The descriptor to watch."""
        return self.connected.fileno()

    def receive(self, most: int) -> bytes | None:
        """Up to ``most`` bytes."""
        try:
            return self.connected.recv(most)
        except (BlockingIOError, InterruptedError):
            return None

    def receive_into(self, room: memoryview) -> int | None:
        """Receive into ``room``."""
        try:
            return self.connected.recv_into(room)
        except (BlockingIOError, InterruptedError):
            return None

    def send(self, buffers: deque[Buffer]) -> bool:
        """Write as much as goes; one buffer by send, several by sendmsg."""
        sock = self.connected
        try:
            while buffers:
                if len(buffers) == 1:
                    sent = sock.send(buffers[0])
                else:
                    sent = sock.sendmsg([buffers[at] for at in range(min(len(buffers), BUFFERS_A_CALL))])
                drop_sent(buffers, sent, self._begun)
        except (BlockingIOError, InterruptedError):
            return False
        return True

    def shut_down(self) -> None:
        """Send no more."""
        self.connected.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Hang up."""
        self.connected.close()
        self._begun.clear()


class TlsWire:
    """TLS over tcp, after the handshake."""

    __slots__ = ("_begun", "at_end", "connected")
    has_early_data = False

    def __init__(self, connected: ssl.SSLSocket) -> None:
        self.at_end: bool = False
        self.connected: ssl.SSLSocket = connected
        self._begun: list[Buffer] = []

    def fileno(self) -> int:
        """The descriptor to watch."""
        return self.connected.fileno()

    def receive(self, most: int) -> bytes | None:
        """Up to ``most`` bytes: everything that TLS has decrypted, since no descriptor tells of what it keeps."""
        received: list[bytes] = []
        size = 0
        try:
            while size < most:
                data = self.connected.recv(65536)
                if not data:
                    # The peer's close_notify.  It need not close its socket as well, and may wait for ours.
                    self.at_end = True
                    break
                received.append(data)
                size += len(data)
                if size >= most and self.connected.pending():
                    most = size + self.connected.pending()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return b"".join(received) if received else None
        except ssl.SSLEOFError:
            pass
        except OSError:
            if not received:
                raise  # else the next call finds the end, too
        return b"".join(received)

    def send(self, buffers: deque[Buffer]) -> bool:
        """Write as much as goes."""
        try:
            while buffers:
                if len(buffers) > 1 and len(buffers[0]) < 16384:
                    joined = b"".join(buffers)
                    buffers.clear()
                    buffers.append(joined)
                drop_sent(buffers, self.connected.send(buffers[0]), self._begun)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False
        return True

    def shut_down(self) -> None:
        """Send our close_notify (RFC 8446, section 6.1), and no more.  What is received from now on is ciphertext."""
        try:
            self.connected.unwrap()
        except OSError:  # it wants the peer's close_notify now; we do not wait for that
            pass
        self.connected.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Hang up, without waiting for the peer's close_notify."""
        self.connected.close()
        self._begun.clear()


def drop_sent(buffers: deque[Buffer], sent: int, begun: list[Buffer]) -> None:
    """Remove the first ``sent`` bytes.

    ``begun`` keeps the buffer of which only the rest is still there: a slice does not keep the view that was lent, and
    its owner would be told too early that it may change it.
    """
    while sent:
        first = buffers[0]
        size = len(first)
        if sent >= size:
            sent -= size
            buffers.popleft()
            begun.clear()
        else:
            if not begun:
                begun.append(first)
            buffers[0] = memoryview(first)[sent:]
            return
    while buffers and not len(buffers[0]):
        buffers.popleft()
