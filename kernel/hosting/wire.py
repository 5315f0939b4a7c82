"""Wire: one interface for connected, non-blocking stream sockets, plain or with TLS."""

from __future__ import annotations

import socket
import ssl
from collections import deque
from typing import Protocol

from kernel.contracts.message import Buffer

BUFFERS_A_CALL = 512
"""IOV_MAX is 1,024; a call with more buffers than this is no faster."""


class Wire(Protocol):
    """What a connection needs of a wire.  Methods raise ``OSError`` when the connection is lost."""

    @property
    def connected(self) -> socket.socket | None:
        """The socket; None for a wire without one."""
        ...

    @property
    def at_end(self) -> bool:
        """Whether the end of the stream came together with the last bytes received.

        Then the descriptor does not become readable because of the end, so ``receive`` would not be called
        for it.
        """
        ...

    @property
    def has_early_data(self) -> bool:
        """Whether ``receive`` has something for which the descriptor does not become readable."""
        ...

    @property
    def announces_end(self) -> bool:
        """Whether ``shut_down`` tells the peer something that ``close`` does not."""
        ...

    @property
    def path(self) -> str:
        """The path for which a client of WebSocket has asked this listener; empty for all other wires."""
        ...

    def fileno(self) -> int:
        """The descriptor to watch."""
        ...

    def receive(self, most: int) -> bytes | None:
        """Return about ``most`` bytes; ``b""`` at the end of the stream; None if there is nothing now."""
        ...

    def send(self, buffers: deque[Buffer]) -> bool:
        """Write as much as the socket takes, and remove it from the left.

        Return whether everything was written.
        """
        ...

    def shut_down(self) -> None:
        """Shut down the sending half: the peer sees the end of the stream.

        ``receive`` may return anything after this.
        """
        ...

    def close(self) -> None:
        """Close the connection at once."""
        ...


class PlainWire:
    """tcp and unix."""

    __slots__ = ("_begun", "connected")
    # A plain socket stays readable at its end, so the end needs no flag.
    at_end = False
    has_early_data = False
    announces_end = False
    path = ""

    def __init__(self, connected: socket.socket) -> None:
        # Most sockets have been made so; to ask is no system call.
        if connected.gettimeout() != 0:
            connected.setblocking(False)
        self.connected: socket.socket = connected
        self._begun: list[Buffer] = []

    def fileno(self) -> int:
        """The descriptor to watch."""
        return self.connected.fileno()

    def receive(self, most: int) -> bytes | None:
        """Return up to ``most`` bytes."""
        try:
            return self.connected.recv(most)
        except (BlockingIOError, InterruptedError):
            return None

    def receive_into(self, room: memoryview) -> int | None:
        """Receive into ``room``.

        Return the number of bytes, 0 at the end of the stream, None if there are none now.
        """
        try:
            return self.connected.recv_into(room)
        except (BlockingIOError, InterruptedError):
            return None

    def send_first(self, buffer: Buffer, buffers: deque[Buffer]) -> bool:
        """As ``send``, of a buffer before which none waits; what the socket does not take is put there.

        Most turns write one buffer, to a socket that takes it.
        """
        try:
            sent = self.connected.send(buffer)
        except (BlockingIOError, InterruptedError):
            sent = 0
        if sent == len(buffer):
            return True
        buffers.append(buffer)
        drop_sent(buffers, sent, self._begun)
        return False

    def send(self, buffers: deque[Buffer]) -> bool:
        """Write as much as the socket takes; one buffer with send, several with sendmsg."""
        sock = self.connected
        try:
            while buffers:
                # One buffer is the usual case, and needs no list.
                if len(buffers) == 1:
                    first = buffers[0]
                    sent = sock.send(first)
                    # What ``drop_sent`` does with it, without the call.
                    if sent == len(first):
                        # Not ``clear``, which leaves each deque with a second block of 528 bytes.
                        buffers.popleft()
                        self._begun.clear()
                        break
                else:
                    # Several buffers go out without being joined, so that large bodies are not copied.
                    sent = sock.sendmsg([buffers[at] for at in range(min(len(buffers), BUFFERS_A_CALL))])
                drop_sent(buffers, sent, self._begun)
        except (BlockingIOError, InterruptedError):
            # What was sent was removed by then, so the next call continues behind it.
            return False
        return True

    def shut_down(self) -> None:
        """Shut down the sending half."""
        self.connected.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close the socket."""
        self.connected.close()
        # A buffer that was lent is returned now, even if somebody still refers to the wire (``drop_sent``).
        self._begun.clear()


class TlsWire:
    """TLS over tcp, after the handshake."""

    __slots__ = ("_begun", "at_end", "connected")
    has_early_data = False
    announces_end = True
    path = ""

    def __init__(self, connected: ssl.SSLSocket) -> None:
        self.at_end: bool = False
        self.connected: ssl.SSLSocket = connected
        self._begun: list[Buffer] = []

    def fileno(self) -> int:
        """The descriptor to watch."""
        return self.connected.fileno()

    def receive(self, most: int) -> bytes | None:
        """Return about ``most`` bytes.

        Nothing that TLS has decrypted may stay behind: the descriptor does not become readable because of it.
        """
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
                # The rest of a decrypted record is in OpenSSL and no longer in the socket.
                if size >= most and self.connected.pending():
                    most = size + self.connected.pending()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return b"".join(received) if received else None
        # A peer that closes its socket without close_notify.  A protocol with frames of its own notices
        # whether something is missing, so this counts as a plain end.
        except ssl.SSLEOFError:
            pass
        except OSError:
            # With data, return it first.  The next call finds the error again.
            if not received:
                raise
        return b"".join(received)

    def send(self, buffers: deque[Buffer]) -> bool:
        """Write as much as the socket takes."""
        try:
            while buffers:
                # A TLS record has at most 16 KiB of payload.  Small buffers are joined, since each call makes
                # a record of its own, with its header and its encryption.
                if len(buffers) > 1 and len(buffers[0]) < 16384:
                    joined = b"".join(buffers)
                    buffers.clear()
                    buffers.append(joined)
                drop_sent(buffers, self.connected.send(buffers[0]), self._begun)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False
        return True

    def shut_down(self) -> None:
        """Send our close_notify (RFC 8446, section 6.1), and shut down.

        ``receive`` returns ciphertext after this.
        """
        try:
            self.connected.unwrap()
        except OSError:
            # ``unwrap`` has sent ours and now wants the peer's close_notify.  RFC 8446 lets both sides close
            # on their own, so we do not wait for it.
            pass
        self.connected.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close the socket, without waiting for the peer's close_notify."""
        self.connected.close()
        self._begun.clear()


def drop_sent(buffers: deque[Buffer], sent: int, begun: list[Buffer]) -> None:
    """Remove the first ``sent`` bytes.

    ``begun`` keeps a reference to a buffer of which only a part was sent.  The slice that is left does not
    keep a view that was lent (``kernel.contracts.loan``), so its owner would be told too early that it can be
    changed.
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
    # An empty buffer is sent as 0 bytes, so the loop above does not remove it.
    while buffers and not len(buffers[0]):
        buffers.popleft()
