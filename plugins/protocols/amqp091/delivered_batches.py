"""DeliveredBatches: reads whole messages with basic.deliver, without reading their frames one by one.

It works as ``published_batches.py``, for the client.  The difference is the delivery tag in the middle of the
method frame: the key of a template is the frame without it.  A batch has consecutive tags, so that the first
one says all.  Where the tags have a gap, because messages of another consumer are between them, a new batch
begins.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Container
from struct import Struct
from typing import Any, NamedTuple, TypeAlias

from kernel.contracts.message import Batch, Envelope
from kernel.contracts.strides import count_while, cut, read_in_blocks
from plugins.protocols.amqp091.envelopes import Envelopes
from plugins.protocols.amqp091.errors import MalformedField
from plugins.protocols.amqp091.events import Delivered, Event
from plugins.protocols.amqp091.frames import END
from plugins.protocols.amqp091.tagged_frames import tagged_frames
from plugins.protocols.amqp091.templates import Bounded, cached_struct, header_parts
from plugins.protocols.amqp091.whole_content import read_whole_content

HEADER_LENGTH = 11
"""Octets of a content header frame in front of the body size."""

_frame_size = Struct(">I").unpack_from


Flow: TypeAlias = tuple[int, str, bool, Envelope]
"""Channel, consumer tag, redelivered, envelope: the same for all messages of a batch."""


class DeliveryTemplate(NamedTuple):
    """One flow of basic.deliver: its constant octets, and the layout of what lies between them."""

    before: bytes
    """The method frame in front of the delivery tag."""
    between: bytes
    """From behind the delivery tag to the body size in the content header."""
    tail: bytes
    """From behind the body size to the size of the body frame."""
    unpack: Callable[[bytes, int], tuple[Any, ...]]
    """Returns before, tag, between, body size, tail and body frame size: all that is in front of the body."""
    head_length: int
    """Octets of a message in front of its body."""
    flow: Flow


class DeliveredBatches:
    """Reads whole messages that a client receives."""

    def __init__(self, maximum_body_size: int, envelopes: Envelopes, incomplete: Container[int]) -> None:
        """``incomplete``: channels in the middle of a message, on which no new one may begin."""
        self._envelopes = envelopes
        self._incomplete = incomplete
        self.maximum_body_size = maximum_body_size
        self._templates: Bounded[bytes, DeliveryTemplate] = Bounded()
        self._expected = 0

    def forget(self) -> None:
        """Drop all templates, because a channel has ended: the templates do not check its state."""
        self._templates.clear()

    def learn(
        self, channel: int, frame: bytes, consumer_tag: str, redelivered: bool, envelope: Envelope, raw: bytes
    ) -> None:
        """Make a template from a message that was read and checked."""
        # Frame header (7), class and method id (4), and the consumer tag, which is a short string.
        tag_start = 12 + frame[11]
        before, rest = frame[:tag_start], frame[tag_start + 8 :]
        known = self._templates.get(before + rest)
        # The template is right already: the message came frame by frame for another reason, because the end
        # of a chunk has cut it, for example.
        if known is not None and known.flow[3] is envelope:
            return
        header, tail, _ = header_parts(channel, raw)
        between = rest + header
        whole = cached_struct(f">{len(before)}sQ{len(between)}sQ{len(tail)}sI")
        template = DeliveryTemplate(
            before,
            between,
            tail,
            whole.unpack_from,
            whole.size,
            (channel, consumer_tag, redelivered, envelope),
        )
        self._templates.remember(before + rest, template, len(frame) + len(raw))

    def read(self, data: bytes, position: int, events: list[Event]) -> int:  # noqa: C901 - an inner loop
        """Read whole messages from ``position`` on and add their events; return the position behind them."""
        end = len(data)
        template: DeliveryTemplate | None = None
        expected_tag = first_tag = last_size = -1
        bodies: list[bytes] = []
        total = width = 0
        # Twelve octets: the header of the frame, class and method id, and the length of the consumer tag.
        while position + 12 <= end:
            if template is None or not data.startswith(template.before, position):
                found = self._find(data, position)
                # The channel is checked only when the template changes: it cannot get into the middle of a
                # message here.
                if found is None or found.flow[0] in self._incomplete:
                    break
                if bodies and template is not None:
                    report_delivered(template.flow, first_tag, bodies, total, width, events)
                    bodies, total, width = [], 0, 0
                template = found
            body_start = position + template.head_length
            if body_start > end:
                break
            # One call returns everything in front of the body.  ``between`` has the exchange, the routing key
            # and the beginning of the content header; ``tail`` has the properties.
            _, tag, between, size, tail, frame_size = template.unpack(data, position)
            if between != template.between or tail != template.tail:
                # The same consumer but another key or other properties: look for the template of that flow.
                found = self._find(data, position)
                if found is None:
                    break
                report_delivered(template.flow, first_tag, bodies, total, width, events)
                bodies, total, width = [], 0, 0
                # The method frame is equal, only the content header differs.
                if found is template:
                    following = self._read_other_properties(template, data, position, tag, events)
                    if following == position:
                        break
                    position = following
                template = None
                continue
            stop = body_start + size
            if (
                size != frame_size
                or stop >= end
                or data[stop] != END
                or not 0 < size <= self.maximum_body_size
            ):
                break
            # An event has only its first tag, so the tags of a batch must be consecutive.
            if tag != expected_tag and bodies:
                report_delivered(template.flow, first_tag, bodies, total, width, events)
                bodies, total, width = [], 0, 0
            if not bodies:
                first_tag = tag
            if size != width:
                width = 0 if bodies else size
            bodies.append(data[body_start:stop])
            position = stop + 1
            expected_tag = tag + 1
            total += size
            # Two messages of a size in a row: try whether the next ones have it, too.
            if size == last_size:
                more = _read_stride(data, position, template, expected_tag, size, self._expected)
                self._expected = len(more)
                bodies += more
                total += size * len(more)
                position += len(more) * (template.head_length + size + 1)
                expected_tag += len(more)
            last_size = size
        if template is not None:
            report_delivered(template.flow, first_tag, bodies, total, width, events)
        return position

    def _read_other_properties(
        self, template: DeliveryTemplate, data: bytes, position: int, tag: int, events: list[Event]
    ) -> int:
        """Read one message with the template's method frame but another content header.

        If the envelope was seen before, it becomes the template.  Return the position behind the message, or
        ``position`` if it cannot be read here.
        """
        channel, consumer_tag, redelivered, before = template.flow
        # ``between`` ends with the content header in front of the body size, which is not part of the method
        # frame.
        header_start = position + len(template.before) + 8 + len(template.between) - HEADER_LENGTH
        content = read_whole_content(data, header_start, channel, self.maximum_body_size)
        if content is None:
            return position
        raw, body, following = content
        envelope = self._envelopes.find(before.exchange, before.key, raw)
        # As in ``PublishedBatches``: only properties that come a second time get the template.
        if envelope is not None:
            self.learn(channel, data[position:header_start], consumer_tag, redelivered, envelope, raw)
        else:
            try:
                envelope = self._envelopes.make(before.exchange, before.key, raw)
            except (MalformedField, IndexError, struct.error):
                return position
        flow = (channel, consumer_tag, redelivered, envelope)
        report_delivered(flow, tag, [body], len(body), len(body), events)
        return following

    def _find(self, data: bytes, position: int) -> DeliveryTemplate | None:
        if position + 12 > len(data):
            return None
        stop = position + 8 + _frame_size(data, position + 3)[0]
        # The delivery tag lies behind the consumer tag.  Without it the method frame is the same for the
        # whole flow.  If the data ends before the frame does, the slice is shorter and no template has it as
        # its key.
        tag_start = position + 12 + data[position + 11]
        return self._templates.get(data[position:tag_start] + data[tag_start + 8 : stop])


def report_delivered(
    flow: Flow, first_tag: int, bodies: list[bytes], total: int, width: int, events: list[Event]
) -> None:
    """Add messages to the last event if it is of the same flow and has the preceding tags, else add an event.

    ``total``: octets of all bodies.  ``width``: as in ``Batch``.
    """
    if not bodies:
        return
    channel, consumer_tag, redelivered, envelope = flow
    batch = Batch(bodies, total, envelope, False, width)
    if events:
        last = events[-1]
        if type(last) is Delivered and last.batch.envelope is envelope and last.channel == channel:
            same = last.consumer_tag == consumer_tag and last.redelivered == redelivered
            if same and last.first_delivery_tag + len(last.batch.bodies) == first_tag:
                last.batch.extend(batch)
                return
    events.append(Delivered(channel, consumer_tag, first_tag, redelivered, batch))


def _read_stride(
    data: bytes, position: int, template: DeliveryTemplate, tag: int, size: int, expected: int
) -> list[bytes]:
    """Return the bodies of the consecutive messages of the same flow and size, with tags from ``tag`` on.

    ``expected``: the number of messages to try first.
    """
    before = template.before
    behind = template.between + size.to_bytes(8, "big") + template.tail + size.to_bytes(4, "big")
    head = len(before) + 8 + len(behind)
    stride = head + size + 1
    bodies: list[bytes] = []
    # In mixed flows the next message differs already.
    if not data.startswith(behind, position + len(before) + 8):
        return bodies

    def estimate(done: int, count: int) -> int:
        # Each has the tag whose turn it is.
        start, first = position + done * stride, tag + done
        return count_while(
            lambda at: data.startswith(before + (first + at).to_bytes(8, "big"), start + at * stride), count
        )

    def take(done: int, count: int) -> int:
        start = position + done * stride
        some = cut(data, start, (head, size, 1), count)
        if data[start : start + count * stride] != tagged_frames(before, tag + done, behind, some, size):
            return 0
        bodies.extend(some)
        return count

    read_in_blocks((len(data) - position) // stride, stride, expected, estimate, take)
    return bodies
