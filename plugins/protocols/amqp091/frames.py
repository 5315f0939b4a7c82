"""Frames (section 4.2.3): seven octets of header, the payload, and one octet that must be 0xCE."""

from __future__ import annotations

from struct import Struct

from plugins.protocols.amqp091.methods import (
    access,
    basic,
    channel,
    confirm,
    connection,
    exchange,
    queue,
    tx,
)
from plugins.protocols.amqp091.methods.method import Method

METHOD = 1
HEADER = 2
BODY = 3
# The text of section 4.2.3 says 4.  The grammar (4.2.1), the constant frame-heartbeat and all peers have 8.
HEARTBEAT = 8
END = 0xCE
END_OCTET = b"\xce"
OVERHEAD = 8
"""The octets of a frame that are not payload."""

MINIMUM_FRAME_SIZE = 4096
"""No side may propose a lower limit (frame-min-size of the specification, and RabbitMQ's limit)."""
INITIAL_FRAME_SIZE = 8192
"""The limit until one is negotiated: connection.start-ok with its properties must fit."""

PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
ACCEPTED_HEADERS: dict[bytes, tuple[int, int]] = {
    PROTOCOL_HEADER: (0, 9),
    b"AMQP\x01\x01\x09\x01": (0, 9),
    b"AMQP\x01\x01\x00\x09": (0, 9),
    b"AMQP\x01\x01\x08\x00": (8, 0),
}
"""The protocol headers that RabbitMQ accepts, and the version that it then sends in connection.start."""

frame_header = Struct(">BHI")
HEARTBEAT_FRAME = b"\x08\x00\x00\x00\x00\x00\x00\xce"

# The key is the four octets with which the payload of a method frame begins, so that looking a method up
# needs no unpacking.
METHODS: dict[bytes, type[Method]] = {
    method.class_id.to_bytes(2, "big") + method.method_id.to_bytes(2, "big"): method
    for module in (connection, channel, access, exchange, queue, basic, confirm, tx)
    for method in module.METHODS
}
"""Class and method id, as on the wire, to the method."""


def method_frame(channel_number: int, payload: bytes) -> bytes:
    """Return the frame of a method with this payload."""
    return frame_header.pack(METHOD, channel_number, len(payload)) + payload + END_OCTET
