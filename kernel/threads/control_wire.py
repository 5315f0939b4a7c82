"""Control wire: messages between a kernel and a process that it has started, over a socketpair.

A message is a list of plain data, in msgpack behind four bytes of length.  It begins with its name.
A message may bring a descriptor.  ``send`` is for any thread; all else belongs to the one thread
that calls ``turn``.  A ``send`` never waits: what the socket does not take at once waits here, and
there is little of it.

The kernel does not rely on the process that it has started: what is no message raises ``KernelError``, a
message has at most ``LARGEST`` bytes, and descriptors from there are not received at all.
"""

from __future__ import annotations

import os
import select
import socket
import threading
from array import array
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from kernel.contracts.errors import KernelError
from kernel.pipes.doorbell import Doorbell

LARGEST = 1 << 30
"""Bytes of the largest message."""
_READ = 256 * 1024
_MOST_DESCRIPTORS = 64
"""Descriptors that one read may bring."""
_INTEGER = array("i").itemsize
# Linux has it. Where it is missing, received descriptors are made not inheritable afterwards.
_CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


class ControlWire:
    """One end.  It owns the socket, and each descriptor until it is sent or claimed."""

    def __init__(self, connected: socket.socket, *, descriptors: bool) -> None:
        """``descriptors``: whether messages from the other side may bring some."""
        connected.setblocking(False)
        self._socket = connected
        self._bell = Doorbell()
        self._lock = threading.Lock()
        self._closed = False
        # What is not written yet: the bytes, and the descriptor that goes with the first of them.
        self._out: deque[tuple[memoryview, int | None]] = deque()
        self._in = bytearray()
        self._descriptors: deque[int] = deque()
        self._room = socket.CMSG_SPACE(_MOST_DESCRIPTORS * _INTEGER) if descriptors else 0
        self._back: list[list[Any]] = []
        self._poll = select.poll()
        self._poll.register(self._bell.fileno(), select.POLLIN)

    def send(self, *message: Any, descriptor: int | None = None) -> None:
        """Send a message; any thread.  Takes over the descriptor.  Does nothing on a wire that has ended."""
        encoded = msgspec.msgpack.encode(message, enc_hook=_plain)
        if len(encoded) > LARGEST:
            raise ValueError(f"a message of {len(encoded)} bytes; {LARGEST} are allowed")
        with self._lock:
            if not self._closed:
                data = len(encoded).to_bytes(4, "big") + encoded
                self._out.append((memoryview(data), descriptor))
                descriptor = None
                # Under the lock: with the number of a bell that is closed it could write into another file.
                self._bell.ring()
        if descriptor is not None:
            socket.close(descriptor)

    def turn(self, timeout: float | None) -> list[list[Any]] | None:
        """Write what waits; return the messages that have come, after ``timeout`` seconds at the latest.

        None: the other side has ended.  Raises ``KernelError`` if it has sent what is no message.
        """
        if self._back:
            back, self._back = self._back, []
            return back
        try:
            self._write()
            self._poll.register(self._socket, select.POLLIN | (select.POLLOUT if self._out else 0))
            for descriptor, _ in self._poll.poll(None if timeout is None else max(timeout, 0) * 1000):
                if descriptor == self._bell.fileno():
                    self._bell.silence()
                elif not self._read():
                    return None
        except OSError:
            return None
        return list(self._messages())

    def put_back(self, messages: list[list[Any]]) -> None:
        """Have the next ``turn`` return these."""
        self._back = messages

    def flush(self, seconds: float) -> None:
        """Write what waits, for as long as the other side takes some of it within ``seconds``."""
        try:
            while self._out:
                self._write()
                if self._out and not select.select([], [self._socket], [], seconds)[1]:
                    return
        except OSError:
            return

    def claim(self) -> int:
        """Return the descriptor that came with a message.

        They are claimed in the order of their messages.
        """
        return self._descriptors.popleft()

    def close(self) -> None:
        """Close the socket, and all descriptors that are still here."""
        with self._lock:
            self._closed = True
            self._bell.close()
            waiting = [descriptor for _, descriptor in self._out if descriptor is not None]
            self._out.clear()
        for descriptor in (*waiting, *self._descriptors):
            socket.close(descriptor)
        self._descriptors.clear()
        self._socket.close()

    def _write(self) -> None:
        while self._out:
            data, descriptor = self._out[0]
            rights = []
            if descriptor is not None:
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [descriptor]))]
            try:
                count = self._socket.sendmsg([data], rights)
            except BlockingIOError:
                return
            if descriptor is not None:
                socket.close(descriptor)
            # Only this thread removes from the left, and ``close`` is called by this thread.
            if count == len(data):
                self._out.popleft()
            else:
                self._out[0] = (data[count:], None)

    def _read(self) -> bool:
        """Read what is there; False at the end."""
        try:
            # Without room for them the system closes the descriptors that come.
            data, rights, _, _ = self._socket.recvmsg(_READ, self._room, _CLOSE_ON_EXEC)
        except BlockingIOError:
            return True
        for level, kind, descriptors in rights:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                found = array("i")
                found.frombytes(descriptors[: len(descriptors) - len(descriptors) % _INTEGER])
                self._descriptors += found
                if not _CLOSE_ON_EXEC:  # macOS
                    for descriptor in found:
                        os.set_inheritable(descriptor, False)
        self._in += data
        return bool(data)

    def _messages(self) -> Iterable[list[Any]]:
        while len(self._in) >= 4:
            size = int.from_bytes(self._in[:4], "big")
            if size > LARGEST:
                raise KernelError(f"control wire: a message of {size} bytes; {LARGEST} are allowed")
            end = 4 + size
            if len(self._in) < end:
                return
            try:
                message = _decode(self._in[4:end])
            except (msgspec.MsgspecError, ValueError, RecursionError) as error:
                raise KernelError(f"control wire: {error}") from error
            if not message:
                raise KernelError("control wire: a message without a name")
            del self._in[:end]
            yield message


_decode = msgspec.msgpack.Decoder(list[Any]).decode


def _plain(value: Any) -> Any:
    """Return plain data for what msgpack cannot say, such as an operation's answer of a plugin's own type."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Iterable):
        return list(value)
    return str(value)
