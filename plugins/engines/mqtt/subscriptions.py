"""Subscriptions: what clients have subscribed to, and those of QoS 0 that need no queue (a ``Sink``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import msgspec

from kernel.contracts.explaining import Row, row
from kernel.contracts.message import Batch, Envelope
from kernel.contracts.mixed_batch import KeyedBatch
from kernel.contracts.spelling import DOTTED, MQTT, Word
from kernel.contracts.word_trie import WordTrie
from plugins.engines.broker.public import Binding, Consumer, VirtualHost
from plugins.protocols.mqtt.messages import PUBLISHER, RETAIN, RETAINED, properties_of, qos_of, unsayable
from plugins.protocols.mqtt.properties import NO_PROPERTIES
from plugins.protocols.mqtt.publishing import (
    REFERENCE_FROM,
    PublishPrefix,
    publish_batch,
    publish_plain,
    publish_under_topics,
)
from plugins.protocols.mqtt.topics import are_plain, is_status, key_to_topic, swap_all, topic_to_key

if TYPE_CHECKING:
    from kernel.contracts.word_automaton import WordAutomaton
    from plugins.engines.broker.binding import Identity
    from plugins.engines.mqtt.session import Session

_MOST_PLANS = 16_384
"""Envelopes of which is remembered who gets them."""
_MOST_EXPLAINED = 50
"""Subscriptions that match, and others that do not, in one explanation."""
_MOST_AUDIENCES = 1024
"""Sets of subscriptions of which is remembered to whom they belong."""


class Subscribed(msgspec.Struct, eq=False, kw_only=True):
    """A subscription of a session."""

    name: str
    """The filter as the client has sent it, with ``$share/NAME/``."""
    topic_filter: str
    share_name: str
    qos: int
    no_local: bool
    retain_as_published: bool
    identifier: int
    """The subscription identifier of MQTT 5; 0: none."""
    live: bool
    """Whether it is an entry of the sink, without a queue."""
    consumer: Consumer | None = None
    """Of a shared subscription: its consumer."""


_Matching: TypeAlias = "tuple[tuple[Session, Subscribed], ...]"


class Delivery(NamedTuple):
    """How messages under one envelope go to a session."""

    qos: int
    retain: bool
    identifiers: tuple[int, ...]


_PLAIN = Delivery(0, False, ())


def deliver_as(envelope: Envelope, matching: Iterable[Subscribed], client_id: str) -> Delivery | None:
    """Return how a message goes to a session with these matching subscriptions; None: not at all.

    The highest QoS of all subscriptions that match counts, and all identifiers are sent [MQTT-3.3.4-2,
    MQTT-3.3.4-3].  Of a retained message, those of the new subscription alone [MQTT-3.8.4-8].
    """
    others = envelope.properties
    own = others.get(PUBLISHER) == client_id
    asked = others.get(RETAINED)
    qos, retain_as_published, identifiers, found = 0, False, [], False
    for subscribed in matching:
        # Not to the client that has published it [MQTT-3.8.3-3].
        if own and subscribed.no_local:
            continue
        if asked not in (None, True, subscribed.name):
            continue
        found = True
        qos = max(qos, subscribed.qos)
        retain_as_published = retain_as_published or subscribed.retain_as_published
        if subscribed.identifier:
            identifiers.append(subscribed.identifier)
    if not found:
        return None
    retain = bool(asked or (retain_as_published and others.get(RETAIN)))
    return Delivery(min(qos, qos_of(envelope)), retain, tuple(identifiers))


def deliver_without(envelope: Envelope, qos: int) -> Delivery:
    """Return how a message that was begun goes on when no subscription is left that wants it."""
    return Delivery(qos, bool(envelope.properties.get(RETAINED)), ())


class Group:
    """Sessions to which the same messages go in the same way, and the packets that they get.

    Many topics have the same subscribers, and so the same groups.
    """

    __slots__ = ("_made", "_prefixes", "delivery", "sessions")

    def __init__(self, delivery: Delivery, sessions: list[Session]) -> None:
        self.delivery = delivery
        self.sessions = sessions
        self._prefixes: dict[int, dict[Envelope, PublishPrefix | None]] = {}
        """By version.  None: there was one message, and a prefix is made for the second.

        The envelopes are those whose plan has this group, which bounds their number.
        """
        self._made: dict[int, bytes] = {}

    def packets(self, version: int, batch: Batch) -> bytes:
        """Return the PUBLISH packets of a batch.

        For several sessions they are made once: until ``forget``, those of the first call are returned.
        """
        made = self._made.get(version)
        if made is None:
            envelope, bodies = batch.envelope, batch.bodies
            prefixes = self._prefixes.get(version)
            if prefixes is None:
                prefixes = self._prefixes[version] = {}
            prefix = prefixes.get(envelope)
            if prefix is None:
                if envelope not in prefixes and self._is_plain(version, batch):
                    # A topic may have one message only, and a prefix costs more than its packet.
                    prefixes[envelope] = None
                    topic = key_to_topic(envelope.key)
                    made = publish_plain(version, topic, bodies[0], retain=self.delivery.retain)
                else:
                    prefix = prefixes[envelope] = prefix_of(version, envelope, self.delivery)
            if prefix is None:
                assert made is not None, "one of both is there"
            elif len(bodies) == 1:
                # What ``publish_batch`` does, in two calls less for each of many topics.
                made = b"".join((prefix.header(len(bodies[0])), bodies[0]))
            else:
                made = b"".join(publish_batch(prefix, bodies, (), batch.width))
            if len(self.sessions) > 1:
                self._made[version] = made
        return made

    def _is_plain(self, version: int, batch: Batch) -> bool:
        """Whether it is one small message without properties."""
        return (
            len(batch.bodies) == 1
            and batch.size < REFERENCE_FROM
            and (version == 4 or properties_of(batch.envelope, self.delivery.identifiers) is NO_PROPERTIES)
        )

    def forget(self) -> None:
        """The batch has been sent to several sessions."""
        self._made.clear()


def prefix_of(
    version: int,
    envelope: Envelope,
    delivery: Delivery,
    *,
    dup: bool = False,
    seconds_left: float | None = None,
) -> PublishPrefix:
    """Return what PUBLISH packets with these messages begin with."""
    properties = (
        properties_of(envelope, delivery.identifiers, seconds_left) if version == 5 else NO_PROPERTIES
    )
    topic = key_to_topic(envelope.key)
    return PublishPrefix(version, topic, properties, qos=delivery.qos, retain=delivery.retain, dup=dup)


class PacketsUnderTopics:
    """The PUBLISH packets of messages that differ in their topics, made once for all clients of a version."""

    __slots__ = ("_batch", "_made", "_topics", "count")

    def __init__(self, batch: KeyedBatch, topics: list[bytes]) -> None:
        self._batch = batch
        self._topics = topics
        self._made: dict[int, bytes] = {}
        self.count = len(topics)
        """Messages."""

    def of(self, version: int) -> bytes:
        """Return the packets for clients of this version."""
        made = self._made.get(version)
        if made is None:
            batch = self._batch
            made = publish_under_topics(version, self._topics, batch.bodies, batch.width)
            self._made[version] = made
        return made


class LiveSubscriptions:
    """The QoS 0 subscriptions of one virtual host and exchange that have no queue.

    It is one sink for all of them, bound with ``#`` while there is a subscription.  Who gets the messages
    under an envelope is found out once for the envelope.  The packets are made once for all clients of a
    version that get the same.
    """

    durable = False

    def __init__(
        self, vhost: VirtualHost, exchange: str, on_watched: Callable[[], None] = lambda: None
    ) -> None:
        """``on_watched`` is called for each subscription to the broker's status."""
        self.name = "mqtt.live"
        self.incoming: dict[Identity, Binding] = {}
        self.vhost = vhost
        self.exchange = exchange
        self._trie: WordTrie[tuple[Session, Subscribed]] = WordTrie()
        self._count = 0
        self._plans: dict[Envelope, list[Group]] = {}
        self._audiences: dict[_Matching, list[Group]] = {}
        self._automaton: WordAutomaton[tuple[Session, Subscribed]] | None = None
        """For many keys at once; None: a subscription was added or removed since."""
        self.dropped = 0
        """Messages that slow subscribers have lost."""
        self.watchers = 0
        """Subscriptions to the broker's status."""
        self._on_watched = on_watched

    def __repr__(self) -> str:
        return f"<LiveSubscriptions of {self.vhost.name!r}, {self._count}>"

    def add(self, session: Session, subscribed: Subscribed) -> None:
        """Add a subscription.  Raises a ``BrokerError`` if there is no such exchange."""
        if not self._count:
            self.vhost.bind(self.exchange, self, "#")
        self._count += 1
        self._trie.add(_pattern_of(subscribed), (session, subscribed))
        self._automaton = None
        self.changed()
        if is_status(subscribed.topic_filter):
            self.watchers += 1
            self._on_watched()

    def remove(self, session: Session, subscribed: Subscribed) -> None:
        """Remove a subscription."""
        if not self._trie.remove(_pattern_of(subscribed), (session, subscribed)):
            return
        self._automaton = None
        self._count -= 1
        self.changed()
        if is_status(subscribed.topic_filter):
            self.watchers -= 1
        if not self._count:
            self.vhost.remove_sink(self)

    def changed(self) -> None:
        """A subscription was added or removed, or has other options now."""
        self._plans.clear()
        self._audiences.clear()

    def publish(self, batch: Batch, now: float) -> bool:
        """Send a batch to all clients that have subscribed to it; return whether there are any."""
        groups = self._plans.get(batch.envelope)
        if groups is None:
            groups = self._plan(batch.envelope)
        for group in groups:
            for session in group.sessions:
                sender = session.sender
                # None: the session has no connection. One that outlives its connection is here with its
                # subscriptions to the broker's own topics, and gets nothing while it is away.
                if sender is not None and not sender.deliver_live(batch, group):
                    self.dropped += len(batch.bodies)
            if len(group.sessions) > 1:
                # The next batch of this group has other packets, and nothing should keep these in memory.
                group.forget()
        return bool(groups)

    def publish_keyed(self, batch: KeyedBatch, now: float) -> list[bool]:
        """Send messages that differ in their keys; return for each whether anybody has subscribed to it."""
        topics = swap_all(batch.keys)
        groups = self._common_groups(batch, topics)
        if groups is None:
            return batch.per_message([self.publish(part, now) for part in batch.divided()])
        packets = PacketsUnderTopics(batch, topics)
        for group in groups:
            for session in group.sessions:
                sender = session.sender
                if sender is None or sender.deliver_live_together(packets):
                    continue
                # A group of its own: it gets other packets than the others, or fewer.
                alone = Group(group.delivery, [session])
                for part in batch.divided():
                    if not sender.deliver_live(part, alone):
                        self.dropped += len(part.bodies)
        return [bool(groups)] * packets.count

    def _common_groups(self, batch: KeyedBatch, topics: list[bytes]) -> list[Group] | None:
        """Return the groups that get all of these messages; None: each message has to be looked at.

        The packets then differ in topics, payloads and sizes only.
        """
        envelope = batch.envelope
        if envelope.properties or envelope.reply_to or envelope.expiration is not None:
            return None
        # Large messages are not copied into one buffer with others.
        if max(map(len, batch.bodies)) >= REFERENCE_FROM:
            return None
        # Keys of other protocols may be no topics, or those of the broker.  With a zero octet in a key there
        # are more topics.
        if len(topics) != len(batch.keys) or not are_plain(topics):
            return None
        automaton = self._automaton
        if automaton is None:
            # Imported here: many brokers never see a batch in which each message has another key.
            from kernel.contracts.word_automaton import WordAutomaton

            automaton = self._automaton = WordAutomaton(self._trie)
        keys = batch.key_texts()
        # If each topic has subscribers of its own, that is found without a look at all of them.
        first, last = automaton.find_all((keys[0], keys[-1]), ".")
        if first != last:
            return None
        matching = automaton.find_all(keys, ".")
        if matching.count(first) != len(matching):
            return None
        groups = self._audience(envelope, first)
        return groups if all(group.delivery == _PLAIN for group in groups) else None

    def explain(self, envelope: Envelope) -> list[Row]:
        """Say which subscriptions would get a message, and some of those that would not."""
        topic = key_to_topic(envelope.key)
        matching = self._matching(envelope)
        rows = []
        for session, subscribed in matching[:_MOST_EXPLAINED]:
            gets = deliver_as(envelope, [subscribed], session.client_id) is not None
            why = "matches" if gets else "matches, but the client is the publisher and asked for no_local"
            rows.append(_explained(session, subscribed, f"{why} topic {topic!r}", gets=gets))
        others = (each for each in self._trie.every() if each not in set(matching))
        for session, subscribed in islice(others, _MOST_EXPLAINED):
            hidden = topic.startswith(MQTT.hidden) and subscribed.topic_filter[:1] in "+#"
            why = f"does not match topic {topic!r}" + (
                ": filters that begin with a wildcard do not match topics that begin with '$'"
                if hidden
                else ""
            )
            rows.append(_explained(session, subscribed, why, gets=False))
        left = self._count - len(rows)
        if left > 0:
            rows.append(
                row("subscription", f"{left} more", gets=len(matching) > _MOST_EXPLAINED, why="not shown")
            )
        return rows

    def _matching(self, envelope: Envelope) -> list[tuple[Session, Subscribed]]:
        # A key that is no topic has no subscribers here.  It is no fault: other protocols have it.
        if unsayable(envelope):
            return []
        # The trie is one of keys, so that no key has to be turned into a topic to find its subscribers.
        key = envelope.key
        return self._trie.find(key.split("."), hidden=key.startswith(MQTT.hidden))

    def _plan(self, envelope: Envelope) -> list[Group]:
        matching = self._matching(envelope)
        if len(self._plans) >= _MOST_PLANS:
            # Both, since the groups of audiences remember these envelopes.
            self.changed()
        plan = self._plans[envelope] = self._audience(envelope, tuple(matching))
        return plan

    def _audience(self, envelope: Envelope, matching: _Matching) -> list[Group]:
        """Return the groups of the sessions with these subscriptions."""
        # All subscriptions here have QoS 0, and most envelopes have no properties.  Then it depends on the
        # subscriptions alone, and many topics have the same ones.
        plain = not envelope.properties
        if plain and (known := self._audiences.get(matching)) is not None:
            return known
        subscribed_of: dict[Session, list[Subscribed]] = {}
        for session, subscribed in matching:
            # All of a session together: it gets one packet with what all its filters say that match (MQTT
            # 5.0, 3.3.4).
            subscribed_of.setdefault(session, []).append(subscribed)
        sessions: dict[Delivery, list[Session]] = {}
        for session, found in subscribed_of.items():
            delivery = deliver_as(envelope, found, session.client_id)
            if delivery is not None:
                sessions.setdefault(delivery, []).append(session)
        audience = [Group(delivery, members) for delivery, members in sessions.items()]
        if plain:
            if len(self._audiences) >= _MOST_AUDIENCES:
                self._audiences.clear()
            self._audiences[matching] = audience
        return audience


def _explained(session: Session, subscribed: Subscribed, why: str, *, gets: bool) -> Row:
    made = row("subscription", session.client_id, gets=gets, why=f"filter {subscribed.name!r} {why}")
    if session.sender is None:
        made["gets"] = False
        made["notes"].append("the client is not connected, and messages of QoS 0 are not kept for it")
    return made


def _pattern_of(subscribed: Subscribed) -> tuple[Word, ...]:
    """Return the pattern of the keys, so that no key has to be converted to find its subscriptions."""
    return DOTTED.pattern(topic_to_key(subscribed.topic_filter))
