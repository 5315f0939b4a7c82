"""Consumers of a federation link: one for each federated exchange and queue, each on a channel of its own.

A consumer consumes while its messages are wanted here: for an exchange, while it exists here; for a queue,
while it is empty and has consumers.  Between that it is cancelled, and its channel stays open.

Two facts decide together whether it may begin: what is wanted, which the broker here reports, and whether
the queue upstream is declared, which the session knows.  ``look`` is called whenever one of them may have
changed, and does nothing if nothing follows.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from kernel.contracts.message import Envelope
from kernel.contracts.properties import changed
from plugins.engines.amqp_client.consumer import Consumer
from plugins.engines.amqp_client.inbound_buffer import UNWANTED
from plugins.engines.federation.trace import may_come, with_exchange_step, with_queue_step
from plugins.protocols.amqp091.events import Delivered
from plugins.protocols.amqp091.methods import basic
from plugins.protocols.amqp091.methods.method import Method
from plugins.protocols.amqp091.reply_codes import ReplyCode

if TYPE_CHECKING:
    from plugins.engines.federation.session import FederationSession

_ENVELOPES = 1024
"""How many envelopes are remembered in the form in which they are passed on.  A full table is cleared."""

LOW_PRIORITY = {"x-priority": -1}
"""The priority of a link's consumer: other consumers are served first, and brokers recognise a link by it."""


class LinkConsumer(Consumer):
    """Consumes a queue of the upstream while its messages are wanted."""

    session: FederationSession

    def __init__(
        self,
        session: FederationSession,
        channel: int,
        queue: str,
        name: str,
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        options = session.options
        super().__init__(
            session,
            channel,
            queue,
            prefetch=options.prefetch,
            no_ack=options.no_ack,
            arguments=arguments or {},
        )
        self._thing = name
        self._consuming = self._has_consumed = False
        """Whether it consumes now, and whether it has consumed since its channel was opened."""
        self._closing = False
        """Whether the channel was closed here and the server has not answered yet."""
        self._passed_on: dict[tuple[Envelope, bool], Envelope | None] = {}

    @property
    @abstractmethod
    def wanted(self) -> bool:
        """Whether messages are wanted now."""

    @abstractmethod
    def pass_on(self, envelope: Envelope, redelivered: bool) -> Envelope | None:
        """Return the envelope under which messages are passed on; None: they may not pass the link."""

    def deleted(self, queue: str) -> None:
        """A queue here was deleted."""

    def look(self) -> None:
        """Start or stop, if what is wanted has changed."""
        if not self.is_open or self.wanted == self._consuming:
            return
        # To consume from a queue that is not declared yet would cost the channel (404).  ``declared`` of the
        # session looks again.
        if not self._consuming and not self.session.is_there(self._queue):
            return
        self._consuming = not self._consuming
        if self._consuming:
            self._has_consumed = True
            super().opened()
        else:
            # Messages that the upstream has sent before it reads this are passed on all the same: at most the
            # prefetch.  Without an answer to wait for, the consumer may begin again at once.
            self.send(basic.Cancel(consumer_tag=self.tag, nowait=True))

    def start(self) -> None:
        """Open the channel again as soon as its close has been answered."""
        # Until then the number of the channel is in use (AMQP 0-9-1, channel.close-ok).  To open it would be
        # a fault that ends the connection.
        if not self._closing:
            super().start()

    def opened(self) -> None:
        """Start to consume, if messages are wanted and it does not consume yet."""
        # An earlier refusal is over if nothing is wanted any more.  Otherwise ``kernel status`` would show
        # the link as refused until the queue is consumed from again.
        if not self.wanted:
            self.refusal = ""
        self.look()

    def received(self, method: Method) -> None:
        """The server has confirmed the consumer, or has cancelled it."""
        if isinstance(method, basic.Cancel):
            self._consuming = False
        super().received(method)

    def delivered(self, event: Delivered) -> None:
        """Pass on messages that have arrived, under an envelope with one more step in its trace."""
        self.works()
        batch = event.batch
        # Envelopes are compared by identity.  A batch mostly has the envelope of the one before, so that the
        # headers are decoded and changed once for many batches.
        known = batch.envelope, event.redelivered
        if known not in self._passed_on:
            if len(self._passed_on) >= _ENVELOPES:
                self._passed_on.clear()
            self._passed_on[known] = self.pass_on(*known)
        envelope = self._passed_on[known]
        last = event.first_delivery_tag + len(batch.bodies) - 1
        if envelope is None:
            # Acknowledged in its turn and not at once: an acknowledgement covers all messages before it.
            self.session.stopped(len(batch.bodies))
            batch = UNWANTED
        else:
            batch = batch.under(envelope)
        self.session.inbound.arrived(self.subscription, last, batch)

    def _queue_gone(self) -> None:
        self.session.is_gone(self._queue)

    def lost(self) -> None:
        """The channel has ended."""
        super().lost()
        self._consuming = self._has_consumed = self._closing = False


class ExchangeConsumer(LinkConsumer):
    """Consumes the queue that the upstream keeps for a federated exchange."""

    @property
    def wanted(self) -> bool:
        """Whether the exchange exists here."""
        return self.session.federation.exchanges[self._thing] is not None

    def pass_on(self, envelope: Envelope, redelivered: bool) -> Envelope | None:
        """Return the envelope with one more step in its trace."""
        headers = _headers(envelope)
        session = self.session
        if not may_come(headers, session.here, session.options.max_hops):
            return None
        step = {
            **session.step(),
            "exchange": self._thing,
            "redelivered": redelivered,
            "cluster-name": session.upstream.cluster,
            "vhost": session.upstream.vhost,
        }
        return _changed(envelope, self._thing, envelope.key, with_exchange_step(headers, step))


class QueueConsumer(LinkConsumer):
    """Consumes a federated queue of the upstream."""

    @property
    def wanted(self) -> bool:
        """Whether the queue here is empty and a consumer has room."""
        state = self.session.federation.queues[self._thing]
        return state is not None and state.wants_more

    def deleted(self, queue: str) -> None:
        """A queue here was deleted.

        If it is this one, unacked messages go back to the queue of the upstream.
        """
        # Without acknowledgements the upstream has forgotten the messages: nothing can go back.
        if self.subscription.no_ack:
            return
        # The broker here confirms messages for a queue that does not exist, since nobody wants them.  If
        # these confirmations reached the upstream as acknowledgements, up to ``prefetch`` messages would be
        # lost.  ``lost`` ends the subscription, so that they are ignored.  Closing the channel makes the
        # upstream requeue what is unacknowledged.
        if queue == self._thing and self.is_open and self._has_consumed:
            self.lost()
            self._closing = True
            self.session.connection.close_channel(self.channel, ReplyCode.SUCCESS, "the queue is deleted")

    def pass_on(self, envelope: Envelope, redelivered: bool) -> Envelope:
        """Return the envelope with one more step in its trace, addressed to the queue.

        The exchange and key under which the message was published are kept in its headers.
        """
        step = {**self.session.step(), "queue": self._thing, "redelivered": redelivered}
        headers = with_queue_step(_headers(envelope), step, envelope.exchange, envelope.key)
        return _changed(envelope, "", self._thing, headers)


def _headers(envelope: Envelope) -> Mapping[str, Any]:
    return envelope.properties.get("headers") or {}


def _changed(envelope: Envelope, exchange: str, key: str, headers: Mapping[str, Any]) -> Envelope:
    # What came over AMQP is encoded here, once for this envelope, and not for each message that leaves the
    # broker here.
    before = _headers(envelope)
    new = {name: value for name, value in headers.items() if value is not before.get(name)}
    properties = changed(envelope.properties, headers=new, without=before.keys() - headers.keys())
    return msgspec.structs.replace(envelope, exchange=exchange, key=key, properties=properties)
