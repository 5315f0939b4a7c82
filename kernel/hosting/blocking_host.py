"""Blocking host: a conversation over a blocking socket, driven by the application's own thread (x-mode in ØMQ 0.x).

There is no other thread, no pipe and no doorbell: ``send`` writes to the socket and ``receive`` reads from it.  That is
the lowest possible latency.  The price: there is one thread and one connection, and nothing is sent or received, not even
a heartbeat, while the application is not inside a call.
"""

from __future__ import annotations

import math
import select
import socket
import struct
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, NoReturn, Self

from kernel.contracts.bodies import all_checked, checked
from kernel.contracts.errors import (
    ConnectionLost,
    LocalProtocolError,
    RemoteProtocolError,
    TimedOut,
    WouldBlock,
)
from kernel.contracts.message import PLAIN, Batch, Buffer, Envelope, Message, batch_of
from kernel.contracts.protocol import StreamProtocol
from kernel.hosting.message_reader import MessageReader

READ_SIZE = 32 * 1024
"""Bytes asked for in one read: more would cost an mmap and a munmap for each small message."""

_FOR_EVER = 365 * 86400.0
_LONGEST = 3600.0
"""Seconds of one wait: 25 days are more milliseconds than ``poll`` can be asked for."""


class BlockingHost:
    """One connection that the application uses directly.  Not for several threads at once."""

    def __init__(
        self, connected: socket.socket, protocol: StreamProtocol, peer: str, handshake: float = 10.0
    ) -> None:
        connected.setblocking(True)
        self.peer = peer
        self._socket = connected
        self._protocol = protocol
        self._recv = connected.recv
        self._sendall = connected.sendall
        self._encode_one: Callable[[Buffer], bytes | None] = getattr(protocol, "encode_one", _no_short_cut)
        self._decode_one: Callable[[bytes], bytes | None] = getattr(protocol, "decode_one", _no_short_cut)
        self._ready = MessageReader()
        self._short_cut_taken = False
        self._due = math.inf  # when the protocol wants to be called
        self._poll = select.poll()
        self._poll.register(connected, select.POLLIN)
        self._lost = ""
        self._received = 0  # messages
        self._unconfirmed = False  # whether the application has messages that are not confirmed yet
        protocol.handle_timeout(time.monotonic())
        self._flush()
        self._shake_hands(time.monotonic() + handshake)
        self._set_system_timeout()

    # ------------------------------------------------------------------ sending

    def send(self, body: Buffer, *, key: str | None = None) -> None:
        """Send one message.

        When this returns, the operating system has it.  ``ConnectionLost`` if the peer is gone.
        """
        if key is None and type(body) is bytes:
            data = self._encode_one(body)
            if data is not None:
                try:
                    self._sendall(data)
                except OSError as error:
                    self._lose(error)
                return
        self.send_batches((batch_of([checked(body)], PLAIN if key is None else Envelope(key=key)),))

    def send_many(self, bodies: Sequence[Buffer], *, key: str | None = None) -> None:
        """Send a batch."""
        self.send_batches((batch_of(all_checked(bodies), PLAIN if key is None else Envelope(key=key)),))

    def send_batches(self, batches: Sequence[Batch]) -> None:
        """Send batches.

        Raises ``LocalProtocolError`` if some messages are not sent because the peer would not accept them.
        """
        if self._lost:
            raise ConnectionLost(self._lost)
        self._protocol.send_batches(batches, time.monotonic())
        self._flush()
        refused = getattr(self._protocol, "refused", None)
        if refused:
            why = f"{self.peer}: {refused[0].reason}"
            refused.clear()
            raise LocalProtocolError(why)

    # ------------------------------------------------------------------ receiving

    def receive(self, timeout: float | None = None) -> Buffer:
        """Return the next body; wait for it, at most ``timeout`` seconds (``TimedOut``)."""
        if timeout is None and not self._ready:
            if self._unconfirmed:
                self._confirm()
            try:
                data = self._recv(READ_SIZE)
            except OSError as error:
                data = self._no_data(error)
            body = self._decode_one(data)
            if body is not None:
                self._short_cut_taken = (
                    True  # such messages are not counted: ``decode_one`` is not used where we have to confirm
                )
                if time.monotonic() >= self._due:
                    self._do_what_is_due_quietly()
                return body
            if not self._receive(data):
                self._fill(None)
        elif not self._ready:
            self._fill(timeout)
        return self._ready.message().body

    def receive_nowait(self) -> Buffer:
        """Return the next body; ``WouldBlock`` if there is none."""
        try:
            return self.receive(0)
        except TimedOut:
            raise WouldBlock(f"nothing to receive from {self.peer}") from None

    def receive_many(self, timeout: float | None = None) -> list[Buffer]:
        """Return all bodies that have arrived.

        Wait for the first, at most ``timeout`` seconds (``TimedOut``).
        """
        if not self._ready:
            self._fill(timeout)
        bodies = list(self._ready.bodies)
        while self._ready.more():
            self._ready.next_batch()
            bodies += self._ready.bodies
        return bodies

    def receive_message(self, timeout: float | None = None) -> Message:
        """Return the next message with its envelope and parts."""
        if not self._ready:
            self._fill(timeout)
        return self._ready.message()

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self._socket.fileno()

    # ------------------------------------------------------------------ reading without the short cut

    def _fill(self, timeout: float | None) -> None:
        """Read until there is a message, at most ``timeout`` seconds (``TimedOut``)."""
        if self._unconfirmed:
            self._confirm()
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._ready:
            if deadline is not None and not self._await_bytes(deadline):
                if time.monotonic() >= deadline:
                    raise TimedOut(f"nothing received from {self.peer} within {timeout} s")
                continue
            try:
                data = self._recv(READ_SIZE)
            except OSError as error:
                data = self._no_data(error)
            self._receive(data)

    def _await_bytes(self, deadline: float) -> bool:
        """Wait until there is input or a deadline has passed; return whether there is input."""
        due = min(self._protocol.next_deadline() or deadline, deadline)
        if self._poll.poll(min(max(due - time.monotonic(), 0), _LONGEST) * 1000):
            return True
        if (self._protocol.next_deadline() or math.inf) <= time.monotonic():
            self._do_what_is_due()
        return False

    def _do_what_is_due(self) -> None:
        now = time.monotonic()
        if self._short_cut_taken:  # which has not told the protocol the time
            self._short_cut_taken = False
            self._protocol.receive_data(b"", now)
        self._protocol.handle_timeout(now)
        self._due = self._protocol.next_deadline() or math.inf
        self._flush()

    def _do_what_is_due_quietly(self) -> None:
        """Do what is due, but do not raise: the caller has a message to return.

        The next call raises instead.
        """
        try:
            self._do_what_is_due()
        except ConnectionLost:
            pass

    def _receive(self, data: bytes) -> bool:
        """Give bytes to the protocol; return whether there are messages."""
        now = time.monotonic()
        protocol = self._protocol
        try:
            if not data:
                protocol.receive_eof(now)
                self._lose(None)
            batches = protocol.receive_data(data, now)
            self._received += sum(map(len, batches))
            self._unconfirmed = self._unconfirmed or bool(batches)
            self._ready.add(batches)
            if now >= self._due:
                self._do_what_is_due()
        except RemoteProtocolError as error:
            self._ready.add(error.batches)
            self._lost = f"{self.peer}: {error}"
            self._flush()
            raise
        self._flush()
        if protocol.closed() and not self._ready:
            self._lose(None)
        return bool(self._ready)

    def _confirm(self) -> None:
        """Confirm all messages received: the application asks for more, so it has processed what it had."""
        self._unconfirmed = False
        self._protocol.confirm(self._received)
        try:
            self._flush()
        except ConnectionLost:  # what the peer sent before it closed can still be read
            pass

    def _no_data(self, error: OSError) -> bytes:
        """Do what is due after a timeout of the system (SO_RCVTIMEO), then read again.

        Other errors end the connection.
        """
        while isinstance(error, BlockingIOError):
            self._do_what_is_due()
            try:
                return self._recv(READ_SIZE)
            except OSError as another:
                error = another
        self._lose(error)
        raise AssertionError("not reached")

    def _set_system_timeout(self) -> None:
        """Limit blocking reads with SO_RCVTIMEO, so that the protocol is called at its deadline.

        This needs no extra system call for each read.
        """
        deadline = self._protocol.next_deadline()
        if deadline is None or deadline == math.inf:
            return
        self._due = deadline
        seconds = min(max(deadline - time.monotonic(), 0.01), _FOR_EVER)
        packed = struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, packed)

    def _shake_hands(self, deadline: float) -> None:
        """Wait until messages may be sent."""
        protocol = self._protocol
        while not protocol.ready_to_send():
            if self._await_bytes(deadline):
                try:
                    data = self._recv(READ_SIZE)
                except OSError as error:
                    self._lose(error)
                self._receive(data)
            elif time.monotonic() >= deadline:
                raise ConnectionLost(f"{self.peer}: the handshake did not end in time")

    def _flush(self) -> None:
        data = self._protocol.data_to_send()
        try:
            for buffer in (
                data if len(data) < 2 else (data if max(map(len, data)) > 65536 else [b"".join(data)])
            ):
                self._sendall(buffer)
        except OSError as error:
            self._lose(error)

    def _lose(self, error: OSError | None) -> NoReturn:
        self._lost = f"{self.peer}: {error or 'closed by the peer'}"
        raise ConnectionLost(self._lost) from error

    # ------------------------------------------------------------------ the end

    def close(self) -> None:
        """Tell the peer that the conversation ends, and close the connection."""
        if self._socket.fileno() >= 0:
            self._protocol.close("closed", time.monotonic())
            try:
                self._flush()
            except ConnectionLost:
                pass
            self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _no_short_cut(_: Any) -> None:
    """Return None: what a protocol without a short cut has for ``encode_one`` and ``decode_one``."""
