"""What a broker is, said as simply as possible: queues are sets of numbers, acknowledgements a dictionary.

A message is a number; those published later are higher, and so a queue's order is that of the numbers, also
after a requeue.  Who of several consumers gets a message is not said here: any may that has room.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(eq=False)
class Queue:
    name: str
    auto_delete: bool = False
    owner: Connection | None = None
    ready: set[int] = field(default_factory=set)
    redelivered: set[int] = field(default_factory=set)
    consumers: list[Consumer] = field(default_factory=list)
    deleted: bool = False


@dataclass(eq=False)
class Consumer:
    tag: str
    queue: Queue
    channel: Channel
    auto_ack: bool
    exclusive: bool
    prefetch: int

    def outstanding(self) -> int:
        pending = [held for taken, _ in self.channel.verdicts for held in taken.values()]
        return sum(held.consumer is self for held in [*self.channel.unacked.values(), *pending])

    def has_room(self) -> bool:
        return not self.prefetch or self.outstanding() < self.prefetch


@dataclass(eq=False)
class Held:
    """A message that was handed out and not acknowledged."""

    queue: Queue
    number: int
    consumer: Consumer | None


@dataclass(eq=False)
class Channel:
    connection: Connection
    number: int
    mode: str = ""
    """``confirm``, ``tx`` or neither."""
    prefetch: int = 0
    next_tag: int = 1
    unacked: dict[int, Held] = field(default_factory=dict)
    consumers: dict[str, Consumer] = field(default_factory=dict)
    published: int = 0
    told: int = 0
    publications: list[tuple[int, bool, list[str]]] = field(default_factory=list)
    """Of the open transaction: message, mandatory, names of queues."""
    verdicts: list[tuple[dict[int, Held], str]] = field(default_factory=list)


@dataclass(eq=False)
class Connection:
    channels: dict[int, Channel] = field(default_factory=dict)


@dataclass(eq=False)
class Exchange:
    name: str
    kind: str
    bindings: set[tuple[str, str]] = field(default_factory=set)
    """Names of queues, and keys."""


class Refused(Exception):
    """The specification's, or RabbitMQ's, answer to what is wrong."""

    def __init__(self, level: str, code: int) -> None:
        super().__init__(f"{level} {code}")
        self.level = level
        self.code = code


class BrokerModel:
    """All there is, and what may be asked of it."""

    def __init__(self) -> None:
        self.queues: dict[str, Queue] = {}
        self.exchanges: dict[str, Exchange] = {"amq.topic": Exchange("amq.topic", "topic")}
        self.cancelled: list[Consumer] = []
        """Consumers that are to be told that their queue is gone."""
        self.returned: list[int] = []

    # Queues

    def find(self, name: str, asking: Connection) -> Queue:
        queue = self.queues.get(name)
        if queue is None:
            raise Refused("channel", 404)
        if queue.owner not in (None, asking):
            raise Refused("channel", 405)
        return queue

    def declare(self, name: str, asking: Connection, *, exclusive: bool, auto_delete: bool) -> Queue:
        queue = self.queues.get(name)
        if queue is None:
            self.queues[name] = queue = Queue(name, auto_delete, asking if exclusive else None)
        elif queue.owner is not (asking if exclusive else None):
            raise Refused("channel", 405)
        elif queue.auto_delete != auto_delete:
            raise Refused("channel", 406)
        return queue

    def delete(self, name: str, asking: Connection, *, if_unused: bool, if_empty: bool) -> int:
        if name not in self.queues:
            return 0
        queue = self.find(name, asking)
        if (if_unused and queue.consumers) or (if_empty and queue.ready):
            raise Refused("channel", 406)
        self._remove(queue)
        return len(queue.ready)

    def _remove(self, queue: Queue) -> None:
        del self.queues[queue.name]
        queue.deleted = True
        for consumer in queue.consumers:
            del consumer.channel.consumers[consumer.tag]
        self.cancelled += queue.consumers
        for exchange in self.exchanges.values():
            exchange.bindings = {binding for binding in exchange.bindings if binding[0] != queue.name}

    def purge(self, name: str, asking: Connection) -> int:
        queue = self.find(name, asking)
        count = len(queue.ready)
        queue.ready.clear()
        return count

    # Exchanges

    def exchange(self, name: str) -> Exchange:
        if name not in self.exchanges:
            raise Refused("channel", 404)
        return self.exchanges[name]

    def declare_exchange(self, name: str, kind: str) -> None:
        if kind not in ("direct", "fanout", "topic", "headers"):
            raise Refused("connection", 503)
        if self.exchanges.setdefault(name, Exchange(name, kind)).kind != kind:
            raise Refused("channel", 406)

    def delete_exchange(self, name: str, *, if_unused: bool) -> None:
        if name.startswith("amq."):
            raise Refused("channel", 403)
        if name in self.exchanges and if_unused and self.exchanges[name].bindings:
            raise Refused("channel", 406)
        self.exchanges.pop(name, None)

    def bind(self, queue: str, exchange: str, key: str, asking: Connection) -> None:
        self.find(queue, asking)
        self.exchange(exchange).bindings.add((queue, key))

    def unbind(self, queue: str, exchange: str, key: str, asking: Connection) -> None:
        if queue in self.queues:
            self.find(queue, asking)
            if exchange in self.exchanges:
                self.exchanges[exchange].bindings.discard((queue, key))

    def route(self, exchange: str, key: str) -> list[str]:
        if not exchange:
            return [key] if key in self.queues else []
        found = self.exchange(exchange)
        return sorted({queue for queue, pattern in found.bindings if matches(found.kind, pattern, key)})

    # Publishing

    def publish(self, channel: Channel, number: int, exchange: str, key: str, *, mandatory: bool) -> None:
        queues = self.route(exchange, key)
        if channel.mode == "tx":
            channel.publications.append((number, mandatory, queues))
            return
        channel.published += channel.mode == "confirm"
        self._deliver(number, queues, mandatory=mandatory)

    def _deliver(self, number: int, queues: list[str], *, mandatory: bool) -> None:
        there = [self.queues[name] for name in queues if name in self.queues]
        for queue in there:
            queue.ready.add(number)
        if mandatory and not there:
            self.returned.append(number)

    # Consuming

    def consume(self, channel: Channel, name: str, tag: str, *, auto_ack: bool, exclusive: bool) -> Consumer:
        if tag in channel.consumers:
            raise Refused("connection", 530)
        queue = self.find(name, channel.connection)
        if queue.consumers and (exclusive or any(other.exclusive for other in queue.consumers)):
            raise Refused("channel", 403)
        consumer = Consumer(tag, queue, channel, auto_ack, exclusive, channel.prefetch)
        queue.consumers.append(consumer)
        channel.consumers[tag] = consumer
        return consumer

    def cancel(self, channel: Channel, tag: str) -> None:
        consumer = channel.consumers.pop(tag, None)
        if consumer is not None:
            queue = consumer.queue
            queue.consumers.remove(consumer)
            if queue.auto_delete and not queue.consumers and not queue.deleted:
                self._remove(queue)

    def get(self, channel: Channel, name: str, *, auto_ack: bool) -> tuple[int, bool, int] | None:
        """Return the message, whether it was redelivered, and how many are left."""
        queue = self.find(name, channel.connection)
        if not queue.ready:
            return None
        number = min(queue.ready)
        self.hand_out(queue, number, channel, None, auto_ack=auto_ack)
        return number, number in queue.redelivered, len(queue.ready)

    def hand_out(
        self, queue: Queue, number: int, channel: Channel, consumer: Consumer | None, *, auto_ack: bool
    ) -> None:
        queue.ready.remove(number)
        if not auto_ack:
            channel.unacked[channel.next_tag] = Held(queue, number, consumer)
        channel.next_tag += 1

    # Acknowledging

    def acknowledge(self, channel: Channel, tag: int, verdict: str, *, multiple: bool) -> None:
        """``verdict``: ``accept``, ``requeue`` or ``drop``."""
        if multiple and tag == 0:
            tags = list(channel.unacked)
        elif multiple:
            tags = [each for each in channel.unacked if each <= tag]
        else:
            tags = [tag]
        if tag not in channel.unacked and not (multiple and tag == 0):
            raise Refused("channel", 406)
        taken = {each: channel.unacked.pop(each) for each in tags}
        if channel.mode == "tx":
            channel.verdicts.append((taken, verdict))
        elif verdict == "requeue":
            self._requeue(taken)

    def recover(self, channel: Channel, *, requeue: bool) -> None:
        if not requeue:
            raise Refused("connection", 540)
        self._requeue(channel.unacked)
        channel.unacked = {}

    def _requeue(self, taken: dict[int, Held]) -> None:
        for held in taken.values():
            held.queue.ready.add(held.number)
            held.queue.redelivered.add(held.number)

    # Modes

    def select(self, channel: Channel, mode: str) -> None:
        if channel.mode not in ("", mode):
            raise Refused("channel", 406)
        channel.mode = mode

    def commit(self, channel: Channel) -> None:
        self._require_transaction(channel)
        for number, mandatory, queues in channel.publications:
            self._deliver(number, queues, mandatory=mandatory)
        for taken, verdict in channel.verdicts:
            if verdict == "requeue":
                self._requeue(taken)
        channel.publications, channel.verdicts = [], []

    def roll_back(self, channel: Channel) -> None:
        self._require_transaction(channel)
        for taken, _ in channel.verdicts:
            channel.unacked.update(taken)
        channel.unacked = dict(sorted(channel.unacked.items()))
        channel.publications, channel.verdicts = [], []

    def _require_transaction(self, channel: Channel) -> None:
        if channel.mode != "tx":
            raise Refused("channel", 406)

    # Ends

    def close_channel(self, channel: Channel) -> None:
        for tag in list(channel.consumers):
            self.cancel(channel, tag)
        for taken in [channel.unacked, *(taken for taken, _ in channel.verdicts)]:
            self._requeue(taken)
        del channel.connection.channels[channel.number]

    def close_connection(self, connection: Connection) -> None:
        for channel in list(connection.channels.values()):
            self.close_channel(channel)
        for queue in [queue for queue in self.queues.values() if queue.owner is connection]:
            self._remove(queue)


def matches(kind: str, pattern: str, key: str) -> bool:
    """Whether a binding of an exchange wants a message."""
    if kind == "topic":
        return _words_match(pattern.split("."), key.split("."))
    return kind == "fanout" or pattern == key


def _words_match(pattern: list[str], words: list[str]) -> bool:
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(_words_match(pattern[1:], words[skipped:]) for skipped in range(len(words) + 1))
    return bool(words) and pattern[0] in ("*", words[0]) and _words_match(pattern[1:], words[1:])
