"""Dissectors: what ``kernel inspect`` asks to read a protocol in captured packets.  Sans-I/O, as protocols are.

A dissector hears both sides, speaks to neither, and may miss anything: captures begin in the middle, lose packets and
cut them off.  It raises nothing for bytes that make no sense, but says so in a line.  What it remembers is bounded,
whatever it is shown (``kernel.inspection`` has what helps: ``Latest``, ``Durations``, ``SequenceWatch``, ``FrameReader``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from typing import Protocol as Interface

import msgspec

CLIENT, SERVER = 0, 1
"""The two senders of a stream: who has connected, and who has listened."""


class Line(msgspec.Struct, frozen=True):
    """Something that was said: one line of output."""

    what: str
    """A packet's, frame's or method's name in its protocol's specification."""
    facts: Mapping[str, Any] = {}
    """What it says, by name, in the order to be shown; text, numbers, and lists or maps of them."""
    session: str = ""
    """Of a datagram: whose conversation it belongs to.  A stream has only one."""


class Datagram(msgspec.Struct, frozen=True, kw_only=True):
    """What was in an IP packet of the protocol's own number, or in UDP."""

    time: float
    """Seconds since the capture began."""
    source: str
    """Address."""
    destination: str
    source_port: int = 0
    """UDP's; 0 over IP itself."""
    destination_port: int = 0
    data: bytes
    cut: int = 0
    """Bytes at the end that were not captured."""


class DatagramDissector(Interface):
    """Reads all datagrams of a protocol, and finds out which belong together."""

    def receive(self, datagram: Datagram) -> Sequence[Line]:
        """Take the next datagram; return what it says."""
        ...

    def sessions(self) -> Mapping[str, Mapping[str, Any]]:
        """Return each session's figures by name; the names of all sessions are those of its ``Line.session``."""
        ...


class StreamDissector(Interface):
    """Reads one conversation over TCP.  ``sender`` is ``CLIENT`` or ``SERVER``."""

    def receive(self, sender: int, data: bytes, time: float) -> Sequence[Line]:
        """Take the sender's next bytes; return what they complete."""
        ...

    def lose(self, sender: int, count: int | None, time: float) -> Sequence[Line]:
        """Take notice that so many of the sender's next bytes were not captured.

        None: nobody knows how many, because the capture began after the conversation.
        """
        ...

    def figures(self) -> Mapping[str, Any]:
        """Return what is to be counted of the conversation, by name."""
        ...
