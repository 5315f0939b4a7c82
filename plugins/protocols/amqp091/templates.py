"""Templates: what the frames of one flow of messages have in common, and how to compare with it.

Messages of a flow have byte-equal method frames (but for the delivery tag) and byte-equal content
headers (but for the body size).  Once such a message has been read with all its checks, its bytes are
the check for the next one: comparing costs a tenth of reading.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, NamedTuple

from kernel.contracts.message import Envelope
from plugins.protocols.amqp091.frames import BODY, END_OCTET, HEADER, frame_header

MAXIMUM_TEMPLATES = 1024
"""A peer with more flows than this starts over; it bounds what a peer can make us keep."""

_structs: dict[str, Struct] = {}


def cached_struct(layout: str) -> Struct:
    """Return the Struct of this layout; making one costs 1 us."""
    struct = _structs.get(layout)
    if struct is None:
        if len(_structs) > MAXIMUM_TEMPLATES:
            _structs.clear()
        struct = _structs[layout] = Struct(layout)
    return struct


class Template(NamedTuple):
    """One flow of basic.publish: the constant octets, and the layout of the octets between them.

    A message is its method frame, the content header up to the body size (``header``), the body size
    (8 octets), ``tail`` up to the size of the body frame, that size (4 octets), the body and 0xCE.
    A tuple, because the inner loop takes it apart for each message: a third of the cost of attributes.
    """

    method: bytes
    header: bytes
    tail: bytes
    unpack_sizes: Callable[[bytes, int], tuple[Any, ...]]
    """Gives header, body size, tail and size of the body frame."""
    head_length: int
    """The octets of all that precedes the body."""
    channel: int
    mandatory: bool
    immediate: bool
    envelope: Envelope


def header_parts(channel: int, properties: bytes) -> tuple[bytes, bytes, Struct]:
    """Return header, tail and sizes of a template."""
    header = frame_header.pack(HEADER, channel, 12 + len(properties)) + b"\x00\x3c\x00\x00"
    tail = properties + END_OCTET + bytes((BODY,)) + channel.to_bytes(2, "big")
    sizes = cached_struct(f">{len(header)}sQ{len(tail)}sI")
    return header, tail, sizes
