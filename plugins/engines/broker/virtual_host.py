"""Virtual host: the exchanges, queues and bindings of one name space, and the operations on them.

An operation that is refused raises a ``BrokerError`` and changes nothing, so every operation makes all of its
checks before its first change.  ``owner`` is the connection that asks, or the session if sessions outlive
connections: any object, compared by identity.  All methods are called by the broker's thread; ``now`` is the
time on its clock.

A virtual host does not know users: front ends ask ``Login.require`` first.

Three things follow from a change of exchanges, bindings or queues, in this order.  The objects are linked or
unlinked, the caches of ``routes`` forget what has become wrong, and the store is told of what is durable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import methodcaller
from typing import TYPE_CHECKING, Any

from kernel.contracts.lazy_figures import LazyFigures
from kernel.contracts.message import PLAIN, Batch, Envelope
from kernel.contracts.mixed_batch import KeyedBatch
from plugins.engines.broker.arguments import check_queue_type
from plugins.engines.broker.binding import Binding, Destination, identity_of
from plugins.engines.broker.clearance import Clearance
from plugins.engines.broker.consumer import Consumer
from plugins.engines.broker.dead_letters import Reason, dead_envelope, would_cycle
from plugins.engines.broker.declaration import (
    check_exchange_arguments,
    check_exchange_name,
    check_queue_name,
    make_system_exchanges,
    require_same_exchange,
    require_same_queue,
)
from plugins.engines.broker.disposal import Disposal
from plugins.engines.broker.errors import (
    AccessRefused,
    PreconditionFailed,
    default_exchange_refused,
    locked_queue,
    missing_exchange,
    missing_queue,
)
from plugins.engines.broker.exchange import Exchange
from plugins.engines.broker.matchers.kinds import make_matcher
from plugins.engines.broker.names import invent_name
from plugins.engines.broker.publishing_ids import REPEATED, PublishingId, PublishingIds
from plugins.engines.broker.queue import Queue
from plugins.engines.broker.routes import Route, Routes, check_publishable
from plugins.engines.broker.sink import Sink
from plugins.engines.broker.span import Span

if TYPE_CHECKING:
    from plugins.engines.broker.broker import Broker
    from plugins.engines.broker.stored_set import StoredSet

_NO_ARGUMENTS: Mapping[str, Any] = {}
_MOST_ROUNDS = 1000
"""Rounds of processing in one turn.  Dead letters may cause dead letters; not every cycle is detected
(``would_cycle``)."""


class VirtualHost:
    """One name space of the broker."""

    queue_type: type[Queue] = Queue
    """What its queues are.  A broker for tests has others (``faults/``)."""

    def __init__(self, name: str, broker: Broker) -> None:
        self.name = name
        self.broker = broker
        self.store = broker.store
        self.queues: dict[str, Queue] = {}
        self.exchanges: dict[str, Exchange] = make_system_exchanges(self.queues)
        self.stored_sets: dict[str, StoredSet] = {}
        self.touched: list[Queue] = []
        """Queues to process in this turn."""
        self._last_death: tuple[Envelope, Reason, str, str, str | None, int] | None = None
        """What ``dead_envelope`` was asked last ..."""
        self._dead = PLAIN
        """... and what it returned."""
        self.routes = Routes(
            name, self.exchanges, self.queues, self.store.check_envelope, Disposal(broker).take
        )
        self._owned: dict[object, list[Queue]] = {}
        self.quorum_queues = 0
        """How many of the queues are quorum queues: they store transient messages as well."""
        self.messages_in = self.messages_unrouted = self.messages_undeliverable = 0
        self.publishing_ids = PublishingIds(self)
        self.messages_repeated = 0
        """Messages that were dropped because of their publishing ids."""
        self.apply_policies_to_exchanges()

    def __repr__(self) -> str:
        return f"<VirtualHost {self.name!r}: {len(self.exchanges)} exchanges, {len(self.queues)} queues>"

    # Messages

    def publish(self, batch: Batch, now: float, route: Route | None = None) -> int | None:
        """Route a batch.

        Return how many of its first messages all queues accepted; None: no queue or sink took it; REPEATED:
        it was dropped, because the queues have taken it before.

        ``route``: a route that was found before, when a transaction is committed.
        """
        # ``find`` raises for an envelope that the store cannot write.  Nothing has changed yet then.
        queues, delivered_as, sinks, publishing_id = route or self.routes.find(batch.envelope)
        if delivered_as is not None:
            batch = batch.under(delivered_as)
            if publishing_id is not None:
                return self._publish_once(publishing_id, batch, now, Route(queues, None, sinks))
        count = len(batch.bodies)
        self.messages_in += count
        # A sink cannot refuse, so what it takes is accepted.  If there are queues, too, these decide.
        if sinks and _publish_to(sinks, batch, now) and not queues:
            return count
        if len(queues) == 1:
            return queues[0].publish(batch, now)
        if not queues:
            self.messages_unrouted += count
            return None
        # The smallest number: a message counts as accepted only if every queue has it.
        return min([queue.publish(batch, now) for queue in queues])

    def publish_keyed(self, batch: KeyedBatch, now: float, *, mandatory: bool) -> bool:
        """Publish messages that differ in their keys, if all may stay together until they are delivered.

        False: nothing was done.  Publish what ``batch.divided()`` returns.
        """
        matched = self.routes.match_keyed(batch)
        if matched is None:
            return False
        envelope = batch.envelope
        first = matched[0]
        for where in (first,) if matched.count(first) == len(matched) else set(matched):
            queues = 0
            for each in where:
                if isinstance(each, Exchange) or (isinstance(each, Queue) and not each.takes_keyed(envelope)):
                    return False
                queues += isinstance(each, Queue)
            # A message that only sinks get may be wanted by none of them.
            if mandatory and not queues:
                return False
        # From here on nothing can be refused.
        self.messages_in += len(batch.bodies)
        answers: dict[Destination, Sequence[bool]] = {}
        for each, share in _shares(batch, matched):
            if isinstance(each, Queue):
                each.publish_keyed(share, now)
            else:
                answers[each] = _publish_keyed_to(each, share, now)  # type: ignore[arg-type]  # no exchange
        self.messages_unrouted += _count_unused(matched, answers)
        return True

    def _publish_once(
        self, publishing_id: PublishingId, batch: Batch, now: float, route: Route
    ) -> int | None:
        """Publish a message that its publisher has numbered.

        All messages of the batch have the same number.
        """
        count = len(batch.bodies)
        if not self.publishing_ids.is_new(publishing_id):
            self.messages_repeated += count
            return REPEATED
        if count > 1:
            self.messages_repeated += count - 1
            batch = batch.slice(0, 1)
        # Not ``self.publish``: a class that inherits has seen this message already.
        accepted = VirtualHost.publish(self, batch, now, route)
        if not accepted:
            return accepted
        stored = any(
            queue.stored is not None and (batch.envelope.persistent or queue.keeps_all)
            for queue in route.queues
        )
        self.publishing_ids.note(publishing_id, batch, stored=stored)
        return count

    def has_room_for(self, batch: Batch) -> bool:
        """Whether no full queue will refuse a message of this batch."""
        return all(queue.has_room_for(batch) for queue in self.routes.find(batch.envelope).queues)

    def reaches_quorum_queue(self, envelope: Envelope) -> bool:
        """Whether messages under this envelope go to a quorum queue."""
        return any(queue.keeps_all for queue in self.routes.find(envelope).queues)

    def check_publish(self, exchange: str) -> None:
        """Raise the error for an exchange that clients may not publish to.

        A front end calls it once for each envelope.
        """
        if exchange:
            check_publishable(self.exchanges.get(exchange), exchange, self.name)

    def publish_dead(self, queue: Queue, span: Span, reason: Reason, now: float) -> None:
        """Publish messages that a queue drops to its dead-letter exchange.

        Without that exchange they are lost.
        """
        policy = queue.policy
        exchange = policy.dead_letter_exchange
        # The exchange may be missing: a queue may name one that is declared later or was deleted (RabbitMQ).
        if exchange is None or (exchange and exchange not in self.exchanges):
            return
        # Messages that are refused one after another mostly had one envelope.  That of the dead letters, with
        # its table ``x-death``, costs as much as all else that is done for one of them.
        second = int(self.broker.clock(now))
        death = (span.batch.envelope, reason, queue.name, exchange, policy.dead_letter_key, second)
        if death != self._last_death:
            self._last_death, self._dead = death, dead_envelope(*death)
        envelope = self._dead
        batch = span.under(envelope)
        # A dead letter has no BCC header any more (``dead_envelope``).
        try:
            route = self.routes.find(envelope)
        except PreconditionFailed:
            # The new entry in x-death makes the headers too deeply nested for the store.
            return
        if route.sinks:
            _publish_to(route.sinks, batch, now)
        # Nobody waits for an answer, so a full queue that refuses a dead letter loses it (RabbitMQ).
        for target in route.queues:
            if reason == "rejected" or not would_cycle(envelope, target.name):
                target.publish(batch, now)

    def process(self, now: float) -> None:
        """Process the queues that were touched, and those that this touches in turn."""
        rounds = 0
        # A queue may touch another one, by a dead letter, or itself.  Those are processed in the next round.
        # What is left after the last round stays touched, and the engine makes another turn of it.
        while self.touched and rounds < _MOST_ROUNDS:
            touched = self.touched
            self.touched = []
            for queue in touched:
                queue.process(now)
            rounds += 1

    # Exchanges

    def declare_exchange(
        self,
        name: str,
        kind: str = "direct",
        *,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Mapping[str, Any] = _NO_ARGUMENTS,
    ) -> Exchange:
        """Return the exchange; create it if it does not exist, refuse if it exists with other properties."""
        check_exchange_name(name, self.exchanges)
        # Made also for an exchange that exists: the type and its arguments are checked by it.
        matcher = make_matcher(kind, arguments, self.broker.exchange_types)
        exchange = self.exchanges.get(name)
        if exchange is not None:
            require_same_exchange(
                exchange,
                self.name,
                kind=kind,
                durable=durable,
                auto_delete=auto_delete,
                internal=internal,
                arguments=arguments,
            )
            return exchange
        check_exchange_arguments(name, self.name, arguments)
        if durable:
            self.store.check_arguments(arguments)
        exchange = Exchange(
            name,
            kind,
            matcher,
            durable=durable,
            auto_delete=auto_delete,
            internal=internal,
            arguments=arguments,
            operator_policy=self.broker.policies.of_exchange(self.name, name),
        )
        self.exchanges[name] = exchange
        # Another exchange may have named this one as its alternate before it existed.
        self.routes.forget()
        if durable:
            self.store.keep_exchange(self.name, exchange)
        return exchange

    def apply_policies(self, now: float) -> None:
        """Policies have changed: each queue and each exchange gets the one that applies to it now."""
        self.apply_policies_to(list(self.queues.values()), now)
        self.apply_policies_to_exchanges()

    def apply_policies_to(self, queues: Iterable[Queue], now: float) -> None:
        """Give each of these queues the policy that applies to it now."""
        policies = self.broker.policies
        for queue in queues:
            if queue.deleted:
                continue
            policy = policies.of_queue(self.name, queue.name) if queue.takes_policies else None
            if policy != queue.operator_policy:
                queue.take_policy(policy, now)

    def apply_policies_to_exchanges(self) -> None:
        """Give each exchange the policy that applies to it now."""
        changed = False
        for exchange in self.exchanges.values():
            # The default exchange has none: what it does not route is lost or returned (RabbitMQ).
            policy = self.broker.policies.of_exchange(self.name, exchange.name) if exchange.name else None
            if policy != exchange.operator_policy:
                exchange.take_policy(policy)
                changed = True
        if changed:
            self.routes.forget()

    def find_exchange(self, name: str) -> Exchange:
        """Return an exchange; raise ``NotFound`` if it does not exist."""
        exchange = self.exchanges.get(name)
        if exchange is None:
            raise missing_exchange(name, self.name)
        return exchange

    def find_destination(self, name: str) -> Exchange:
        """Return an exchange that may be the destination of a binding; the default exchange may not."""
        if not name:
            raise default_exchange_refused()
        return self.find_exchange(name)

    def delete_exchange(self, name: str, *, if_unused: bool = False) -> None:
        """Delete an exchange and its bindings.  It is no error if it does not exist."""
        if not name:
            raise default_exchange_refused()
        exchange = self.exchanges.get(name)
        if name.startswith("amq.") and exchange is not None:
            raise AccessRefused(f"deletion of system exchange '{name}' in vhost '{self.name}' not allowed")
        if exchange is None:
            return
        if if_unused and exchange.bindings:
            raise PreconditionFailed(f"exchange '{name}' in vhost '{self.name}' in use")
        self._remove_exchange(exchange)

    def _remove_exchange(self, exchange: Exchange) -> None:
        # Removed first: the removal of a binding below may delete an auto-delete exchange, which may in turn
        # be bound to this one.
        del self.exchanges[exchange.name]
        for binding in list(exchange.bindings.values()):
            exchange.remove(binding)
            del binding.destination.incoming[binding.identity]
            self._drop_binding(binding)
        for binding in list(exchange.incoming.values()):
            self._remove_binding(binding)
        self.routes.forget()
        if exchange.durable:
            self.store.drop_exchange(exchange)

    # Bindings

    def bind(
        self,
        source: str,
        destination: Destination,
        key: str = "",
        arguments: Mapping[str, Any] = _NO_ARGUMENTS,
    ) -> None:
        """Bind a queue, an exchange or a sink to an exchange.  If the binding exists, nothing changes."""
        if not source:
            raise default_exchange_refused()
        exchange = self.find_exchange(source)
        # Checked also if the binding exists, so that the answer does not depend on that.
        exchange.matcher.check(key, arguments)
        identity = identity_of(exchange, destination, key, arguments)
        if identity in exchange.bindings:
            return
        binding = Binding(source=exchange, destination=destination, key=key, arguments=arguments)
        if binding.durable:
            self.store.check_arguments(arguments)
        exchange.add(binding)
        destination.incoming[identity] = binding
        self.routes.forget_binding(binding)
        if binding.durable:
            self.store.keep_binding(self.name, binding)

    def unbind(
        self,
        source: str,
        destination: Destination,
        key: str = "",
        arguments: Mapping[str, Any] = _NO_ARGUMENTS,
    ) -> None:
        """Remove a binding.  It is no error if it does not exist."""
        if not source:
            raise default_exchange_refused()
        exchange = self.exchanges.get(source)
        if exchange is None:
            return
        binding = exchange.bindings.get(identity_of(exchange, destination, key, arguments))
        if binding is not None:
            del destination.incoming[binding.identity]
            self._remove_binding(binding)

    def _remove_binding(self, binding: Binding) -> None:
        exchange = binding.source
        exchange.remove(binding)
        self.routes.forget_binding(binding)
        self._drop_binding(binding)
        # An auto-delete exchange is deleted with the last binding from it, so one that never had a binding
        # stays (RabbitMQ).  It may be gone already: exchanges may be bound in a circle.
        if exchange.auto_delete and not exchange.bindings and exchange.name in self.exchanges:
            self._remove_exchange(exchange)

    def _drop_binding(self, binding: Binding) -> None:
        if binding.durable:
            self.store.drop_binding(binding)

    # Queues

    def declare_queue(
        self,
        name: str,
        owner: object,
        now: float,
        *,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Mapping[str, Any] = _NO_ARGUMENTS,
    ) -> Queue:
        """Return the queue; create it if it does not exist, refuse if it exists with other properties.

        If the name is empty, the broker chooses one.  An exclusive queue is never durable: it ends with its
        owner, so ``durable`` is ignored (RabbitMQ).
        """
        if name:
            check_queue_name(name)
        durable = durable and not exclusive
        existing = self.queues.get(name)
        if existing is not None:
            # The owner is checked before the properties, as RabbitMQ does: clients compare the error.
            if exclusive != existing.exclusive or (exclusive and existing.owner is not owner):
                raise locked_queue(name, self.name)
            require_same_queue(existing, durable=durable, auto_delete=auto_delete, arguments=arguments)
            existing.plan_expiry(now)
            return existing
        check_queue_type(
            name,
            self.name,
            durable=durable,
            exclusive=exclusive,
            auto_delete=auto_delete,
            arguments=arguments,
        )
        name = name or invent_name("amq.gen-", self.broker.random)
        return self.make_queue(
            name,
            now,
            durable=durable,
            auto_delete=auto_delete,
            owner=owner if exclusive else None,
            arguments=arguments,
        )

    def make_queue(
        self,
        name: str,
        now: float,
        *,
        durable: bool = False,
        auto_delete: bool = True,
        owner: object | None = None,
        arguments: Mapping[str, Any] = _NO_ARGUMENTS,
        takes_policies: bool = True,
    ) -> Queue:
        """Create a queue under any name: for direct replies, and for queues that a store restores.

        ``takes_policies``: whether an operator's policies apply to it.
        """
        if durable:
            self.store.check_arguments(arguments)
        queue = self.queue_type(
            name,
            self,
            durable=durable,
            auto_delete=auto_delete,
            owner=owner,
            arguments=arguments,
            operator_policy=self.broker.policies.of_queue(self.name, name) if takes_policies else None,
            now=now,
        )
        queue.takes_policies = takes_policies
        self.queues[queue.name] = queue
        self.quorum_queues += queue.keeps_all
        # The default exchange leads to every queue by its name: a new queue changes routes without a binding.
        self.routes.forget_envelopes()
        if queue.owner is not None:
            self._owned.setdefault(queue.owner, []).append(queue)
        queue.plan_expiry(now)
        if queue.durable:
            self.store.keep_queue(queue)
        return queue

    def find_queue(self, name: str, owner: object) -> Queue:
        """Return a queue that ``owner`` may use; raise ``NotFound`` or ``ResourceLocked``."""
        queue = self.queues.get(name)
        if queue is None:
            raise missing_queue(name, self.name)
        if queue.owner is not None and queue.owner is not owner:
            raise locked_queue(name, self.name)
        return queue

    def delete_queue(
        self, name: str, owner: object, now: float, *, if_unused: bool = False, if_empty: bool = False
    ) -> int:
        """Delete a queue; return how many messages were ready.

        It is no error if the queue does not exist.
        """
        queue = self.find_to_delete(name, owner, now, if_unused=if_unused, if_empty=if_empty)
        if queue is None:
            return 0
        count = queue.backlog.count
        self.remove_queue(queue, now)
        return count

    def find_to_delete(
        self, name: str, owner: object, now: float, *, if_unused: bool = False, if_empty: bool = False
    ) -> Queue | None:
        """Return a queue that may be deleted, up to date as of ``now``; None if it does not exist."""
        if name not in self.queues:
            return None
        queue = self.find_queue(name, owner)
        # So that expired messages, and those that consumers take now, do not count.
        queue.process(now)
        if if_unused and queue.consumer_count:
            raise PreconditionFailed(f"queue '{name}' in vhost '{self.name}' in use")
        if if_empty and queue.backlog.count:
            raise PreconditionFailed(f"queue '{name}' in vhost '{self.name}' not empty")
        return queue

    def remove_queue(self, queue: Queue, now: float) -> None:
        """Remove a queue with its bindings, and cancel its consumers.

        Its unacknowledged messages stay in the receivers that have them.  To acknowledge them is no error.
        """
        # Several causes may meet in one turn: its expiry, its last consumer, the end of its owner.  Another
        # queue of the same name may have been declared since.
        if self.queues.get(queue.name) is not queue:
            return
        del self.queues[queue.name]
        self.quorum_queues -= queue.keeps_all
        # Set before consumers are cancelled: a client that then acknowledges or requeues must not touch the
        # queue.
        queue.deleted = True
        for consumer in queue.all_consumers():
            del consumer.receiver.consumers[consumer.tag]
            consumer.receiver.on_cancelled(consumer)
        queue.forget_consumers()
        left = Clearance(self.broker, queue, queue.backlog.take_all())
        # Only a queue that has something on disk has pages.
        if queue.stored is not None or queue.overflow is not None:
            for clearance in (*self.broker.clearances, left):
                clearance.detach(queue)
        left.begin(now)
        for binding in list(queue.incoming.values()):
            self._remove_binding(binding)
        self.routes.forget_envelopes()
        if queue.owner is not None and queue in self._owned.get(queue.owner, ()):
            self._owned[queue.owner].remove(queue)
        self.store.drop_queue(queue)

    def removal(self, now: Callable[[], float]) -> Iterator[None]:
        """Remove all queues and exchanges: the virtual host itself is going to be removed.

        It pauses after each binding, queue, exchange and publisher.
        """
        for queue in list(self.queues.values()):
            # One may be gone already, with its last consumer or its owner.
            while queue.incoming and not queue.deleted:
                self._remove_binding(queue.incoming.popitem()[1])
                yield
            self.remove_queue(queue, now())
            yield
        for exchange in list(self.exchanges.values()):
            # One may be gone already, with the last binding from it.
            while exchange.incoming and self.exchanges.get(exchange.name) is exchange:
                self._remove_binding(exchange.incoming.popitem()[1])
                yield
            # The exchanges that every virtual host has are not stored, and go with it.
            if not exchange.name.startswith("amq.") and exchange.name:
                while exchange.bindings and self.exchanges.get(exchange.name) is exchange:
                    # The last one: to look for the first takes longer with each that has gone.
                    binding = next(reversed(exchange.bindings.values()))
                    del binding.destination.incoming[binding.identity]
                    self._remove_binding(binding)
                    yield
                if self.exchanges.get(exchange.name) is exchange:
                    self._remove_exchange(exchange)
                    yield
        yield from self.publishing_ids.removal()

    def remove_sink(self, sink: Sink) -> None:
        """Remove all bindings to a sink."""
        for binding in list(sink.incoming.values()):
            del sink.incoming[binding.identity]
            self._remove_binding(binding)

    def release(self, owner: object, now: float) -> None:
        """Delete the exclusive queues of a connection that has ended."""
        # A copy: each removal takes its queue out of the list.
        for queue in list(self._owned.get(owner, ())):
            self.remove_queue(queue, now)
        self._owned.pop(owner, None)

    # Stored sets

    def stored_set(self, name: str) -> StoredSet:
        """Return the stored set of this name; create it, durably, if it does not exist.

        ``stored_sets`` has those that exist.  A name begins with that of the front end: "mqtt.retained".
        """
        found = self.stored_sets.get(name)
        if found is None:
            # Imported here: only MQTT and what is like it keeps messages in sets.
            from plugins.engines.broker.stored_set import StoredSet

            found = self.stored_sets[name] = StoredSet(name, self)
            self.store.keep_set(found)
        return found

    def delete_stored_set(self, name: str) -> None:
        """Delete a stored set with its messages.  It is no error if it does not exist."""
        found = self.stored_sets.pop(name, None)
        if found is not None:
            found.forget_unread()
            self.store.drop_set(found)

    # Consumers

    def subscribe(self, consumer: Consumer, now: float) -> None:
        """Start a consumer; refuse if it or another consumer of the queue is exclusive."""
        queue = consumer.queue
        # RabbitMQ: the queue itself sees to it that only one consumer is active.
        if consumer.exclusive and queue.policy.single_active_consumer:
            raise AccessRefused(f"queue '{queue.name}' in vhost '{self.name}' in exclusive use")
        # One that is exclusive is alone, so of several consumers none has to be looked at.
        count = queue.consumer_count
        if count and (consumer.exclusive or (count == 1 and queue.all_consumers()[0].exclusive)):
            raise AccessRefused(f"queue '{queue.name}' in vhost '{self.name}' in exclusive use")
        consumer.receiver.consumers[consumer.tag] = consumer
        queue.add_consumer(consumer, now)

    def unsubscribe(self, consumer: Consumer, now: float) -> None:
        """End a consumer; its unacknowledged messages stay outstanding.

        An auto-delete queue is deleted with its last one.
        """
        queue = consumer.queue
        consumer.receiver.consumers.pop(consumer.tag, None)
        # ``remove_queue`` has removed its consumers already.
        if queue.deleted:
            return
        queue.remove_consumer(consumer, now)
        if queue.auto_delete and not queue.consumer_count:
            self.remove_queue(queue, now)

    def statistics(self) -> dict[str, Any]:
        """Return the present counters."""
        return {
            "messages_in": self.messages_in,
            "messages_unrouted": self.messages_unrouted,
            "messages_undeliverable": self.messages_undeliverable,
            "messages_repeated": self.messages_repeated,
            "exchanges": len(self.exchanges),
            # Statistics are read by other threads: a copy is made in one step, and an iteration is not.
            "queues": LazyFigures(self.queues.copy(), methodcaller("statistics")),
        }


def _publish_to(sinks: tuple[Sink, ...], batch: Batch, now: float) -> bool:
    """Publish a batch to every sink; return whether any of them used it."""
    # Every sink is called, whatever the others answered.
    wanted = False
    for sink in sinks:
        wanted = sink.publish(batch, now) or wanted
    return wanted


def _publish_keyed_to(sink: Sink, batch: KeyedBatch, now: float) -> Sequence[bool]:
    """Publish messages that differ in their keys to a sink; return for each whether it was used."""
    together: Callable[[KeyedBatch, float], Sequence[bool]] | None = getattr(sink, "publish_keyed", None)
    if together is not None:
        return together(batch, now)
    return batch.per_message([sink.publish(part, now) for part in batch.divided()])


def _count_unused(
    matched: Sequence[tuple[Destination, ...]], answers: Mapping[Destination, Sequence[bool]]
) -> int:
    """Return how many messages neither a queue nor a sink has used.

    ``matched``: where each of them goes.  ``answers``: what sinks have said of those that they got.
    """
    if all(map(all, answers.values())):
        return matched.count(())
    following = {sink: iter(answer) for sink, answer in answers.items()}
    unused = 0
    for where in matched:
        # Each sink is asked, so that its next answer is of its next message.
        used = [next(following[each]) if each in following else True for each in dict.fromkeys(where)]
        unused += not any(used)
    return unused


def _shares(
    batch: KeyedBatch, matched: Sequence[tuple[Destination, ...]]
) -> list[tuple[Destination, KeyedBatch]]:
    """Return the messages of a batch by where they go; each destination gets its own in their order."""
    first = matched[0]
    # A destination gets a message once, however many of its bindings match.
    if matched.count(first) == len(matched):
        return [(each, batch) for each in dict.fromkeys(first)]
    shares: dict[Destination, tuple[list[Any], list[bytes]]] = {}
    shares_of: dict[tuple[Destination, ...], list[tuple[list[Any], list[bytes]]]] = {}
    for where, body, key in zip(matched, batch.bodies, batch.keys, strict=True):
        found = shares_of.get(where)
        if found is None:
            found = shares_of[where] = [shares.setdefault(each, ([], [])) for each in dict.fromkeys(where)]
        for bodies, keys in found:
            bodies.append(body)
            keys.append(key)
    return [(each, batch.part(*share)) for each, share in shares.items()]
