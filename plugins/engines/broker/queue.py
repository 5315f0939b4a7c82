"""Queue: messages in order, and the consumers that share them.

A message is in one of three states.  It is *ready* while it is in the backlog; *outstanding* when it was
delivered and not acknowledged (then the receiver's ``Unacked`` has it, and the queue only counts it); and
*gone* when it was acknowledged, dropped or dead-lettered.  Transitions:

    publish                         -> ready
    deliver                         ready -> outstanding; -> gone, if the consumer acknowledges automatically
    requeue                         outstanding -> ready, at its old position
    acknowledge, reject, give_up    outstanding -> gone
    expire, drop-head               ready -> gone
    come back too often             outstanding -> gone (x-delivery-limit)

Every message has a position, which no other message of the queue ever gets.  The store knows messages by
their positions.  The backlog is sorted by them, so that a requeued message finds its old place.

``publish`` appends, and marks the queue as touched.  ``process`` does what follows: it expires, delivers,
and drops what exceeds a limit.  The virtual host calls it once a turn for each touched queue, however many
batches came.  So what was published in one turn is delivered as few large batches.  Operations that look at
the backlog call ``process`` first.

There is one shortcut, for a message that comes alone: ``publish`` delivers to the only consumer of an empty
queue at once, if nothing else was delivered to it in this turn.

A queue does not know why a consumer takes no more.  It asks each one for ``room``.  Whatever gives a consumer
room again (an acknowledgement, an opened window, a session that resumes) touches the queue.

All methods are called by the broker's thread.  None of them writes to a client: ``Receiver.deliver`` only
appends to lists that the client encodes at the end of the turn.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kernel.contracts.counts import counted
from kernel.contracts.message import Batch, Envelope
from kernel.contracts.mixed_batch import KeyedBatch
from plugins.engines.broker.arguments import read_queue_arguments
from plugins.engines.broker.backlog import Backlog, Item
from plugins.engines.broker.binding import Binding, Identity
from plugins.engines.broker.clearance import Clearance
from plugins.engines.broker.consumer import Consumer
from plugins.engines.broker.dead_letters import Reason
from plugins.engines.broker.delivery_counts import DeliveryCounts
from plugins.engines.broker.policies import Policy, under_policy
from plugins.engines.broker.span import Span

if TYPE_CHECKING:
    from plugins.engines.broker.paged import Paged
    from plugins.engines.broker.virtual_host import VirtualHost

_LONGEST_EXPIRATION = 1 << 53
"""Milliseconds (285,000 years).  Some protocols allow numbers that are too large for a float."""
_LARGEST_SHARE = 256
"""Messages that one of several consumers gets before it is the next one's turn."""
_FEW_CONSUMERS = 8
"""With no more than these, all are asked for room in each turn, which costs less than to
keep account of it."""


class Queue:
    """One queue of a virtual host."""

    # A broker may have a hundred thousand of them.  With more than 30 attributes the dictionaries of objects
    # share no keys any more, which cost 1.5 KB a queue.
    __slots__ = (
        "_active",
        "_counts",
        "_expired_between",
        "_full",
        "_keyed_from",
        "_limited",
        "_may_expire",
        "_only_consumer",
        "_rejects",
        "_returned_too_often",
        "arguments",
        "auto_delete",
        "backlog",
        "called_at",
        "consumer_count",
        "consumers",
        "deleted",
        "durable",
        "incoming",
        "is_touched",
        "keeps_all",
        "last_used",
        "messages_in",
        "messages_out",
        "most_resident",
        "name",
        "next_position",
        "operator_policy",
        "outstanding",
        "overflow",
        "owner",
        "policy",
        "stored",
        "takes_policies",
        "undeliverable",
        "vhost",
    )

    def __init__(
        self,
        name: str,
        vhost: VirtualHost,
        *,
        durable: bool,
        auto_delete: bool,
        owner: object | None,
        arguments: Mapping[str, Any],
        operator_policy: Policy | None = None,
        now: float,
    ) -> None:
        """Raises ``PreconditionFailed`` if an argument is invalid."""
        # The queue's own arguments first: an error in them is the client's.
        policy = read_queue_arguments(arguments, name, vhost.name)
        if operator_policy is not None:
            policy = read_queue_arguments(under_policy(arguments, operator_policy), name, vhost.name)
        self.name = name
        self.vhost = vhost
        self.durable = durable
        self.auto_delete = auto_delete
        self.owner = owner
        """The connection that has the queue exclusively; None: it is not exclusive."""
        self.arguments = arguments
        self.policy = policy
        """What applies: the arguments, and the operator's policy."""
        self.operator_policy = operator_policy
        self.takes_policies = True
        """Whether policies of an operator apply to it."""
        self.backlog = Backlog(policy.max_priority, vhost.store.read)
        self.most_resident = vhost.store.most_resident(policy)
        """Octets of ready bodies that may be in memory.  The store changes it when memory is divided
        (``share_memory``)."""
        self.stored: Any = None
        """The store's object for a durable queue; None: its messages are not stored.  Opaque here."""
        self.overflow: Any = None
        """The store's object for messages that were written only because memory is short.  Opaque here."""
        self.consumers: list[deque[Consumer]] = []
        """A deque for each consumer priority, the highest first.  None is empty, and each is rotated as its
        consumers are served."""
        self._full: dict[Consumer, None] = {}
        """Consumers that are not in ``consumers``, because their own prefetch leaves no room: nothing but an
        acknowledgement changes that, and then ``take_turns_again`` is called.  With many consumers, a turn
        then costs nothing for those that are at work."""
        self.consumer_count = 0
        self._active: Consumer | None = None
        """With x-single-active-consumer: the only one that gets messages."""
        self._only_consumer: Consumer | None = None
        """The consumer, if there is just one, for ``_hand_over``.

        None if the queue has priorities, since the next message of this turn may have a higher one, and with
        x-single-active-consumer, since ``process`` remembers who the active one is.
        """
        self.incoming: dict[Identity, Binding] = {}
        self.outstanding = 0
        """How many messages were delivered and not acknowledged."""
        self.next_position = 0
        self.deleted = False
        """Whether it was deleted.  Receivers may have messages of a deleted queue, so they still call it."""
        self.last_used = now
        self.messages_in = self.messages_out = 0
        self.undeliverable = 0
        """Messages that were dropped because a consumer's protocol could not carry them."""
        self.called_at: float | None = None
        """When the broker will call ``handle_timeout`` (see ``Timed``)."""
        self.is_touched = False
        """Whether ``process`` will be called in this turn."""
        self._may_expire = False
        self._take_limits()
        self._keyed_from: int | None = None
        """The position from which on there may be keyed batches in the backlog, until the
        queue is processed."""
        self._expired_between: Sequence[Span] = ()
        """Messages that had expired behind others which are being delivered."""
        self.keeps_all = policy.quorum
        """Whether transient messages are stored as well: a quorum queue has no others (RabbitMQ)."""
        self._counts = DeliveryCounts(policy.delivery_limit) if policy.quorum else None
        self._returned_too_often: list[Span] = []
        """Messages above the delivery limit, which leave the queue when it is processed."""

    def __repr__(self) -> str:
        return f"<Queue {self.name!r}: {self.backlog.count} ready, {self.outstanding} outstanding>"

    @property
    def exclusive(self) -> bool:
        """Whether one connection owns it."""
        return self.owner is not None

    def take_policy(self, operator_policy: Policy | None, now: float) -> None:
        """The operator's policy has changed.

        What it says of messages counts for those that come from now on, but for the limits, which drop at
        once.
        """
        had_bytes = self.policy.max_length_bytes
        self.operator_policy = operator_policy
        arguments = under_policy(self.arguments, operator_policy)
        self.policy = read_queue_arguments(arguments, self.name, self.vhost.name)
        self.most_resident = self.vhost.store.most_resident(self.policy)
        if self._counts is not None:
            self._counts.take_limit(self.policy.delivery_limit)
        self._take_limits()
        if self.policy.max_length_bytes is not None and had_bytes is None:
            self.vhost.store.weigh(self)
        self.plan_expiry(now)
        self.touch()

    def _take_limits(self) -> None:
        policy = self.policy
        self._limited = policy.max_length is not None or policy.max_length_bytes is not None
        self._rejects = self._limited and policy.overflow != "drop-head"
        # Messages that came before may expire, too.
        self._may_expire = self._may_expire or policy.message_ttl is not None

    def touch(self) -> None:
        """Have ``process`` called in this turn."""
        if not self.is_touched and not self.deleted:
            self.is_touched = True
            self.vhost.touched.append(self)

    def publish(self, batch: Batch, now: float) -> int:
        """Append a batch.

        Return how many of its first messages were accepted: all, unless the queue is full and rejects.
        """
        envelope = batch.envelope
        count = accepted = len(batch.bodies)
        if self._rejects:
            # The publisher is told the result of this call, so the limit cannot wait for the end of the turn.
            # Messages that consumers take now do not count against it.
            self.process(now)
            accepted = self._acceptable(batch)
            if accepted < count:
                if self.policy.overflow == "reject-publish-dlx":
                    # These messages never were in the queue.  They have no position and are not stored, so
                    # that the store is not told of this span, and any base will do.
                    self._give_up(Span(0, batch, accepted, count), "maxlen", now)
                batch = batch.slice(0, accepted)
        if not accepted:
            return 0
        expires_at = None
        if self._may_expire or envelope.expiration is not None:
            expires_at = self._expiry(envelope.expiration, now)
        span = Span(self.next_position, batch, 0, accepted, expires_at)
        self.next_position += accepted
        self.messages_in += accepted
        if self.stored is not None and (envelope.persistent or self.keeps_all):
            # Written now, before any delivery: the store's records have the order in which things happened.
            self.vhost.store.keep_messages(self, span)
        waiting = self._only_consumer
        # Not behind others, of the backlog or of this turn: together they take less.
        if (
            waiting is not None
            and not self.backlog.count
            and not waiting.receiver.deliveries
            and self._hand_over(waiting, span, batch.size)
        ):
            return accepted
        self.backlog.append(span, batch.size)
        # ``touch`` looks itself.  The test spares a call for all batches of a turn but the first.
        if not self.is_touched:
            self.touch()
        return accepted

    def _hand_over(self, consumer: Consumer, span: Span, size: int) -> bool:
        """Deliver new messages to the only consumer, if it has room for all of them; return whether it had.

        The backlog is empty, so there is nothing that ``process`` would have to do before or behind them.
        """
        count = span.stop - span.start
        if self._keyed_from is not None or consumer.room() < count:
            return False
        # ``Backlog.take`` divides a batch that is too large for the window.
        if count > 1 and size > consumer.receiver.window.left:
            return False
        self._hand_to(consumer, [span], count, size)
        return True

    def takes_keyed(self, envelope: Envelope) -> bool:
        """Whether messages that differ in their keys may stay together here.

        Apart from the key they have this envelope.
        """
        # Not where a publisher is told of single messages, or the disk is.
        return not (self._rejects or self.keeps_all or (envelope.persistent and self.stored is not None))

    def publish_keyed(self, batch: KeyedBatch, now: float) -> None:
        """Append messages that differ in their keys, if ``takes_keyed``.

        They are together until the queue is processed at the end of this turn.  What is left then is divided.
        """
        if self._keyed_from is None:
            self._keyed_from = self.next_position
        self.publish(batch, now)

    def _divide_keyed(self) -> None:
        """Divide the keyed batches in the backlog.

        They are behind what was there before, so it takes as many steps as messages are divided.
        """
        first, self._keyed_from = self._keyed_from, None
        if first is not None and self.backlog.count:
            self.backlog.divide_from(first)

    def process(self, now: float) -> None:
        """Expire, deliver and drop messages, after anything has changed."""
        # Cleared first: a dead letter that comes back to this queue below has to touch it again.
        self.is_touched = False
        if self._returned_too_often:
            self._give_up_returned(now)
        backlog = self.backlog
        # A message with a TTL of 0 expires unless it can be delivered at once (RabbitMQ).  So messages that
        # expire just now are expired only after the deliveries.
        overdue = now - 1e-9 if self._may_expire else None
        if overdue is not None and backlog.count:
            self._expire(overdue)
        if self.consumer_count and backlog.count:
            self._deliver(overdue)
            if self._expired_between:
                self._give_up_expired(now)
        if self._may_expire and backlog.count:
            self._expire(now)
            expiry = backlog.next_expiry()
            if expiry is not None:
                self.vhost.broker.call_at(expiry, self)
        # The limits are for ready messages.  What consumers could take is not dropped, so this comes after
        # the deliveries.
        if self._limited and not self._rejects:
            self._drop_excess(now)
        # Only what stays: to divide a message takes as long as all else that is done for it.
        if self._keyed_from is not None:
            self._divide_keyed()
        # The first comparison alone is false for almost every queue, and is made each turn.
        if backlog.size > self.most_resident and backlog.size - backlog.paged > self.most_resident:
            self.vhost.store.page_out(self)

    def take(self, now: float) -> Span | None:
        """Remove one message for a ``get``."""
        # An expired message must not be returned, and consumers were there before this request.
        self.process(now)
        # A get counts as use for x-expires (RabbitMQ); a publish does not.
        self.last_used = now
        span = self.backlog.take_one()
        if span is not None:
            self.outstanding += 1
            self.messages_out += 1
            if self._counts is not None:
                (span,) = self._counts.marked(span, always=True)
        return span

    def take_at(self, position: int) -> Span | None:
        """Remove the message with this position; None: it is not ready.

        It searches the queue, and reads what the disk has before the message: it is for
        the start of a broker.
        """
        self._divide_keyed()
        span = self.backlog.take_at(position)
        if span is not None:
            self.outstanding += 1
            self.messages_out += 1
            if self._counts is not None:
                (span,) = self._counts.marked(span, always=True)
        return span

    def acknowledge(self, span: Span) -> None:
        """A consumer has acknowledged these messages."""
        self.outstanding -= span.stop - span.start
        # ``forget`` looks itself.  The test spares a call for each message that nobody else knows.
        if span.location is not None or self._counts is not None:
            self.forget(span)

    def reject(self, span: Span, now: float) -> None:
        """A consumer has rejected these messages without requeueing them."""
        self.outstanding -= span.stop - span.start
        self._give_up(span, "rejected", now)

    def give_up(self, span: Span, why: str, now: float) -> None:
        """A consumer's protocol cannot carry these messages: dead-letter them, or drop them.

        If they were requeued, the same consumer would get them again and again.
        """
        count = len(span)
        before, self.undeliverable = self.undeliverable, self.undeliverable + count
        self.vhost.messages_undeliverable += count
        # Reported each time that the count has doubled: such messages may come by the thousand.
        if before.bit_length() != self.undeliverable.bit_length():
            self.vhost.broker.report(
                "undeliverable",
                f"{counted(self.undeliverable, 'message')} of queue {self.name!r} in vhost {self.vhost.name!r} so far; "
                f"the last with key {span.envelope.key!r:.80}: {why}",
            )
        self._give_up(span, "undeliverable", now)

    def requeue(self, span: Span) -> None:
        """Put messages back at their old position."""
        self.outstanding -= len(span)
        # The messages of a deleted queue are gone.  The store was told when it was deleted.
        if self.deleted:
            return
        span.redelivered = True
        if type(span.batch) is KeyedBatch:
            for part in span.divided():
                self.backlog.put_back(part)
        elif self._counts is None:
            self.backlog.put_back(span)
        else:
            kept, dead = self._counts.returned(span)
            for part in kept:
                self.backlog.put_back(part)
            self._returned_too_often += dead
        self.touch()

    def purge(self, now: float) -> int:
        """Drop all ready messages; return how many there were."""
        self.process(now)
        count = self.backlog.count
        Clearance(self.vhost.broker, self, self.backlog.take_all()).begin(now)
        return count

    def restore(self, pages: Sequence[tuple[int, Paged]], next_position: int) -> None:
        """Append the pages that a store has recovered.

        ``pages`` has the priority and the page of each, in the order of positions.
        """
        for priority, page in pages:
            self.backlog.append_page(page, priority)
            self._may_expire = self._may_expire or page.may_expire
        self.next_position = next_position
        self.touch()

    def add_consumer(self, consumer: Consumer, now: float) -> None:
        """Add a consumer."""
        self.last_used = now
        self.consumer_count += 1
        self._insert(consumer)
        self._find_only_consumer()
        self.touch()

    def _find_only_consumer(self) -> None:
        may_get_any = not self.policy.single_active_consumer and len(self.backlog.levels) == 1
        self._only_consumer = self.all_consumers()[0] if may_get_any and self.consumer_count == 1 else None

    def _insert(self, consumer: Consumer) -> None:
        """Let a consumer take turns, as the last one of its priority."""
        index, peers = self._of_priority(consumer.priority)
        if peers is None:
            self.consumers.insert(index, deque((consumer,)))
        else:
            peers.append(consumer)

    def _of_priority(self, priority: int) -> tuple[int, deque[Consumer] | None]:
        """Return where the consumers of a priority are in ``consumers``, or would be, and these consumers."""
        # Clients choose the priorities, and may choose thousands.
        index = bisect_left(self.consumers, -priority, key=_priority_behind)
        if index < len(self.consumers) and self.consumers[index][0].priority == priority:
            return index, self.consumers[index]
        return index, None

    def take_turns_again(self, consumer: Consumer) -> None:
        """A consumer that was full has acknowledged something."""
        consumer.waits_for_room = False
        # It may have been removed since, or the queue deleted.
        if consumer in self._full:
            del self._full[consumer]
            self._insert(consumer)

    def forget_consumers(self) -> None:
        """The queue is deleted, and all of them with it."""
        self.consumers = []
        self._full = {}
        self.consumer_count = 0
        self._only_consumer = None

    def remove_consumer(self, consumer: Consumer, now: float) -> None:
        """Remove a consumer; what it has unacknowledged stays outstanding."""
        self.last_used = now
        self.consumer_count -= 1
        if consumer in self._full:
            del self._full[consumer]
        else:
            self._take_out(consumer)
        self._find_only_consumer()
        self.plan_expiry(now)
        if consumer is not self._active:
            self.touch()
            return
        self._active = None
        if not consumer.outstanding:
            self.touch()
        else:
            # Clients cancel a consumer before they close its channel, which requeues what it has
            # unacknowledged.  If its successor were served before that, it would get later messages first
            # (seen beside RabbitMQ).  So the queue is not touched now.  With a prefetch set, each
            # acknowledgement touches it.
            consumer.prefetch = consumer.prefetch or consumer.outstanding

    def _take_out(self, consumer: Consumer) -> None:
        index, peers = self._of_priority(consumer.priority)
        if peers is None:
            return
        # Thousands may be cancelled one by one, the first first or the last first.
        if peers[-1] is consumer:
            peers.pop()
        elif consumer in peers:
            peers.remove(consumer)
        if not peers:
            del self.consumers[index]

    def all_consumers(self) -> list[Consumer]:
        """Return the consumers, in the order in which they are served next; those that are full come last."""
        return [*(consumer for peers in self.consumers for consumer in peers), *self._full]

    def activity_of(self, consumer: Consumer) -> str:
        """Return RabbitMQ's word for what a consumer does: ``up``, ``single_active`` or ``waiting``."""
        if not self.policy.single_active_consumer:
            return "up"
        return "single_active" if consumer is self._choose_active() else "waiting"

    def plan_expiry(self, now: float) -> None:
        """With x-expires: have ``handle_timeout`` called when the queue has been unused for so long.

        To declare the queue again is a use of it.
        """
        if self.policy.expires is not None and not self.consumer_count:
            self.last_used = now
            self.vhost.broker.call_at(now + self.policy.expires, self)

    def handle_timeout(self, now: float) -> None:
        """A deadline of the queue has come: it expires itself, or messages in it do."""
        if self.deleted:
            return
        expires = self.policy.expires
        if expires is not None and not self.consumer_count:
            # The deadline is not moved each time that the queue is used.  It is compared when it comes.
            due = self.last_used + expires
            if now >= due:
                self.vhost.remove_queue(self, now)
                return
            self.vhost.broker.call_at(due, self)
        # Messages may have expired.  The broker processes touched queues after all timeouts.
        self.touch()

    def statistics(self) -> dict[str, int]:
        """Return the present counters."""
        return {
            "messages_ready": self.backlog.count,
            "bytes_ready": self.backlog.size,
            "messages_outstanding": self.outstanding,
            "messages_in": self.messages_in,
            "messages_out": self.messages_out,
            "consumers": self.consumer_count,
        }

    def _deliver(self, overdue: float | None) -> None:
        if self.policy.single_active_consumer:
            self._deliver_to_active(overdue)
            return
        backlog = self.backlog
        # A consumer priority is served only when no consumer of a higher one has room (RabbitMQ).  Nothing
        # that is called from here changes the consumers: a receiver tells its client only that it is busy.
        for peers in self.consumers:
            # How many consumers in a row had no room.  When all of them had none, the round is over.
            waiting = 0
            while backlog.count and waiting < len(peers):
                consumer = peers[0]
                # ``is_full``, without the call.  Such a consumer is not asked for its room: no queue has to
                # wait for its window, since an acknowledgement comes first.
                if 0 < consumer.prefetch <= consumer.outstanding and not consumer.auto_ack:
                    # One of each priority stays, so that no deque is empty.
                    if self.consumer_count > _FEW_CONSUMERS and len(peers) > 1:
                        consumer.waits_for_room = True
                        self._full[peers.popleft()] = None
                        continue
                    room = 0
                else:
                    room = consumer.room()
                if room <= 0:
                    waiting += 1
                    # The next turn begins with the next consumer also if this one was skipped.
                    peers.rotate(-1)
                    continue
                waiting = 0
                # A single consumer gets all that it has room for: there is nobody to share with.
                if len(peers) == 1:
                    self._deliver_to(consumer, room, overdue)
                else:
                    if room > 1:
                        room = min(room, self._share(len(peers)))
                    self._deliver_to(consumer, room, overdue)
                    peers.rotate(-1)
            if not backlog.count:
                return

    def _deliver_to_active(self, overdue: float | None) -> None:
        """Deliver to the first consumer only.

        It stays the active one while it is subscribed and attached, whatever the priorities.
        """
        active = self._active = self._choose_active()
        if active is None:
            return
        while self.backlog.count and (room := active.room()) > 0:
            self._deliver_to(active, room, overdue)

    def _choose_active(self) -> Consumer | None:
        active = self._active
        # A detached consumer would stop the queue for as long as its session waits for a connection.  With
        # unacknowledged messages it stays the active one: its successor would get later messages first
        # (see ``remove_consumer``).  They come back when the session ends.
        if active is None or (active.receiver.detached and not active.outstanding):
            attached = (each for each in self.all_consumers() if not each.receiver.detached)
            active = next(attached, None)
        return active

    def _share(self, consumers: int) -> int:
        """Return how many messages the next of several consumers gets.

        One by one while few messages are ready, as RabbitMQ does; more in a long queue, because it is
        cheaper.
        """
        return max(1, min(_LARGEST_SHARE, self.backlog.count // (8 * consumers)))

    def _deliver_to(self, consumer: Consumer, most: int, overdue: float | None) -> None:
        receiver = consumer.receiver
        if overdue is not None:
            # What has expired behind a message that has not is at the front when that one is delivered.
            expired = self.backlog.take_expired(overdue)
            if expired:
                self._expired_between = [*self._expired_between, *expired]
        # ``most`` counts messages, the window bytes.  Neither bounds the other.
        spans, count, size = self.backlog.take(most, receiver.window.left, overdue)
        if not count:
            return
        if self._counts:
            spans = [part for span in spans for part in self._counts.marked(span)]
        if self._keyed_from is not None and not receiver.accepts_keyed:
            spans = [part for span in spans for part in _divided(span)]
        self._hand_to(consumer, spans, count, size)

    def _hand_to(self, consumer: Consumer, spans: list[Span], count: int, size: int) -> None:
        """Deliver spans that are not in the backlog: ``count`` messages with ``size`` octets of bodies."""
        self.messages_out += count
        if not consumer.auto_ack:
            self.outstanding += count
        else:
            # With automatic acknowledgement the messages are gone now, before the client has read them.
            for span in spans:
                if span.location is not None:
                    self.forget(span)
        consumer.receiver.deliver(consumer, spans, count, size)

    def _expiry(self, expiration: int | None, now: float) -> float | None:
        self._may_expire = True
        # The shorter of the queue's and the message's time to live applies (RabbitMQ).
        lives = self.policy.message_ttl
        if expiration is not None:
            seconds = min(expiration, _LONGEST_EXPIRATION) / 1000
            lives = seconds if lives is None else min(lives, seconds)
        return None if lives is None else now + lives

    def _give_up_expired(self, now: float) -> None:
        # After the deliveries: a dead letter may come back to this queue, and have it processed.
        expired, self._expired_between = self._expired_between, ()
        for span in expired:
            self._give_up(span, "expired", now)

    def _give_up_returned(self, now: float) -> None:
        dead, self._returned_too_often = self._returned_too_often, []
        for span in dead:
            self._give_up(span, "delivery_limit", now)

    def _expire(self, now: float) -> None:
        for span in self.backlog.take_expired(now):
            self._give_up(span, "expired", now)

    def has_room_for(self, batch: Batch) -> bool:
        """Whether it accepts all of a batch now; a queue that does not reject has always room."""
        return not self._rejects or self._acceptable(batch) == len(batch.bodies)

    def _acceptable(self, batch: Batch) -> int:
        """Return how many of a batch's first messages are below the limits of a queue that rejects."""
        room = len(batch.bodies)
        if self.policy.max_length is not None:
            room = min(room, max(0, self.policy.max_length - self.backlog.count))
        if self.policy.max_length_bytes is not None:
            left = self.policy.max_length_bytes - self.backlog.size
            if batch.size > left:
                # RabbitMQ accepts messages until the limit is passed, including the one that passes it.
                for index, body in enumerate(batch.bodies[:room]):
                    if left <= 0:
                        return index
                    left -= len(body)
        return room

    def _drop_excess(self, now: float) -> None:
        policy, backlog = self.policy, self.backlog
        # The excess is computed anew for each step.  A step may read a page, of which messages may be lost
        # or smaller than estimated: to drop what seemed too much before would drop too many.
        if policy.max_length is not None:
            while (excess := backlog.count - policy.max_length) > 0:
                self._drop_oldest(excess, now)
        if policy.max_length_bytes is not None:
            while backlog.size > policy.max_length_bytes:
                self._drop_oldest(1, now)

    def _drop_oldest(self, excess: int, now: float) -> None:
        for span in self.backlog.take_oldest(excess):
            self._give_up(span, "maxlen", now)

    def _give_up(self, span: Span, reason: Reason, now: float) -> None:
        # The dead letter is stored before its original is dropped.  A crash between the two leaves both; the
        # other order could leave none.  A deleted queue dead-letters nothing (RabbitMQ).
        if self.policy.dead_letter_exchange is not None and not self.deleted:
            dead = span if self._counts is None else self._counts.unmarked(span)
            for part in _divided(dead):
                self.vhost.publish_dead(self, part, reason, now)
        self.forget(span)

    def forget(self, item: Item) -> None:
        """These messages are not the queue's any more: tell the store."""
        # A page is on disk always; a span only if the store has given it a location.
        if item.batch is None or item.location is not None:
            self.vhost.store.drop_messages(self, item)
        if self._counts:
            stop = item.stop if item.batch is None else item.first + len(item)
            self._counts.forget(item.first, stop)


def _priority_behind(peers: deque[Consumer]) -> int:
    """Return a number that ascends from the highest priority to the lowest."""
    return -peers[0].priority


def _divided(span: Span) -> Sequence[Span]:
    return span.divided() if type(span.batch) is KeyedBatch else (span,)
