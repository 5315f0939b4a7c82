"""Reads basic.ack, basic.reject and basic.nack without decoding methods.

A consumer that acknowledges each message sends thousands of frames that differ only in the delivery tag.
Acknowledgements of consecutive tags become one event.  A frame that comes alone is recognized by its octets:
all three methods have a delivery tag and an octet of bits.
"""

from __future__ import annotations

from struct import Struct

from plugins.protocols.amqp091.events import Acknowledged, Event, Rejected
from plugins.protocols.amqp091.frames import END, METHOD, frame_header
from plugins.protocols.amqp091.methods import basic

ACK = b"\x00\x3c\x00\x50"
# The frame header with class and method id, which only the channel changes; the delivery tag; and two octets,
# the bit field and the frame end.
_frame = Struct(">11sQH")
_SINGLE, _MULTIPLE = 0x00CE, 0x01CE
"""The bit field and the frame end, read as one number."""
# The same octets in parts: frame type, channel, payload size, ids, delivery tag; bit field and frame end.
_fields = Struct(">BHIIQH")
_PAYLOAD = 13
"""Octets: the ids (4), the delivery tag (8) and the bit field (1)."""
FRAME_SIZE = _frame.size
"""Octets of a frame of basic.ack, and of the other two."""


def _of_one(method: basic.Ack | basic.Nack | basic.Reject) -> tuple[int, int]:
    """Return what stands in front of the tag of this method, and behind it, as numbers."""
    octets = method.encode()
    return int.from_bytes(octets[:4], "big"), octets[-1] << 8 | END


_REFUSED_ALONE = {
    _of_one(kind(delivery_tag=1, requeue=requeue)): (requeue, kind.method_id)
    for kind in (basic.Reject, basic.Nack)
    for requeue in (False, True)
}
"""Whether a message is queued again, and the id of the method."""
_ACKNOWLEDGED_ALONE = _of_one(basic.Ack(delivery_tag=1))


def acknowledgement_frame(channel: int, delivery_tag: int, multiple: bool) -> bytes:
    """Return a frame of basic.ack."""
    return _frame.pack(_head(channel), delivery_tag, _MULTIPLE if multiple else _SINGLE)


def _head(channel: int) -> bytes:
    return frame_header.pack(METHOD, channel, _PAYLOAD) + ACK


def read_alone(frame: bytes) -> Acknowledged | Rejected | None:
    """Return the event of ``FRAME_SIZE`` octets, if they are one of the three methods for one message.

    None otherwise.  Tag 0 and ``multiple`` are left to who reads frame by frame.
    """
    kind, channel, size, ids, tag, rest = _fields.unpack(frame)
    if kind != METHOD or size != _PAYLOAD or not tag:
        return None
    if (ids, rest) == _ACKNOWLEDGED_ALONE:
        return Acknowledged(channel, tag, tag, False)
    refused = _REFUSED_ALONE.get((ids, rest))
    return None if refused is None else Rejected(channel, tag, tag, False, *refused)


def read_acknowledgements(data: bytes, position: int, channel: int, events: list[Event]) -> int:
    """Read the well-formed acknowledgements of this channel; return the position behind them."""
    head = _head(channel)
    # A frame that is cut off at the end is left to the caller, which waits for the rest of it.
    whole = (len(data) - position) // _frame.size
    # The range of consecutive tags that is not reported yet.  ``first`` is 0 if there is none.
    first = last = 0
    for its_head, tag, rest in _frame.iter_unpack(
        memoryview(data)[position : position + whole * _frame.size]
    ):
        # Type, channel, payload size and ids in one comparison.  Another channel ends the batch, too: the
        # caller has checked the state of this channel only.
        if its_head != head:
            break
        # Tag 0 has a meaning only together with ``multiple``; it is reported alone, for the owner to judge.
        if rest == _SINGLE and tag:
            if tag == last + 1 and first:
                last = tag
            else:
                if first:
                    events.append(Acknowledged(channel, first, last, False))
                first = last = tag
        # A multiple acknowledgement must not be merged: it covers tags below its own.  What came before it is
        # reported first, to keep the order.
        elif rest in (_SINGLE, _MULTIPLE):
            if first:
                events.append(Acknowledged(channel, first, last, False))
                first = 0
            events.append(Acknowledged(channel, tag, tag, rest == _MULTIPLE))
        # Another bit, or a wrong frame end: the caller reads this frame alone, with all checks.
        else:
            break
        position += _frame.size
    if first:
        events.append(Acknowledged(channel, first, last, False))
    return position
