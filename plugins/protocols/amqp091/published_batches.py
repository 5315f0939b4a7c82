"""PublishedBatches: reads whole messages with basic.publish, without reading their frames one by one.

How it works:

1. The octets of a method frame are the key of a template (``templates.py``).  If there is one, the content
   header and the header of the body frame are compared with it.  Nothing is decoded.
2. Consecutive messages of one template go into one batch.
3. When two messages in a row have the same size, the next ones probably have it, too.  ``_read_stride`` then
   cuts the rest of the buffer at equal distances, in C, and verifies a whole block with one comparison of
   memory.

The reader stops at the first message that is not exactly as expected: it is incomplete, has several body
frames, is of an unknown flow, or is malformed.  The caller reads that message frame by frame
(``message_assembler.py``), which either makes a new template or finds the error.  So all checks exist only
once, there.

Measured (100 octets, Python 3.11, two shared cores; pamqp took 10 us in the same minute): 0.06 us a
message in equal batches, 0.47 with one key and mixed sizes, 0.85 with 50 keys and sizes mixed, 3.1 with
properties of its own for each message.  ``benchmarks/scenarios/amqp_codec.py`` measures all of them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Container
from struct import Struct
from typing import Any

from kernel.contracts.message import PLAIN, Batch, Envelope, batch_of_one
from kernel.contracts.mixed_batch import KeyedBatch
from kernel.contracts.strides import count_repeats, cut, read_in_blocks
from plugins.protocols.amqp091.envelopes import Envelopes
from plugins.protocols.amqp091.errors import MalformedField
from plugins.protocols.amqp091.events import Event, Published, PublishedUnderKeys
from plugins.protocols.amqp091.frames import END, END_OCTET
from plugins.protocols.amqp091.keyed_batches import KeyedBatches
from plugins.protocols.amqp091.templates import Bounded, Template, header_parts
from plugins.protocols.amqp091.whole_content import read_whole_content

_frame_size = Struct(">I").unpack_from

_SHORT = 3
"""Messages of a batch after which the next one may as well have another key, and so on."""
_LEFT_ALONE = 32
"""Changes of the template for which the reader of keyed batches is not asked after it could do nothing."""


class PublishedBatches:
    """Reads whole messages that a server receives."""

    def __init__(self, maximum_body_size: int, envelopes: Envelopes, incomplete: Container[int]) -> None:
        """``incomplete``: channels in the middle of a message, on which no new one may begin."""
        self._envelopes = envelopes
        self._incomplete = incomplete
        self.maximum_body_size = maximum_body_size
        """Octets of the largest body that is read here."""
        self._templates: Bounded[bytes, Template] = Bounded()
        self._last: Template | None = None
        """The template that was made last: the next unknown method frame may differ from
        its in the key only."""
        self._expected = 0
        """Length of the last stride.  In a steady flow the next one is about as long."""
        self._keyed: KeyedBatches | None = None
        """Reads messages that differ in their keys; None: the owner has not said that it
        accepts keyed batches."""
        self._left_alone = 0

    def accept_keyed(self) -> None:
        """From now on report messages under different keys as ``PublishedUnderKeys``.

        Where there are several.
        """
        self._keyed = KeyedBatches(self._envelopes)

    def forget(self) -> None:
        """Drop all templates, because a channel has ended: the templates do not check its state."""
        self._templates.clear()
        self._last = None
        if self._keyed is not None:
            self._keyed.forget()

    def learn(
        self, channel: int, frame: bytes, mandatory: bool, immediate: bool, envelope: Envelope, raw: bytes
    ) -> None:
        """Make a template from a message that was read and checked."""
        # ``frame`` is the key, so a channel, exchange and routing key have one template at a time: that of
        # the properties that came last or were seen before.
        known = self._templates.get(frame)
        if known is not None and known.envelope is envelope:
            # The client writes each frame separately, so that every message comes to the slow path.
            return
        header, tail, sizes = header_parts(channel, raw)
        template = Template(
            method=frame,
            header=header,
            tail=tail,
            unpack_sizes=sizes.unpack_from,
            head_length=len(frame) + sizes.size,
            channel=channel,
            mandatory=mandatory,
            immediate=immediate,
            envelope=envelope,
        )
        self._templates.remember(frame, template, len(frame) + len(raw))
        self._last = template

    def _under_another_key(self, data: bytes, position: int) -> Template | None:
        """Make a template of the method frame at ``position`` if it is the last one with another key.

        None: it is another frame, or incomplete.  For feeds in which every message has a key of its own: to
        read their messages frame by frame takes five times as long.
        """
        last = self._last
        if last is None:
            return None
        method = last.method
        # Type and channel; size; class, method and ticket; the exchange; the key; the flags;
        # the end of the frame.
        start = 14 + method[13]
        key_at = position + start + 1
        if key_at > len(data):
            return None
        stop = key_at + data[key_at - 1]
        if (
            stop + 2 > len(data)
            or data[position : position + 3] != method[:3]
            or data[position + 7 : position + start] != method[7:start]
            or _frame_size(data, position + 3)[0] != stop + 1 - (position + 7)
            or data[stop : stop + 2] != method[-2:]
        ):
            return None
        key = data[key_at:stop].decode("utf-8", "surrogateescape")
        raw = last.tail[:-4]  # what follows the properties is that of ``header_parts``
        envelope = self._envelopes.under_another_key(last.envelope, key, raw)
        frame = data[position : stop + 2]
        template = Template(
            frame,
            last.header,
            last.tail,
            last.unpack_sizes,
            last.head_length - len(method) + len(frame),
            last.channel,
            last.mandatory,
            last.immediate,
            envelope,
        )
        self._templates.remember(frame, template, len(frame) + len(raw))
        return template

    def read(self, data: bytes, position: int, events: list[Event]) -> int:  # noqa: C901 - an inner loop
        """Read whole messages from ``position`` on and add their events; return the position behind them."""
        # One long function, because it is the inner loop of a server: a call costs a tenth of a message.
        #
        # ``steady``: the last message was of ``template``, so the next one probably begins with ``method``.
        # ``reported``: the last event is of this call and of another template.  The next batch cannot extend
        # it.
        end = len(data)
        starts = data.startswith
        find = self._templates.get
        maximum = self.maximum_body_size
        bodies: list[bytes] = []
        total = width = 0
        append = events.append
        steady = False
        reported = False
        last_size = -1
        template: Template | None = None
        method = header = tail = b""
        channel = head_length = 0
        mandatory = immediate = False
        envelope = PLAIN
        unpack: Callable[[bytes, int], tuple[Any, ...]] = _frame_size
        keyed = self._keyed
        while True:
            if not (steady and starts(method, position)):
                # The key of a template is the whole method frame, so type, channel and arguments are compared
                # with one look-up.
                if position + 7 > end:
                    break
                found = find(data[position : position + 8 + _frame_size(data, position + 3)[0]])
                if (
                    keyed is not None
                    and template is not None
                    and found is not template
                    and len(bodies) <= _SHORT
                ):
                    # Few messages had the key before, and this one has another, maybe.
                    if self._left_alone:
                        self._left_alone -= 1
                    else:
                        batch = Batch(bodies, total, envelope, False, width)
                        following = self._read_keyed(keyed, template, data, position, batch, events)
                        if following != position:
                            # All that was read is reported.
                            position = following
                            template, reported, bodies, total, width, last_size = None, False, [], 0, 0, -1
                            continue
                if found is None:
                    found = self._under_another_key(data, position)
                steady = found is template
                # If the last message was of the same template, its channel was not in the middle of a
                # message.
                if found is None or (not steady and found.channel in self._incomplete):
                    break
                # Another flow begins: report the messages before it.
                if not steady:
                    if reported:
                        append(
                            Published(
                                channel, mandatory, immediate, Batch(bodies, total, envelope, False, width)
                            )
                        )
                    elif bodies:
                        batch = Batch(bodies, total, envelope, False, width)
                        report_published(channel, mandatory, immediate, batch, events)
                        reported = True
                    template = found
                    method, header, tail, unpack, head_length, channel, mandatory, immediate, envelope = found
                    bodies = []
                    total = width = 0
                    last_size = -1
            body_start = position + head_length
            if body_start > end:
                # A message with shorter properties may still be whole.  It is then read frame by frame.
                break
            # The body size stands twice, in the content header and in the header of the body frame.  They are
            # equal if the body has one frame.  Everything else in front of the body is compared with the
            # template.
            its_header, size, its_tail, frame_size = unpack(data, position + len(method))
            stop = body_start + size
            # The tail has the properties, in which messages of one method frame most probably differ.
            if its_tail != tail or its_header != header or size != frame_size:
                batch = Batch(bodies, total, envelope, False, width)
                following = self._read_other_properties(template, data, position, batch, events)
                if following == position:
                    break
                position = following
                # The messages so far are reported, and ``learn`` may have replaced the template: begin anew.
                template, steady, reported, bodies, total, width, last_size = None, False, False, [], 0, 0, -1
                continue
            # Incomplete, malformed or too large: the caller reads it frame by frame.  An empty body has no
            # body frame, so what looks like one belongs to the next message.
            if stop >= end or data[stop] != END or not 0 < size <= maximum:
                break
            # ``width`` is the size that all bodies of the batch have, 0 as soon as two differ.
            if size != width:
                width = 0 if bodies else size
            bodies.append(data[body_start:stop])
            total += size
            # Two of a size in a row: try a stride.  It takes all that follow, so the message behind it
            # differs or is incomplete, and there is no last size to compare with.
            if size == last_size:
                # The prefix has the size in it, so equal prefixes mean equal strides.
                more = _read_stride(data, stop + 1, data[position:body_start], size, self._expected)
                self._expected = len(more)
                bodies += more
                total += size * len(more)
                position = stop + 1 + len(more) * (head_length + size + 1)
                last_size = -1
            else:
                position = stop + 1
                last_size = size
        if bodies:
            batch = Batch(bodies, total, envelope, False, width)
            report_published(channel, mandatory, immediate, batch, events)
        return position

    def read_alone(self, data: bytes) -> Published | None:
        """Return the message that ``data`` consists of, if it is one of a known flow.

        There are seven octets at least.  It is what ``read`` does, in half the time.
        """
        template = self._templates.get(data[: 8 + _frame_size(data, 3)[0]])
        if template is None:
            return None
        method, header, tail, unpack, head_length, channel, mandatory, immediate, envelope = template
        stop = len(data) - 1
        if head_length >= stop:
            return None
        its_header, size, its_tail, frame_size = unpack(data, len(method))
        if (
            head_length + size != stop
            or size != frame_size
            or its_tail != tail
            or its_header != header
            or data[stop] != END
            or size > self.maximum_body_size
            or channel in self._incomplete
        ):
            return None
        batch = Batch([data[head_length:stop]], size, envelope, False, size)
        return Published(channel, mandatory, immediate, batch)

    def _read_keyed(
        self,
        keyed: KeyedBatches,
        template: Template,
        data: bytes,
        position: int,
        before: Batch,
        events: list[Event],
    ) -> int:
        """Read messages that differ from those of ``template`` in their keys only.

        Return the position behind them.

        ``before``: messages of the template that were read and not reported yet; they are reported first,
        if others are found.
        """
        batch, following = keyed.read(data, position, template, self.maximum_body_size)
        if batch is None or len(batch.bodies) <= _SHORT:
            self._left_alone = _LEFT_ALONE
            if batch is None:
                return position
        channel, mandatory, immediate = template.channel, template.mandatory, template.immediate
        if before.bodies:
            report_published(channel, mandatory, immediate, before, events)
        if type(batch) is KeyedBatch:
            events.append(PublishedUnderKeys(channel, mandatory, immediate, batch))
        else:
            report_published(channel, mandatory, immediate, batch, events)
        return following

    def _read_other_properties(
        self,
        template: Template | None,
        data: bytes,
        position: int,
        before: Batch,
        events: list[Event],
    ) -> int:
        """Read one message with the template's method frame but another content header.

        ``before``: messages that were read and not reported yet; they are reported first.  If the envelope
        was seen before, it becomes the template.  Return the position behind the message, or ``position`` if
        it cannot be read here.
        """
        if template is None:
            return position
        channel, mandatory, immediate = template.channel, template.mandatory, template.immediate
        content = read_whole_content(data, position + len(template.method), channel, self.maximum_body_size)
        if content is None:
            return position
        raw, body, following = content
        exchange, key = template.envelope.exchange, template.envelope.key
        envelope = self._envelopes.find(exchange, key, raw)
        # Properties that come a second time will probably come again, so they get the template.  Those that
        # come once, as correlation ids do, must not replace it.
        if envelope is not None:
            self.learn(channel, template.method, mandatory, immediate, envelope, raw)
        else:
            try:
                envelope = self._envelopes.make(exchange, key, raw)
            except (MalformedField, IndexError, struct.error):
                # The slow path decodes them again, and reports the error.
                return position
        if before.bodies:
            report_published(channel, mandatory, immediate, before, events)
        batch = batch_of_one(body, envelope)
        report_published(channel, mandatory, immediate, batch, events)
        return following


def report_published(
    channel: int, mandatory: bool, immediate: bool, batch: Batch, events: list[Event]
) -> None:
    """Add messages to the last event if it is of the same flow, else add an event."""
    if events:
        # The messages of one flow come in several pieces if the batch reader and the slow path take turns.
        # The owner should see one batch all the same.
        last: Any = events[-1]
        same = type(last) is Published and last.batch.envelope is batch.envelope and last.channel == channel
        if same and last.mandatory == mandatory and last.immediate == immediate:
            last.batch.extend(batch)
            return
    events.append(Published(channel, mandatory, immediate, batch))


def _read_stride(data: bytes, position: int, prefix: bytes, size: int, expected: int) -> list[bytes]:
    """Return the bodies of the consecutive messages that have the same ``prefix`` and body size.

    ``expected``: the number of messages to try first.
    """
    # Prefix, body and end octet.
    stride = len(prefix) + size + 1
    separator = END_OCTET + prefix
    bodies: list[bytes] = []

    def estimate(done: int, count: int) -> int:
        return count_repeats(data, position + done * stride, prefix, stride, count)

    def take(done: int, count: int) -> int:
        start = position + done * stride
        stop = start + count * stride
        some = cut(data, start, (len(prefix), size, 1), count)
        ends_well = data.startswith(prefix, start) and data[stop - 1] == END
        # The slice of ``data`` is a copy, because comparing a memoryview goes octet by octet.
        if not ends_well or data[start + len(prefix) : stop - 1] != separator.join(some):
            return 0
        bodies.extend(some)
        return count

    read_in_blocks((len(data) - position) // stride, stride, expected, estimate, take)
    return bodies
