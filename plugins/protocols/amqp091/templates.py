"""Templates: the octets that all messages of one flow have in common.

Messages of a flow have the same method frame, except for the delivery tag, and the same content header,
except for the body size.  The first message of a flow is read and checked frame by frame.  For the next ones
it is enough to compare their octets with those of the first, which costs a tenth of reading them.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, NamedTuple, TypeVar

from kernel.contracts.message import Envelope
from plugins.protocols.amqp091.frames import BODY, END_OCTET, HEADER, frame_header

MAXIMUM_TEMPLATES = 1024
"""Entries of a table of templates."""
MAXIMUM_OCTETS = 4 << 20
"""Octets that the keys and properties in a table of templates may have together."""

_structs: dict[str, Struct] = {}


def cached_struct(layout: str) -> Struct:
    """Return the Struct of this layout from a cache: making one costs 1 us."""
    # Without a lock, although connections in several threads share the table: each step is one operation of a
    # dictionary, and an entry that is lost between two of them is made again.
    struct = _structs.get(layout)
    if struct is None:
        # Layouts depend on the lengths of keys and bodies, which peers choose.
        if len(_structs) > MAXIMUM_TEMPLATES:
            _structs.clear()
        struct = _structs[layout] = Struct(layout)
    return struct


Key = TypeVar("Key")
Value = TypeVar("Value")


class Bounded(dict[Key, Value]):
    """A table of templates.  It is cleared when it is full, which bounds the memory that a peer can use here.

    A peer chooses how many flows there are, and how large the properties of each are: up to frame_max.
    Clearing everything is simpler than finding the oldest entry, and what is in use comes back with its next
    message.
    """

    __slots__ = ("_octets",)

    def __init__(self) -> None:
        super().__init__()
        self._octets = 0

    def remember(self, key: Key, value: Value, octets: int) -> None:
        """Add an entry; ``octets`` is about what it takes in memory."""
        if len(self) >= MAXIMUM_TEMPLATES or self._octets + octets > MAXIMUM_OCTETS:
            self.clear()
        # What is replaced is not subtracted: the table is then cleared a little earlier.
        self._octets += octets
        self[key] = value

    def clear(self) -> None:
        """Remove all entries."""
        super().clear()
        self._octets = 0


class Template(NamedTuple):
    """One flow of basic.publish: its constant octets, and the layout of what lies between them.

    A message consists of: the method frame; ``header``, which is the content header up to the body size; the
    body size (8 octets); ``tail``, up to the size of the body frame; that size (4 octets); the body; 0xCE.

    It is a tuple because the inner loop unpacks it.  That costs a third of reading its attributes.
    """

    method: bytes
    header: bytes
    tail: bytes
    unpack_sizes: Callable[[bytes, int], tuple[Any, ...]]
    """Returns header, body size, tail and size of the body frame."""
    head_length: int
    """Octets of a message in front of its body."""
    channel: int
    mandatory: bool
    immediate: bool
    envelope: Envelope


def header_parts(channel: int, properties: bytes) -> tuple[bytes, bytes, Struct]:
    """Return ``header``, ``tail`` and the Struct of ``unpack_sizes`` for a template."""
    header = frame_header.pack(HEADER, channel, 12 + len(properties)) + b"\x00\x3c\x00\x00"
    tail = properties + END_OCTET + bytes((BODY,)) + channel.to_bytes(2, "big")
    # A content header counts class, weight and body size (12 octets) besides the properties.  The tail runs
    # into the next frame: the end octet of the header, and type and channel of the body frame.
    sizes = cached_struct(f">{len(header)}sQ{len(tail)}sI")
    return header, tail, sizes
