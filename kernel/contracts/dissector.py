"""Dissectors: what ``kernel inspect`` asks to read a protocol in captured packets.

Sans-I/O, as protocols are.

A dissector reads what both sides send.  Anything may be missing: captures begin in the middle of a
conversation, lose packets and cut them off.  A dissector does not raise for bytes that it cannot read, but
returns a line that says so. Its memory has to be bounded for any input (``Latest``, ``Durations``,
``SequenceWatch`` and ``FrameReader`` in ``kernel.inspection`` help with that).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from typing import Protocol as Interface

import msgspec

CLIENT, SERVER = 0, 1
"""The two senders of a stream: the side that has connected, and the side that listened."""


class Line(msgspec.Struct, frozen=True):
    """One line of output: a packet, frame or method that was sent."""

    what: str
    """The name of the packet, frame or method in the specification of its protocol."""
    # ``msgspec`` makes a new dictionary for each object, here and in all structs: nothing is shared.
    facts: Mapping[str, Any] = {}
    """Its fields by name, in the order of the output; text, numbers, and lists or maps of them."""
    session: str = ""
    """The conversation that a datagram belongs to.  Empty for a stream, which has only one."""


class Datagram(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a UDP datagram, or of an IP packet with the protocol's own number."""

    time: float
    """Seconds since the capture began."""
    source: str
    """Address."""
    destination: str
    source_port: int = 0
    """The UDP port; 0 directly over IP."""
    destination_port: int = 0
    data: bytes
    cut: int = 0
    """Bytes at the end that were not captured."""


class DatagramDissector(Interface):
    """Reads all datagrams of a protocol, and assigns them to sessions."""

    def receive(self, datagram: Datagram) -> Sequence[Line]:
        """Process the next datagram; return its lines."""
        ...

    def sessions(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the figures of each session, by the name that ``Line.session`` has."""
        ...


class StreamDissector(Interface):
    """Reads one conversation over TCP.  ``sender`` is ``CLIENT`` or ``SERVER``."""

    def receive(self, sender: int, data: bytes, time: float) -> Sequence[Line]:
        """Process the sender's next bytes; return the lines of what is now complete."""
        ...

    def lose(self, sender: int, count: int | None, time: float) -> Sequence[Line]:
        """Skip ``count`` bytes of the sender that were not captured; return lines about it.

        None: it is not known how many, because the capture began after the conversation.
        """
        ...

    def figures(self) -> Mapping[str, Any]:
        """Return the figures of the conversation by name."""
        ...
