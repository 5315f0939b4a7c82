"""Random programs of clients with sessions, against a model: what each gets, how often, and in which order.

Every client reads all that comes after each step, and acknowledges when a rule says so.  So messages of all QoS
come exactly once to each subscriber, but for two reasons: a connection is lost, and QoS 1 is sent again; a
subscription changes while messages wait, and they may come or not.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from plugins.engines.mqtt.retained import matcher_of
from tests.plugins.engines.mqtt.raw_client import (
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    Ack,
    Message,
    RawClient,
    all_that_came,
    publish,
)
from tests.plugins.engines.mqtt.still_server import StillServer
from tests.seeds import in_groups, many

CLIENTS = 3
MOST = 4
TOPICS = ["a", "a/b", "b/b", "s/1", "s/2"]
GROUPS = {"s/1": "$share/g/s/1", "s/2": "$share/h/+/2"}
"""The only subscriptions that match these topics."""
FILTERS = ["a", "a/#", "+/b", "a/b", *GROUPS.values()]
RELEASED = 3
"""Stands for the QoS of a message of QoS 2 for which PUBREC has come."""


class Pending(msgspec.Struct):
    """A message that a session, or a group, is to get."""

    qos: int
    copies: int = 1
    sure: bool = True
    """False: it may come or not, with any QoS."""


class Half:
    """A client: its half of a session, and what the model says of it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.client: RawClient | None = None
        self.forget()

    def forget(self) -> None:
        """There is no session any more."""
        self.lasting = False
        """Whether the session outlives this connection."""
        self.durable = False
        """Whether it was made to outlive its first one: then all its subscriptions have a queue."""
        self.filters: dict[str, int] = {}
        self.pending: dict[int, Pending] = {}
        self.latest = 0
        """The last message that has come with QoS 1 or 2 for the first time."""
        self.unanswered: list[Message | Ack] = []
        self.held: dict[int, int] = {}
        """Messages that are not acknowledged, by packet identifier."""
        self.begun: set[int] = set()
        """Packet identifiers of QoS 2 that are not done with."""
        self.most = MOST
        """How many messages of QoS 1 and 2 it takes."""
        self.restarted = False
        """Whether the broker was restarted during this session."""
        self.again: set[int] = set()
        """Packet identifiers that this connection was sent again and has not acknowledged."""
        self.sent: dict[int, tuple[str, int, int]] = {}
        """What it has published: topic, message and QoS by packet identifier."""


class Program:
    def __init__(self, directory: Path | None = None) -> None:
        """``directory``: of the store; None: all is in memory."""
        self.options = {} if directory is None else {"data_dir": str(directory), "fsync": False}
        # A broker that was restarted does not know what it had sent, but for the identifiers: messages of
        # groups then have others, and subscriptions that changed meanwhile count for all messages.
        self.granted = (0, 1, 2, 2) if directory is None else (2,)
        self.topics = TOPICS if directory is None else [topic for topic in TOPICS if topic not in GROUPS]
        self.server = self._start()
        self.halves = [Half(f"c{number}") for number in range(CLIENTS)]
        self.published = 0
        self.repeated: set[int] = set()
        """Messages that were published twice: their order and their holders say nothing."""
        self.groups: dict[str, dict[int, Pending]] = {name: {} for name in GROUPS.values()}
        self.holders: dict[int, Half] = {}
        """Who has a message of a group and has not acknowledged it."""
        self.deaf: Half | None = None
        """Who loses the answers to what it publishes."""

    def _start(self) -> StillServer:
        return StillServer({"max_inflight": MOST}, self.options)

    def run(self, random: Random, steps: int) -> None:
        """Do random things, and then all that is left to do."""
        try:
            self._run(random, steps)
            for half in self.halves:
                if half.lasting and half.client is None:
                    self._connect(half, lasting=True, clean=False, version=5, most=3)
            while any(self.answer(half, 100) for half in self.halves):
                pass
            for waiting in (*[half.pending for half in self.halves], *self.groups.values()):
                assert not [
                    message for message, pending in waiting.items() if pending.sure and pending.copies
                ]
            assert not [row for row in self.server.engine.inspect("queues") if row["messages"]]
        finally:
            self.server.close()

    def _run(self, random: Random, steps: int) -> None:
        for _ in range(steps):
            half = random.choice(self.halves)
            if self.options and random.random() < 0.03:
                self.restart()
            if half.client is None:
                if random.random() < 0.5:
                    self._connect_somehow(random, half)
                continue
            match random.choices(range(6), (2, 2, 4, 2, 25, 20))[0]:
                case 0:
                    self._connect_somehow(random, half)
                case 1:
                    self.leave(half, kindly=random.random() < 0.5)
                case 2:
                    self.subscribe(half, random.choice(FILTERS), random.choice(self.granted))
                case 3 if not self.options:
                    self.unsubscribe(half, random.choice(FILTERS))
                case 4:
                    lose = random.choices(("", "PUBACK", "PUBCOMP"), (10, 1, 1))[0]
                    self.publish(half, random.choice(self.topics), random.choice((0, 1, 2, 2)), lose)
                case _:
                    self.answer(half, random.randrange(1, 5), in_order=random.random() < 0.8)

    # Connections

    def _connect_somehow(self, random: Random, half: Half) -> None:
        version, clean = random.choice((4, 5)), random.random() < 0.1
        # Clean start and the end of the session are one thing in MQTT 3.1.1.
        lasting = random.random() < 0.9 if version == 5 else not clean
        self._connect(half, lasting=lasting, clean=clean, version=version, most=random.randrange(1, 6))

    def _connect(self, half: Half, *, lasting: bool, clean: bool, version: int, most: int) -> None:
        if half.client is not None:
            self._lost(half)
        continued = half.lasting and not clean
        if not continued:
            self._ended(half)
            half.durable = lasting
        half.lasting = lasting
        half.most = min(most if version == 5 else MOST, MOST)
        half.again = set()
        more: dict[str, Any] = {}
        if version == 5:
            more = {"session_expiry_interval": 100 if lasting else 0, "receive_maximum": most}
        before, half.client = half.client, self.server.client(version)
        connack = half.client.connect(client_id=half.name, clean_start=clean, **more)
        if before is not None:
            before.close()
        assert connack.session_present == continued
        self.read()
        for number, (topic, message, qos) in sorted(half.sent.items()):
            if qos == RELEASED:
                continue
            if qos == 1:
                self.repeated.add(message)
                self._expect(topic, message, qos)
            half.client.send(publish(topic, b"%d" % message, qos, number, dup=True))
            self.read()
        self._release(half)

    def _release(self, half: Half) -> None:
        """Send PUBREL for what was received."""
        for number, (_, _, qos) in list(half.sent.items()):
            if qos == RELEASED and half.client is not None:
                half.client.ack(PUBREL, number)
        self.read()

    def leave(self, half: Half, kindly: bool) -> None:
        client, half.client = half.client, None
        assert client is not None
        if kindly:
            client.disconnect()
        else:
            client.close()
        self._lost(half)
        if not half.lasting:
            self._ended(half)
        self.read()

    def restart(self) -> None:
        """Restart the broker.  Messages of QoS 0 are in memory only."""
        for half in self.halves:
            if half.client is not None:
                self._lost(half)
                half.client = None
        self.server.close()
        self.server = self._start()
        for half in self.halves:
            half.restarted = True
            if not half.lasting:
                self._ended(half)
            for pending in half.pending.values():
                pending.sure = pending.sure and pending.qos > 0

    def _lost(self, half: Half) -> None:
        """The connection is lost: other members get what it has of groups, but not what QoS 2 has begun."""
        half.unanswered.clear()
        for number, message in list(half.held.items()):
            if number not in half.begun and self._group_with(message) in half.filters:
                self._take_back(half, number)

    def _take_back(self, half: Half, number: int) -> None:
        message = half.held.pop(number)
        self.groups[self._group_with(message)][message].copies += 1
        if self.holders.get(message) is half:
            del self.holders[message]

    def _group_with(self, message: int) -> str:
        """Return the group that gets a message; empty: none."""
        return next((name for name, waiting in self.groups.items() if message in waiting), "")

    def _ended(self, half: Half) -> None:
        """The session is over."""
        for number, message in list(half.held.items()):
            name = self._group_with(message)
            if name and number not in half.begun:
                # It has left the group before, which may be another one since.
                self.groups[name][message].sure = False
                self._take_back(half, number)
            elif self.holders.get(message) is half:
                # Nobody else gets it [MQTT-4.8.2-5].
                del self.holders[message]
        for name in GROUPS.values():
            if name in half.filters:
                self._leave_group(half, name)
        half.forget()

    # Subscriptions

    def subscribe(self, half: Half, name: str, qos: int) -> None:
        assert half.client is not None
        assert half.client.subscribe(name, qos=qos) == (qos,)
        self._changed(half, name)
        half.filters[name] = qos
        self.read()

    def unsubscribe(self, half: Half, name: str) -> None:
        assert half.client is not None
        half.client.unsubscribe(name)
        self._changed(half, name)
        if name in self.groups and name in half.filters:
            self._leave_group(half, name)
        half.filters.pop(name, None)
        self.read()

    def _changed(self, half: Half, name: str) -> None:
        for pending in self.groups.get(name, half.pending).values():
            pending.sure = False

    def _leave_group(self, half: Half, name: str) -> None:
        del half.filters[name]
        if not any(name in other.filters for other in self.halves):
            # Its queue is gone.
            for pending in self.groups[name].values():
                pending.sure = False

    # Messages

    def publish(self, half: Half, topic: str, qos: int, lose: str) -> None:
        """``lose``: which answer is lost, together with the connection."""
        assert half.client is not None
        self.published += 1
        message, number = self.published, next(one for one in range(1, 100) if one not in half.sent)
        if qos:
            half.sent[number] = (topic, message, qos)
        self._expect(topic, message, qos)
        half.client.send(publish(topic, b"%d" % message, qos, number))
        self.deaf = half if lose == "PUBACK" else None
        self.read()
        if lose != "PUBACK":
            self.deaf = half if lose else None
            self._release(half)
        self.deaf = None
        if lose:
            self.leave(half, kindly=False)

    def _expect(self, topic: str, message: int, qos: int) -> None:
        """A message is about to be published."""
        if topic in GROUPS:
            if any(GROUPS[topic] in half.filters for half in self.halves):
                _add_pending(self.groups[GROUPS[topic]], message, qos)
            return
        for half in self.halves:
            found = [most for name, most in half.filters.items() if matcher_of(name)(topic)]
            # QoS 0 of a session that does not last has no queue, and is apart from it.
            kinds = (found,) if half.durable else ([q for q in found if not q], [q for q in found if q])
            for kind in kinds:
                if kind:
                    _add_pending(half.pending, message, min(qos, max(kind)))

    def answer(self, half: Half, most: int, *, in_order: bool = True) -> bool:
        """Acknowledge some of what has come; return whether there was any."""
        if half.client is None or not half.unanswered:
            return False
        if not in_order:
            half.unanswered.reverse()
        some, half.unanswered = half.unanswered[:most], half.unanswered[most:]
        for one in some:
            if isinstance(one, Ack):
                half.begun.discard(one.id)
                half.client.ack(PUBCOMP, one.id)
                continue
            message = half.held.pop(one.id)
            half.again.discard(one.id)
            if self.holders.get(message) is half:
                del self.holders[message]
            half.client.ack(PUBACK if one.qos == 1 else PUBREC, one.id)
        self.read()
        return True

    # What comes

    def read(self) -> None:
        """Have everybody read what there is, and compare it with the model."""
        for half in self.halves:
            if half.client is not None:
                for came in all_that_came(half.client):
                    if isinstance(came, Message):
                        self._came(half, came)
                    else:
                        assert isinstance(came, Ack), came
                        self._answered(half, came)

    def _answered(self, half: Half, came: Ack) -> None:
        if came.kind == PUBREL:
            assert came.id in half.begun
            half.unanswered.append(came)
        elif half is self.deaf:
            return
        elif came.kind == PUBREC:
            assert came.code < 0x80
            topic, message, _ = half.sent[came.id]
            half.sent[came.id] = (topic, message, RELEASED)
        else:
            del half.sent[came.id]

    def _came(self, half: Half, came: Message) -> None:
        message = int(came.payload)
        # A broker that was restarted does not know what it has sent.
        again = came.dup and (came.id in half.held or not half.restarted)
        if came.qos:
            half.unanswered.append(came)
            self._sent(half, came, message, again=again)
        if again:
            return
        name = GROUPS.get(came.topic)
        pending = self.groups[name][message] if name else half.pending[message]
        if name and message in self.repeated:
            pending.sure = False
            return
        assert pending.copies, "it has come before"
        pending.copies -= 1
        if pending.sure:
            assert came.qos <= pending.qos
        if message in self.repeated:
            return
        if name:
            assert message not in self.holders, "another member has it"
            if came.qos:
                self.holders[message] = half
        elif came.qos:
            assert message > half.latest, "out of order"
            half.latest = message

    def _sent(self, half: Half, came: Message, message: int, *, again: bool) -> None:
        """Look at the identifier of a message of QoS 1 or 2, and at how many there are."""
        if again:
            half.again.add(came.id)
            assert len(half.again | half.begun - half.held.keys()) <= half.most, "more than the client takes"
            assert half.held.get(came.id) == message, "sent again, but it was not sent under this identifier"
            return
        assert came.id not in half.held, "an identifier is used twice"
        assert came.id not in half.begun, "an identifier is used twice"
        half.held[came.id] = message
        if came.qos == 2:
            half.begun.add(came.id)
        assert len(half.held.keys() | half.begun) <= half.most, "more than the client takes"


def _add_pending(waiting: dict[int, Pending], message: int, qos: int) -> None:
    if message in waiting:
        waiting[message].copies += 1
        waiting[message].qos = max(waiting[message].qos, qos)
    else:
        waiting[message] = Pending(qos)


SEEDS = many(0, 120)


@pytest.mark.parametrize("seeds", in_groups(SEEDS[:20], 5), ids=str)
def test_short_programs(seeds: range) -> None:
    for seed in seeds:
        Program().run(Random(seed), 60)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", in_groups(many(1000, 40), 10), ids=str)
def test_programs_with_restarts(seeds: range, tmp_path: Path) -> None:
    for seed in seeds:
        Program(tmp_path / str(seed)).run(Random(seed), 200)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", in_groups(SEEDS, 30), ids=str)
def test_long_programs(seeds: range) -> None:
    for seed in seeds:
        Program().run(Random(seed), 300)
