"""A conversation of STREAM: the peer speaks plain TCP, and not ZMTP.  Sans-I/O.

What a read brings is a message of one part.  A message of no bytes says that the peer has come, or that it
has gone; one that is sent closes the connection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from kernel.contracts.message import PLAIN, Batch, Buffer, Envelope, batch_of
from plugins.protocols.zmtp.addressing import Naming
from plugins.protocols.zmtp.faults import Fault


class RawConnection:
    """``kernel.contracts.protocol.StreamProtocol`` without any protocol."""

    peer_name = ""
    """Set when the conversation begins (``Named``)."""
    peer_options: MappingProxyType[str, Any] = MappingProxyType({})
    peer_metadata: Mapping[str, bytes] = MappingProxyType({})
    """A peer says nothing of itself."""
    refused_with: str | None = None
    fault: Fault | None = None
    subscriptions: list[tuple[str, str]] = []  # nobody subscribes, so nothing is ever added

    def __init__(self, name_peer: Callable[[bytes], Naming], on_closed: Callable[[], Any]) -> None:
        """``on_closed`` is called when the application has sent what closes the connection."""
        self._name_peer = name_peer
        self._on_closed = on_closed
        self._envelope = PLAIN
        self._begun = self._closed = False
        self.closed_here = False
        """Whether the application has closed the connection."""
        self._out: list[Buffer] = []

    def notification(self) -> Batch:
        """Return what the application gets when the peer has come, or has gone."""
        return batch_of([b""], self._envelope)

    def handle_timeout(self, now: float) -> None:
        """Begin: name the peer.  Nothing has a deadline."""
        if not self._begun:
            self._begun = True
            naming = self._name_peer(b"")
            self.peer_name = naming.peer
            self._envelope = Envelope(reply_to=naming.reply_to)

    def receive_data(self, data: Buffer, now: float) -> list[Batch]:
        """Return what has come as a message."""
        return [batch_of([bytes(data)], self._envelope)] if len(data) and not self._closed else []

    def receive_eof(self, now: float) -> None:
        """The peer has closed the wire."""
        self._closed = True

    def ready_to_send(self) -> bool:
        """Whether messages may be sent."""
        return self._begun and not self._closed

    def send_batches(self, batches: Sequence[Batch], now: float) -> None:
        """Send the bytes of messages.  Nothing follows a message of no bytes."""
        for batch in batches:
            for body in batch.bodies:
                # TCP has no messages, so the parts of one are only octets that follow each other.
                octets = b"".join(body) if batch.multipart else body
                if self.closed_here:
                    return
                if len(octets):
                    self._out.append(octets)
                else:
                    self.closed_here = True
                    self._on_closed()

    def data_to_send(self) -> list[Buffer]:
        """Return what has to be written now, once."""
        out, self._out = self._out, []
        return out

    def next_deadline(self) -> float | None:
        """Return None: there is nothing to wait for."""
        return None

    def confirm(self, count: int) -> None:
        """Do nothing: TCP has no confirmations."""

    def want_confirm(self) -> None:
        """Do nothing: TCP has no confirmations."""

    def confirmed(self) -> int | None:
        """Return None: a message counts as confirmed when the operating system has it."""
        return None

    def close(self, reason: str, now: float) -> None:
        """End the conversation."""
        self._closed = True

    def closed(self) -> bool:
        """Return whether the conversation has ended."""
        return self._closed

    def counters(self) -> dict[str, int]:
        """Return nothing: the host counts messages and bytes."""
        return {}

    def status(self) -> dict[str, str | int]:
        """Return what an operator wants to know of the peer."""
        return {"version": "none", "peer_type": "TCP", "subscriptions": 0}
