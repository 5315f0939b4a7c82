"""Publisher: one stream of messages from a client into the broker; checks, routes and counts them.

Examples: an AMQP channel, a STOMP or MQTT connection, a beanstalkd connection, an application in this
process.
"""

from __future__ import annotations

import re

from kernel.contracts.message import Batch, Envelope
from kernel.contracts.mixed_batch import KeyedBatch
from plugins.engines.broker.dead_letters import headers_of
from plugins.engines.broker.host.confirms import Confirms
from plugins.engines.broker.host.feed import Feed
from plugins.engines.broker.host.users import Login, topic_refused
from plugins.engines.broker.routes import Route, copies_of
from plugins.engines.broker.virtual_host import VirtualHost

_MOST_ADMITTED = 256
"""Envelopes that a publisher remembers to have checked."""


class Publisher:
    """Publishes on behalf of one user into one virtual host.  Used by the broker's thread.

    A batch goes through ``admit`` and then ``publish``.  Set ``confirms`` to have messages numbered and
    counted; what can be confirmed is found with ``confirms.outcomes(feed.confirmed, vhost.store.safe)``.
    """

    def __init__(self, vhost: VirtualHost, login: Login, feed: Feed) -> None:
        self.vhost = vhost
        self.login = login
        self.feed = feed
        self.confirms: Confirms | None = None
        """None: the client wants no confirmation."""
        self._admitted: dict[Envelope, Envelope] = {}
        # Exchanges that are there and that this user may publish to.  A dict, since each channel has one and
        # an empty set takes three times as much memory.
        self._exchanges: dict[str, None] = {}
        self._topics: dict[str, re.Pattern[str]] | None = None
        """By exchange: what its keys have to match for this user; None: they are not
        limited at any of them."""
        self._admitted_at = 0

    def admit(self, envelope: Envelope) -> Envelope:
        """Return the envelope to publish under, or refuse an exchange that is not there or not for this user.

        Asked for each batch; ``check`` is for each envelope.
        """
        # Only exchanges and permissions decide, and a change of permissions counts as one of exchanges (an
        # import forgets all routes).  Bindings may change as often as they like.
        changes = self.vhost.routes.exchange_changes
        if self._admitted_at != changes:
            self.forget_admitted()
            self._admitted_at = changes
        admitted = self._admitted.get(envelope)
        if admitted is None:
            # By itself: with a key for each message every envelope is a new one, and the exchange the same.
            if envelope.exchange not in self._exchanges:
                self._check_exchange(envelope.exchange)
            if self._topics is not None:
                self._check_topics(self._topics, envelope)
            admitted = self.check(envelope)
            if len(self._admitted) >= _MOST_ADMITTED:
                self._admitted.clear()
            self._admitted[envelope] = admitted
        return admitted

    def check(self, envelope: Envelope) -> Envelope:
        """Return the envelope to publish under, or refuse it: what a protocol checks besides the exchange."""
        return envelope

    def _check_exchange(self, exchange: str) -> None:
        self.vhost.check_publish(exchange)
        self.login.require("write", "exchange", exchange, self.vhost.name)
        # The exchange that is there: ``check_publish`` has found it.
        pattern = self.login.topic_pattern("write", self.vhost.exchanges.get(exchange), self.vhost.name)
        if pattern is not None:
            self._topics = {**(self._topics or {}), exchange: pattern}
        self._exchanges[exchange] = None

    def _check_topics(self, topics: dict[str, re.Pattern[str]], envelope: Envelope) -> None:
        """Refuse keys that are not for this user."""
        pattern = topics.get(envelope.exchange)
        if pattern is not None:
            for key in (envelope.key, *copies_of(headers_of(envelope))):
                if not pattern.search(key):
                    raise topic_refused(key, envelope.exchange, self.vhost.name, self.login.name)

    def forget_admitted(self) -> None:
        """What ``check`` would answer has changed."""
        self._admitted.clear()
        self._exchanges.clear()
        self._topics = None

    def publish(
        self, batch: Batch, now: float, *, mandatory: bool = False, route: Route | None = None
    ) -> int:
        """Publish messages that were admitted; the routes of the topology get them, too.

        Return how many of the first were not refused by a full queue.

        ``mandatory``: ``on_unroutable`` is called if they go nowhere.  ``route``: it was found before (a
        transaction).
        """
        feed = self.feed
        wanted = feed.wanted
        accepted = self.vhost.publish(batch, now, route)
        if accepted is None:
            # No queue wants it.  A publisher with confirms gets an ack all the same, after basic.return if it
            # was mandatory: that is what RabbitMQ's documentation of confirms says.
            accepted = len(batch.bodies)
            # A message that a route of the topology lets pass has somewhere to go (decision 9).
            if mandatory and not feed.takes(batch.envelope):
                self.on_unroutable(batch)
        elif accepted < 0:
            # REPEATED: its publisher is to have its confirmation, and nobody the message.
            accepted, wanted = len(batch.bodies), ()
        # After the queues: an envelope that the store cannot write raises there, before a route has the
        # message.
        mark = feed.offer(batch) if wanted else 0
        if self.confirms is not None:
            # The store's mark covers everything that was given to it so far.  A persistent message that no
            # durable queue took waits for what others have given to the store.
            vhost, envelope = self.vhost, batch.envelope
            stored = envelope.persistent or (vhost.quorum_queues and vhost.reaches_quorum_queue(envelope))
            unsafe = vhost.store.mark if stored else 0
            self.confirms.add(len(batch.bodies), accepted, mark, unsafe)
        return accepted

    def publish_keyed(self, batch: KeyedBatch, now: float, *, mandatory: bool = False) -> bool:
        """Admit and publish messages that differ in their keys, if nothing has to be decided for single ones.

        False: nothing was done.  Admit and publish what ``batch.divided()`` returns.
        """
        envelope, vhost = batch.envelope, self.vhost
        # Before ``admit``, which would look at a key that no message has.
        exchange = vhost.exchanges.get(envelope.exchange)
        if self.feed.wanted or self.login.topic_pattern("write", exchange, vhost.name) is not None:
            return False
        if self.admit(envelope) is not envelope:
            return False
        if not vhost.publish_keyed(batch, now, mandatory=mandatory):
            return False
        if self.confirms is not None:
            count = len(batch.bodies)
            self.confirms.add(count, count, 0, vhost.store.mark if envelope.persistent else 0)
        return True

    def on_unroutable(self, batch: Batch) -> None:
        """Mandatory messages go nowhere: neither a queue nor a route wants them."""
