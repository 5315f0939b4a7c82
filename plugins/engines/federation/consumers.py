"""Consumers of a federation link: one for each federated exchange and queue.

They stop while nothing is wanted here.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from kernel.contracts.message import Envelope
from plugins.engines.amqp_client.consumer import Consumer
from plugins.engines.amqp_client.inbound_buffer import UNWANTED
from plugins.engines.federation.trace import may_come, with_exchange_step, with_queue_step
from plugins.protocols.amqp091.content import ContentProperties
from plugins.protocols.amqp091.events import Delivered
from plugins.protocols.amqp091.methods import basic
from plugins.protocols.amqp091.methods.method import Method
from plugins.protocols.amqp091.reply_codes import ReplyCode

if TYPE_CHECKING:
    from plugins.engines.federation.session import FederationSession

_ENVELOPES = 1024
"""Envelopes that are remembered in the form in which they are handed on; the table is emptied when it is
full."""

LOW_PRIORITY = {"x-priority": -1}
"""The priority of a link's consumer: local consumers are served first, and a broker can tell a link by it."""


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
        self._closing = False
        """Whether the channel was closed here and the server has not answered yet."""
        self._passed_on: dict[tuple[Envelope, bool], Envelope | None] = {}

    @property
    @abstractmethod
    def wanted(self) -> bool:
        """Whether messages are wanted now."""

    @abstractmethod
    def pass_on(self, envelope: Envelope, redelivered: bool) -> Envelope | None:
        """Return the envelope under which messages are handed on; None: they may not pass the link."""

    def deleted(self, queue: str) -> None:
        """A queue here was deleted."""

    def look(self) -> None:
        """Start or stop, if what is wanted has changed."""
        if not self.is_open or self.wanted == self._consuming:
            return
        if not self._consuming and not self.session.is_there(self._queue):
            return
        self._consuming = not self._consuming
        if self._consuming:
            self._has_consumed = True
            super().opened()
        else:
            self.send(basic.Cancel(consumer_tag=self.tag, nowait=True))

    def start(self) -> None:
        """Open the channel again as soon as its close has been answered."""
        if not self._closing:
            super().start()

    def opened(self) -> None:
        """Start to consume, if messages are wanted and it does not consume yet."""
        if not self.wanted:
            self.refusal = ""  # nothing is asked for, so nothing is refused
        self.look()

    def received(self, method: Method) -> None:
        """The server has confirmed the consumer, or has cancelled it."""
        if isinstance(method, basic.Cancel):
            self._consuming = False
        super().received(method)

    def delivered(self, event: Delivered) -> None:
        """Messages have arrived: hand them on."""
        self.works()
        batch = event.batch
        known = batch.envelope, event.redelivered
        if known not in self._passed_on:
            if len(self._passed_on) >= _ENVELOPES:
                self._passed_on.clear()
            self._passed_on[known] = self.pass_on(*known)
        envelope = self._passed_on[known]
        last = event.first_delivery_tag + len(batch.bodies) - 1
        if envelope is None:
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
        """Whether the queue here is empty and has consumers."""
        state = self.session.federation.queues[self._thing]
        return state is not None and state.wants_more

    def deleted(self, queue: str) -> None:
        """A queue here was deleted.

        If it is this one, unacked messages go back to the queue of the upstream.
        """
        if self.subscription.no_ack:
            return  # without acknowledgements the upstream has forgotten them: nothing can go back
        if queue == self._thing and self.is_open and self._has_consumed:
            self.lost()
            self._closing = True
            self.session.connection.close_channel(self.channel, ReplyCode.SUCCESS, "the queue is deleted")

    def pass_on(self, envelope: Envelope, redelivered: bool) -> Envelope:
        """Return the envelope with one more step in its trace, addressed to the queue whatever exchange it came from."""
        step = {**self.session.step(), "queue": self._thing, "redelivered": redelivered}
        headers = with_queue_step(_headers(envelope), step, envelope.exchange, envelope.key)
        return _changed(envelope, "", self._thing, headers)


def _headers(envelope: Envelope) -> Mapping[str, Any]:
    return envelope.properties.get("headers") or {}


def _changed(envelope: Envelope, exchange: str, key: str, headers: Mapping[str, Any]) -> Envelope:
    properties = ContentProperties.of({**envelope.properties, "headers": headers})
    return msgspec.structs.replace(envelope, exchange=exchange, key=key, properties=properties)
