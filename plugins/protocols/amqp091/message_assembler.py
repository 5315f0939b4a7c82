"""MessageAssembler: puts messages together from single frames, with all checks.

This is the slow path.  Each message that is read here makes a template for the batch reader, which then reads
the following messages of the same flow.  So this path sees only the first message of a flow, messages that
the end of a buffer cuts in two, and messages with several body frames.
"""

from __future__ import annotations

import struct
from typing import Protocol as Interface

from kernel.contracts.message import Envelope, batch_of_one
from plugins.protocols.amqp091.channel import Channel
from plugins.protocols.amqp091.delivered_batches import DeliveredBatches, report_delivered
from plugins.protocols.amqp091.envelopes import Envelopes
from plugins.protocols.amqp091.errors import ConnectionFault, MalformedField
from plugins.protocols.amqp091.events import Event, Got, Returned
from plugins.protocols.amqp091.frames import HEADER, OVERHEAD
from plugins.protocols.amqp091.methods import basic
from plugins.protocols.amqp091.methods.method import Method
from plugins.protocols.amqp091.published_batches import PublishedBatches, report_published
from plugins.protocols.amqp091.reply_codes import ReplyCode
from plugins.protocols.amqp091.states import ContentState
from plugins.protocols.amqp091.templates import MAXIMUM_TEMPLATES

_BASIC = 60
_header = struct.Struct(">HHQ")


class BatchReader(Interface):
    """The interface that PublishedBatches and DeliveredBatches share."""

    maximum_body_size: int

    def forget(self) -> None: ...

    def read(self, data: bytes, position: int, events: list[Event]) -> int: ...


class MessageAssembler:
    """Assembles the messages of all channels of a connection.  There is a subclass for each side."""

    batch_ids: bytes
    """Class and method id of the messages that ``batches`` reads."""
    batches: BatchReader

    def __init__(self, maximum_body_size: int) -> None:
        self.maximum_body_size = maximum_body_size
        # A dictionary, which takes 64 bytes while it is empty, and a set 216: each connection has one.
        self.incomplete: dict[int, None] = {}
        """Channels on which a message is incomplete.  Their frames must not go to the batch reader."""
        self._envelopes = Envelopes()

    def limit_frames(self, frame_max: int) -> None:
        """Set the negotiated frame_max, in octets; 0: no limit."""
        # A batch reader reads only messages with one body frame, so the limit of a frame bounds them, too.
        # Frames that count their overhead wrong (see ``frame_end``) are larger; they come to this class.
        limit = frame_max - OVERHEAD if frame_max else 1 << 32
        self.batches.maximum_body_size = min(limit, self.maximum_body_size or limit)

    def known(self, frame: bytes) -> Method | None:
        """Return the decoded method of this frame if it is in the cache."""
        return None

    def begin(self, channel: Channel, method: Method, frame: bytes) -> None:
        """Expect the content of a method."""
        channel.begin_content(method, frame)
        self.incomplete[channel.number] = None

    def forget(self, channel: Channel) -> None:
        """The channel has ended: drop its incomplete message, and all templates."""
        channel.forget_content()
        self.incomplete.pop(channel.number, None)
        self.batches.forget()

    def frame(self, channel: Channel, kind: int, payload: bytes, events: list[Event]) -> str | None:
        """Process a header or body frame.

        Return None, or the reply text if the content is too large; the caller then closes the channel.
        """
        if kind != channel.content_state.value:
            # Section 4.2.6: the frames of a content come in order, and no other frame of the same channel
            # between them.
            raise channel.unexpected()
        if kind == HEADER:
            return self._header_frame(channel, payload, events)
        body = channel.add_body(payload)
        if body is not None:
            self._complete(channel, body, events)
        return None

    def _header_frame(self, channel: Channel, payload: bytes, events: list[Event]) -> str | None:
        if len(payload) < 14:
            raise ConnectionFault(ReplyCode.FRAME_ERROR, "a content header without its fixed fields")
        class_id, weight, size = _header.unpack_from(payload)
        if class_id != _BASIC or weight:
            # Section 4.2.6.1 has 501 for a class that is not the method's, and for a weight.  RabbitMQ
            # answers 505.
            if weight:
                raise channel.unexpected()
            raise channel.unexpected(
                f"expected content header for class 60, got one for class {class_id} instead"
            )
        # The header is enough to refuse the message: nothing of the body is kept.
        if self.maximum_body_size and size > self.maximum_body_size:
            return f"message size {size} is larger than configured max size {self.maximum_body_size}"
        # The properties are checked when the envelope is made.  Afterwards they are passed on as they are.
        raw = payload[12:]
        method = channel.method
        # These are all methods with a content.
        assert isinstance(method, basic.Publish | basic.Deliver | basic.GetOk | basic.Return)
        try:
            envelope = self._envelopes.make(method.exchange, method.routing_key, raw)
        except (MalformedField, IndexError, struct.error) as problem:
            text = f"content header: {problem}"
            raise ConnectionFault(ReplyCode.SYNTAX_ERROR, text, _BASIC, method.method_id) from problem
        channel.envelope = envelope
        channel.size = channel.remaining = size
        channel.content_state = ContentState.BODY
        # The template is made from method and header.  Whether the body is complete does not matter to it.
        self._learn(channel, method, envelope, raw)
        # The grammar (section 4.2.1) has ``*content-body``: a content without octets has no body frame.
        if size == 0:
            self._complete(channel, b"", events)
        return None

    def _complete(self, channel: Channel, body: bytes, events: list[Event]) -> None:
        method, envelope = channel.method, channel.envelope
        assert method is not None
        assert envelope is not None
        channel.forget_content()
        self.incomplete.pop(channel.number, None)
        self._report(channel.number, method, envelope, body, events)

    def _learn(self, channel: Channel, method: Method, envelope: Envelope, raw: bytes) -> None:
        raise NotImplementedError

    def _report(
        self, channel: int, method: Method, envelope: Envelope, body: bytes, events: list[Event]
    ) -> None:
        raise NotImplementedError


class ServerAssembler(MessageAssembler):
    """For a server, which receives basic.publish."""

    batch_ids = b"\x00\x3c\x00\x28"

    def __init__(self, maximum_body_size: int) -> None:
        super().__init__(maximum_body_size)
        self.batches: PublishedBatches = PublishedBatches(maximum_body_size, self._envelopes, self.incomplete)
        self._methods: dict[bytes, Method] = {}

    def known(self, frame: bytes) -> Method | None:
        # Only a server has this cache: a publisher repeats its method frame, whereas each basic.deliver has
        # another delivery tag.
        return self._methods.get(frame)

    def _learn(self, channel: Channel, method: Method, envelope: Envelope, raw: bytes) -> None:
        assert isinstance(method, basic.Publish)
        frame = channel.method_frame
        if len(self._methods) >= MAXIMUM_TEMPLATES:
            self._methods.clear()
        self._methods[frame] = method
        self.batches.learn(channel.number, frame, method.mandatory, method.immediate, envelope, raw)

    def _report(
        self, channel: int, method: Method, envelope: Envelope, body: bytes, events: list[Event]
    ) -> None:
        assert isinstance(method, basic.Publish)
        batch = batch_of_one(body, envelope)
        report_published(channel, method.mandatory, method.immediate, batch, events)


class ClientAssembler(MessageAssembler):
    """For a client, which receives basic.deliver, basic.get-ok and basic.return."""

    batch_ids = b"\x00\x3c\x00\x3c"

    def __init__(self, maximum_body_size: int) -> None:
        super().__init__(maximum_body_size)
        self.batches: DeliveredBatches = DeliveredBatches(maximum_body_size, self._envelopes, self.incomplete)

    def _learn(self, channel: Channel, method: Method, envelope: Envelope, raw: bytes) -> None:
        # basic.get-ok and basic.return are rare, so they have no templates.
        if isinstance(method, basic.Deliver):
            tag, frame = method.consumer_tag, channel.method_frame
            self.batches.learn(channel.number, frame, tag, method.redelivered, envelope, raw)

    def _report(
        self, channel: int, method: Method, envelope: Envelope, body: bytes, events: list[Event]
    ) -> None:
        if isinstance(method, basic.Deliver):
            flow = (channel, method.consumer_tag, method.redelivered, envelope)
            report_delivered(flow, method.delivery_tag, [body], len(body), len(body), events)
            return
        batch = batch_of_one(body, envelope)
        if isinstance(method, basic.GetOk):
            got = (method.delivery_tag, method.redelivered, method.message_count)
            events.append(Got(channel, *got, batch))
        elif isinstance(method, basic.Return):
            events.append(Returned(channel, method.reply_code, method.reply_text, batch))
