"""Session: what a client and the broker know of each other (MQTT 5.0, 4.1).  It may outlive connections.

A session has subscriptions, messages on their way in both directions, and a will.  ``client`` is its
connection, or None.  ``Sessions`` finds it again by the client identifier.

Three sorts of subscriptions (decision 31)
    *Live* ones have QoS 0 and end with their connection: an entry in the sink of the virtual host, without a
    queue.  *Own* ones bind the session's queue, ``mqtt.session.CLIENT``, which the session reads with one
    consumer.  *Shared* ones bind a queue that several sessions read.  ``Outgoing`` has
    what comes from queues.

Who calls what
    The connection calls ``attach`` when it is accepted and ``detach`` when it is over, and in between
    ``subscribe`` and ``unsubscribe``.  Timers call ``end`` and ``_on_will_due``.  After a restart of the
    broker ``Sessions`` calls ``restore`` for each description, before the listeners open, then
    ``wait_again``.  All of that is in the broker's thread.

Invariants
    1.  The disk has the description of a durable session before the client is told of what it describes.  It
        is written once a turn (``is_undescribed``).
    2.  The will is published once at most: who publishes it takes it out of ``_will`` before.
    3.  Timers run only while there is no connection.
    4.  A session ends once (``ended``), in an order that a crash may interrupt: what is left then gives no
        message to anybody who must not have it.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from itertools import chain
from typing import TYPE_CHECKING, Any

from plugins.engines.broker.public import Consumer, Login, Queue, Timer, VirtualHost
from plugins.engines.mqtt.durable import (
    Begun,
    DescribedSubscription,
    DescribedWill,
    Description,
    Received,
    Released,
)
from plugins.engines.mqtt.outgoing import Outgoing
from plugins.engines.mqtt.retained import Retained
from plugins.engines.mqtt.subscriptions import Delivery, LiveSubscriptions, Subscribed
from plugins.protocols.mqtt.messages import PUBLISHER, retained_copy
from plugins.protocols.mqtt.packets import Subscription, Will
from plugins.protocols.mqtt.reason_codes import ReasonCode
from plugins.protocols.mqtt.topics import topic_to_key

if TYPE_CHECKING:
    from plugins.engines.mqtt.client import MqttClient
    from plugins.engines.mqtt.sender import Sender
    from plugins.engines.mqtt.sessions import Sessions

FOR_EVER = 0xFFFF_FFFF
"""The session expiry interval of a session that does not expire (MQTT 5.0, 3.1.2.11.2)."""
_LONGEST_QUEUE_NAME = 255
"""Octets: AMQP clients could not name a queue with a longer one."""


class Session:
    """The state of one client identifier in one virtual host."""

    def __init__(
        self,
        sessions: Sessions,
        vhost: VirtualHost,
        live: LiveSubscriptions,
        client_id: str,
        *,
        durable: bool,
        most_subscriptions: int,
    ) -> None:
        """``durable``: it outlives its connection, and the broker."""
        self.vhost = vhost
        self.client_id = client_id
        self.client: MqttClient | None = None
        self.sender: Sender | None = None
        self.durable = durable
        self.outgoing: Outgoing | None = None
        """What it is sent from queues; made by ``begin_outgoing``: many clients only publish."""
        self.unreleased: Received | None = None
        """``received``, if it was asked for; None: a client that publishes nothing with QoS 2 needs none."""
        self._limit = 1
        self.expiry = 0
        """Seconds that it is kept without a connection."""
        self.subscriptions: dict[str, Subscribed] = {}
        self.no_local = 0
        """How many subscriptions do not want what this client publishes."""
        self.is_undescribed = False
        """Whether the subscriptions have changed since they were written to disk."""
        self._changed: set[str] | None = None
        """The names of those that have; None: none has."""
        self.ended = False
        self._sessions = sessions
        self._live = live
        self.exchange = live.exchange
        self._most_subscriptions = most_subscriptions
        self._queue: Queue | None = None
        self.retained: dict[str, tuple[Subscribed, Iterator[Retained | None]]] = {}
        """Retained messages that wait to be sent for new subscriptions, by the names of these."""
        self._will: tuple[Will, Login] | None = None
        self._left_at = 0.0
        """The time of day at which its connection was lost; 0: it has one."""
        # Made when they are needed.  Of most sessions neither is, and each refers to the session, which would
        # then be freed by a collection of garbage only.
        self._will_timer: Timer | None = None
        self._expiry_timer: Timer | None = None
        if durable:
            # The disk may have what it was sent.
            self.outgoing = self._new_outgoing()

    def __repr__(self) -> str:
        return f"<Session {self.client_id!r} of {self.vhost.name!r}, {len(self.subscriptions)} subscriptions>"

    @property
    def is_broken(self) -> bool:
        """Whether somebody has deleted its queue.  It cannot be continued then."""
        return self._queue is not None and self._queue.deleted

    @property
    def received(self) -> Received:
        """The identifiers of QoS 2 that the client has published and not released."""
        if self.unreleased is None:
            self.unreleased = Received(self.vhost, self.client_id, durable=self.durable)
        return self.unreleased

    def begin_outgoing(self, now: float) -> Outgoing:
        """Return what it is sent from queues; make that the first time."""
        outgoing = self.outgoing
        if outgoing is None:
            outgoing = self.outgoing = self._new_outgoing()
            if self.client is not None and self.sender is not None:
                outgoing.attach(self.client, self.sender, self._limit, now)
        return outgoing

    def _new_outgoing(self) -> Outgoing:
        vhost, client_id = self.vhost, self.client_id
        released = Released(vhost, client_id, durable=self.durable)
        return Outgoing(client_id, released, Begun(vhost, client_id) if self.durable else None)

    # Connections

    def attach(
        self,
        client: MqttClient,
        sender: Sender,
        *,
        limit: int,
        expiry: int,
        will: tuple[Will, Login] | None,
        now: float,
    ) -> None:
        """The session has a connection.

        ``limit``: messages of QoS 1 and 2 that may be on their way to it.  ``will``: what to publish when the
        connection is lost.
        """
        self.client, self.sender = client, sender
        self.expiry = expiry
        self._limit = limit
        self._left_at = 0.0
        # A will whose delay is not over is not published [MQTT-3.1.3-9].
        self._will = will
        self._cancel_timers()
        self._share_again(now)
        self.describe()
        if self.outgoing is not None:
            self.outgoing.attach(client, sender, limit, now)

    def _cancel_timers(self) -> None:
        for timer in (self._will_timer, self._expiry_timer):
            if timer is not None:
                timer.cancel()

    def _share_again(self, now: float) -> None:
        """Make the queues of shared subscriptions again that somebody has deleted."""
        for subscribed in self.subscriptions.values():
            if subscribed.consumer is not None and subscribed.consumer.queue.deleted:
                self._add(subscribed, now)
        # Those, and not the session's own queue: ``is_broken`` has been asked before.
        if self.outgoing is not None:
            self.outgoing.receiver.cancelled.clear()

    def forget_will(self) -> None:
        """The client has disconnected in good order [MQTT-3.14.4-3]."""
        self._will = None

    def detach(self, now: float) -> None:
        """The connection is over."""
        self.client = self.sender = None
        self.retained.clear()
        # A session of 0 seconds ends with its connection, and its will is published by its end.
        if not self.expiry:
            self.end(now)
            return
        if self.outgoing is not None:
            self.outgoing.detach()
        # Not the time of the loop: it goes to disk, and has to mean something after a restart.
        self._left_at = self.vhost.broker.kept_time(now)
        # If the broker ends, its successor publishes the will (MQTT 5.0, 3.1.2.5).
        if self._sessions.running:
            self._wait(0.0, now)
        self.describe()

    def _wait(self, away: float, now: float) -> None:
        """Publish the will when its delay is over, and end when the session expires.

        ``away``: seconds since the connection was lost.
        """
        broker = self.vhost.broker
        if self.expiry != FOR_EVER:
            if away >= self.expiry:
                # The will is due as well: its delay ends with the session (MQTT 5.0, 3.1.3.2.2).
                self.end(now)
                return
            self._expiry_timer = self._expiry_timer or Timer(broker, self.end)
            self._expiry_timer.set(now + self.expiry - away)
        if self._will is not None:
            left = (self._will[0].properties.will_delay_interval or 0) - away
            if left > 0:
                self._will_timer = self._will_timer or Timer(broker, self._on_will_due)
                self._will_timer.set(now + left)
            else:
                self._publish_will(now)

    def describe(self) -> None:
        """Write to disk what the session is."""
        # Once a turn: a client may subscribe ten thousand times in one read.
        self.is_undescribed = False
        if self.durable:
            changed, self._changed = self._changed or set(), None
            kept = self._sessions.descriptions(self.vhost)
            is_change = kept.takes_change(self.client_id, len(changed), len(self.subscriptions))
            names = changed if is_change else self.subscriptions
            will = None if self._will is None else DescribedWill.of(self._will[0], self._will[1].name)
            begun = () if self.outgoing is None else tuple(self.outgoing.begun_otherwise())
            kept.keep(
                Description(
                    self.client_id,
                    self.exchange,
                    self.expiry,
                    self._left_at,
                    tuple(
                        [_described(self.subscriptions[name]) for name in names if name in self.subscriptions]
                    ),
                    will,
                    begun,
                    is_change,
                    tuple(sorted(changed - self.subscriptions.keys())) if is_change else (),
                )
            )

    def restore(self, description: Description, now: float) -> None:
        """Be again what a description says, after a restart of the broker.  May raise a ``BrokerError``."""
        for each in description.subscriptions:
            wanted = Subscription(
                each.topic_filter,
                each.qos,
                each.no_local,
                each.retain_as_published,
                share_name=each.share_name,
            )
            # Whether its user may do that is asked when the client comes back (``require_all``).
            self._subscribe(wanted, each.identifier, each.name, now)
        if self._queue is not None:
            self.begin_outgoing(now).recovered(self._queue, description.begun)
            self._forget_other_bindings(self._queue)
        if self.outgoing is not None:
            shared = [each.consumer for each in self.subscriptions.values() if each.consumer is not None]
            self.outgoing.take_begun(shared)
        self.expiry = description.expiry
        self._left_at = description.left_at
        if description.will is not None:
            login = self._sessions.login(self, description.will.user)
            self._will = None if login is None else (description.will.will(), login)

    def wait_again(self, now: float) -> None:
        """All sessions are there again after a restart of the broker, and have no connection."""
        had_will = self._will is not None
        # Without a time, it had a connection until the broker ended.
        away = self.vhost.broker.kept_time(now) - self._left_at if self._left_at else 0.0
        self._wait(away, now)
        # It was published: the next restart must not find it in the description.
        if had_will and self._will is None and not self.ended:
            self.describe()

    def _forget_other_bindings(self, queue: Queue) -> None:
        """Remove bindings of the queue without a subscription: a crash may leave one."""
        keys = {
            topic_to_key(each.topic_filter)
            for each in self.subscriptions.values()
            if not each.live and not each.share_name
        }
        # A copy: ``unbind`` removes from it.
        for binding in list(queue.incoming.values()):
            if binding.key not in keys:
                self.vhost.unbind(binding.source.name, queue, binding.key, binding.arguments)

    def end(self, now: float) -> None:
        """The session is over: publish its will, delete what it has in the broker."""
        if self.ended:
            return
        self.ended = True
        self._cancel_timers()
        self._sessions.remove(self)
        for subscribed in self.subscriptions.values():
            if subscribed.live:
                self._live.remove(self, subscribed)
        self.subscriptions.clear()
        # Unsubscribed first: what comes back to a shared queue is for the other members.
        if self.outgoing is not None:
            for consumer in list(self.outgoing.receiver.consumers.values()):
                self.vhost.unsubscribe(consumer, now)
            self.outgoing.end(now)
        # Then: after a crash in between, no other member gets what was begun with QoS 2.
        if self.durable:
            self._sessions.descriptions(self.vhost).drop(self.client_id)
        if self._queue is not None:
            self.vhost.remove_queue(self._queue, now)
        self._publish_will(now)

    def _on_will_due(self, now: float) -> None:
        self._publish_will(now)
        self.describe()

    def _publish_will(self, now: float) -> None:
        if self._will is None:
            return
        if self._will_timer is not None:
            self._will_timer.cancel()
        (will, login), self._will = self._will, None
        self._sessions.publish_will(self, will, login, now)

    # Subscriptions

    def subscribe(self, wanted: Subscription, identifier: int, name: str, login: Login, now: float) -> int:
        """Add or replace a subscription; return the reason code for SUBACK.

        ``name``: the filter as the client has sent it.  Raises a ``BrokerError`` if ``login`` may not read
        what it subscribes to.
        """
        self._require_read(login, wanted)
        before = self.subscriptions.get(name)
        # One that replaces another one is no further one.
        if before is None and len(self.subscriptions) >= self._most_subscriptions:
            return ReasonCode.QUOTA_EXCEEDED
        described = None if before is None else _described(before)
        subscribed = self._subscribe(wanted, identifier, name, now)
        # Clients subscribe to all that they want again when they come back.
        if described != _described(subscribed):
            self._has_changed(name)
        handling = wanted.retain_handling
        if not wanted.share_name and (handling == 0 or (handling == 1 and before is None)):
            sessions, topic_filter = self._sessions, subscribed.topic_filter
            # Only begun here: a filter may match very many, and other clients have their turns
            # (``send_retained``).
            found = chain(
                sessions.retained(self.vhost).find(topic_filter, now, sessions.retained_turns.step),
                sessions.status.find(self.vhost, topic_filter, now),
            )
            # Who subscribes to a filter again gets all of them again, and not those of before as well: a
            # client could have as many begun as it likes.
            self.retained.pop(name, None)
            self.retained[name] = subscribed, found
        return subscribed.qos

    def _require_read(self, login: Login, wanted: Subscription | Subscribed) -> None:
        vhost = self.vhost
        login.require("read", "exchange", self.exchange, vhost.name)
        key = topic_to_key(wanted.topic_filter)
        login.require_topic("read", vhost.exchanges.get(self.exchange), key, vhost.name)
        if wanted.share_name:
            name = self._shared_name(wanted.share_name, wanted.topic_filter)
            login.require("read", "queue", name, vhost.name)

    def require_all(self, login: Login) -> None:
        """Refuse a user who could not have subscribed to what the session has.  Raises a ``BrokerError``."""
        # The subscriptions may have been granted to another user.  The queue may have
        # messages of former ones.
        if self._queue is not None:
            login.require("read", "exchange", self.exchange, self.vhost.name)
        for subscribed in self.subscriptions.values():
            self._require_read(login, subscribed)

    def _subscribe(self, wanted: Subscription, identifier: int, name: str, now: float) -> Subscribed:
        before, topic_filter = self.subscriptions.get(name), wanted.topic_filter
        # The broker's own topics are published to the sink only, with QoS 0.
        own_topics = not wanted.share_name and topic_filter.startswith("$")
        live = own_topics or not (wanted.share_name or wanted.qos or self.durable)
        qos = 0 if live else wanted.qos
        no_local = wanted.no_local - (before is not None and before.no_local)
        if before is not None and before.live == live:
            # Changed in place: no message is lost or doubled meanwhile [MQTT-3.8.4-4].
            before.qos, before.no_local = qos, wanted.no_local
            before.retain_as_published, before.identifier = wanted.retain_as_published, identifier
            subscribed = before
            self._live.changed()
            if self.outgoing is not None:
                self.outgoing.changed()
        else:
            subscribed = Subscribed(
                name=name,
                topic_filter=topic_filter,
                share_name=wanted.share_name,
                qos=qos,
                no_local=wanted.no_local,
                retain_as_published=wanted.retain_as_published,
                identifier=identifier,
                live=live,
            )
            self._add(subscribed, now)
            if before is not None:
                self._remove(before, now)
            self.subscriptions[name] = subscribed
        # Last: the broker may have refused the binding.
        self.no_local += no_local
        return subscribed

    def unsubscribe(self, name: str, now: float) -> int:
        """Remove a subscription; return the reason code for UNSUBACK."""
        subscribed = self.subscriptions.pop(name, None)
        if subscribed is None:
            return ReasonCode.NO_SUBSCRIPTION_EXISTED
        self.retained.pop(name, None)
        self.no_local -= subscribed.no_local
        self._remove(subscribed, now)
        self._has_changed(name)
        return ReasonCode.SUCCESS

    def _has_changed(self, name: str) -> None:
        if self.durable:
            self.is_undescribed = True
            if self._changed is None:
                self._changed = set()
            self._changed.add(name)

    def _add(self, subscribed: Subscribed, now: float) -> None:
        if subscribed.live:
            self._live.add(self, subscribed)
            return
        key = topic_to_key(subscribed.topic_filter)
        if subscribed.share_name:
            queue = self._shared_queue(subscribed, now)
            self.vhost.bind(self.exchange, queue, key)
            consumer = self._consume(queue, subscribed.name, now)
            subscribed.consumer = consumer
            self.begin_outgoing(now).shared[subscribed.name] = subscribed
        else:
            self.vhost.bind(self.exchange, self._own_queue(now), key)
            self.begin_outgoing(now).add(subscribed)

    def _remove(self, subscribed: Subscribed, now: float) -> None:
        if subscribed.live:
            self._live.remove(self, subscribed)
        elif subscribed.consumer is not None:
            self.vhost.unsubscribe(subscribed.consumer, now)
            # After the consumer has left its queue: what is given back must not be delivered here again.
            outgoing = self.begin_outgoing(now)
            outgoing.give_back(subscribed.consumer)
            del outgoing.shared[subscribed.name]
        else:
            assert self._queue is not None, "it was made for this subscription"
            self.vhost.unbind(self.exchange, self._queue, topic_to_key(subscribed.topic_filter))
            self.begin_outgoing(now).remove(subscribed)

    def _own_queue(self, now: float) -> Queue:
        if self._queue is None:
            name = _queue_name("session", self.client_id)
            # An owner makes the queue exclusive: nobody else may read what the session gets.
            owner = None if self.durable else self
            # After a restart of the broker it is there, with what has come before.
            self._queue = self.vhost.queues.get(name) or self.vhost.make_queue(
                name, now, durable=self.durable, auto_delete=False, owner=owner
            )
            self._consume(self._queue, "", now)
        return self._queue

    def _shared_queue(self, subscribed: Subscribed, now: float) -> Queue:
        name = self._shared_name(subscribed.share_name, subscribed.topic_filter)
        # It ends with its last member.  An operator may have declared one that does not.
        return self.vhost.queues.get(name) or self.vhost.make_queue(
            name, now, durable=self.durable, auto_delete=True
        )

    @staticmethod
    def _shared_name(share_name: str, topic_filter: str) -> str:
        return _queue_name("share", f"{share_name}.{topic_to_key(topic_filter)}")

    def _consume(self, queue: Queue, tag: str, now: float) -> Consumer:
        # The session's own queue is for nobody else.
        receiver = self.begin_outgoing(now).receiver
        # Without a prefetch of its own: the receive maximum is for all queues together, and the receiver has
        # it.
        consumer = Consumer(tag, queue, receiver, auto_ack=False, exclusive=not tag, prefetch=0, arguments={})
        self.vhost.subscribe(consumer, now)
        return consumer

    # Retained messages

    def send_retained(self, sender: Sender, now: float) -> None:
        """Send the next of the retained messages that new subscriptions want, until the step is used up."""
        while self.retained:
            name, (subscribed, found) = next(iter(self.retained.items()))
            step: list[Retained] = []
            over = True
            for retained in found:
                # Others have their turn.
                if retained is None:
                    over = False
                    break
                step.append(retained)
            if step:
                self._send_retained(sender, subscribed, step, now)
            if over:
                del self.retained[name]
            # Or the socket has to take some first.
            if not over or sender.is_behind():
                return

    def _send_retained(
        self, sender: Sender, subscribed: Subscribed, step: list[Retained], now: float
    ) -> None:
        if subscribed.no_local:
            # [MQTT-3.8.3-3] holds for retained messages as well. The exact publisher is in the envelope
            # (``Incoming._envelope_of``).
            step = [each for each in step if each.envelope.properties.get(PUBLISHER) != self.client_id]
        if subscribed.live:
            identifiers = (subscribed.identifier,) if subscribed.identifier else ()
            sender.deliver_retained(step, Delivery(0, True, identifiers), now)
        # Through the queue, which has what QoS 1 and 2 need: identifiers, flow control, and what is sent
        # again.
        elif self._queue is not None:
            for each in step:
                left = None if each.expires_at is None else each.expires_at - now
                copy = retained_copy(each.envelope, subscribed.name, left)
                self._queue.publish(each.batch.under(copy), now)

    # For operators

    def rows(self, peer: str) -> Iterator[dict[str, Any]]:
        """Yield a row of ``kernel consumers`` for each queue that the session reads."""
        consumers = {} if self.outgoing is None else self.outgoing.receiver.consumers
        for consumer in consumers.values():
            yield consumer.row(peer, tag=consumer.tag or self.client_id, prefetch=consumer.receiver.prefetch)


def _described(subscribed: Subscribed) -> DescribedSubscription:
    return DescribedSubscription(
        subscribed.name,
        subscribed.topic_filter,
        subscribed.share_name,
        subscribed.qos,
        subscribed.no_local,
        subscribed.retain_as_published,
        subscribed.identifier,
    )


def _queue_name(sort: str, name: str) -> str:
    """Return the name of a session's or a shared subscription's queue."""
    queue_name = f"mqtt.{sort}.{name}"
    if len(queue_name.encode()) <= _LONGEST_QUEUE_NAME:
        return queue_name
    return f"mqtt.{sort}.sha256.{sha256(name.encode()).hexdigest()}"
