"""The port's account of what was taken and confirmed, against a model that keeps a list of messages."""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kernel.contracts.message import batch_of
from tests.kernel.dispatcher.conftest import System
from tests.seeds import examples

CAREFUL = ("careful/1", "careful/2")
PLAIN = ("plain/1", "plain/2")


class Waiting(NamedTuple):
    """A message that was taken and that its source waits for."""

    position: int
    source: str
    body: bytes


class Account(RuleBasedStateMachine):
    """One port, to which sources that wait for confirmations and others send; all come and go."""

    def __init__(self) -> None:
        super().__init__()
        self.system = System()
        self.number = 0
        self.position = 0
        self.generation = 0
        self.alive: dict[str, str] = {}
        self.sent: dict[str, list[bytes]] = {}
        self.confirmed: dict[str, set[bytes]] = {}
        self.waiting: list[Waiting] = []
        self.said: list[int] = []

    def teardown(self) -> None:
        self.system.close()

    @initialize()
    def connect(self) -> None:
        for group in (*CAREFUL, *PLAIN):
            self.system.route(group, "target", confirm=group in CAREFUL)
        self.system.port("target")

    @rule(group=st.sampled_from((*CAREFUL, *PLAIN)))
    def join(self, group: str) -> None:
        if group not in self.alive:
            self.generation += 1
            name = self.alive[group] = f"{group}/{self.generation}"
            self.sent[name], self.confirmed[name] = [], set()
            self.system.port(name, group, thread=group)
            self.system.turn()

    @rule(group=st.sampled_from((*CAREFUL, *PLAIN)))
    def leave(self, group: str) -> None:
        if group in self.alive:
            self.system.ports[self.alive.pop(group)].close()
            self.system.turn()

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), sizes=st.lists(st.integers(1, 4), min_size=1, max_size=3))
    def send(self, data: Any, sizes: list[int]) -> None:
        name = self.alive[data.draw(st.sampled_from(sorted(self.alive)))]
        batches = []
        for size in sizes:
            bodies = [b"%d" % (self.number + at) for at in range(size)]
            self.number += size
            self.sent[name] += bodies
            batches.append(batch_of(bodies))
        self.system.ports[name].send(batches)
        self.system.turn()

    @rule(most=st.integers(1, 10))
    def take(self, most: int) -> None:
        port = self.system.ports["target"]
        taken = port.take(most)
        bodies = [body for batch in taken.batches for body in batch.bodies]
        assert taken.count == len(bodies)
        assert bool(taken) == bool(bodies)
        careful = port.origin[0].startswith("careful")
        if bodies and careful:
            assert taken.position is not None
        for body in bodies:
            self.position += 1
            if careful:
                self.waiting.append(Waiting(self.position, port.origin[0], body))
        assert taken.position in (None, self.position)
        if self.waiting and bodies:
            assert taken.position is not None

    @rule(data=st.data())
    def confirm(self, data: Any) -> None:
        """Any position, one that was confirmed long ago as well."""
        position = data.draw(st.integers(0, self.position))
        self.said.append(position)
        self.system.ports["target"].confirm_through(position)
        for message in self.waiting:
            if message.position <= position:
                self.confirmed[message.source].add(message.body)
        self.waiting = [message for message in self.waiting if message.position > position]
        self.system.turn()

    @rule()
    def confirm_nothing(self) -> None:
        self.system.ports["target"].confirm_through(None)
        self.system.turn()

    @rule()
    def say_again(self) -> None:
        for position in self.said:
            self.system.ports["target"].confirm_through(position)
        self.system.turn()

    @rule()
    def take_again(self) -> None:
        again = self.system.ports["target"].take_again()
        assert [body for batch in again.batches for body in batch.bodies] == [
            message.body for message in self.waiting
        ]
        before = self.position
        self.position += len(self.waiting)
        self.waiting = [
            message._replace(position=before + at) for at, message in enumerate(self.waiting, start=1)
        ]
        assert (again.count, again.position) == (len(self.waiting), self.position if self.waiting else None)

    @invariant()
    def sources_know_what_is_confirmed_and_no_more(self) -> None:
        for name in self.alive.values():
            if name.startswith("careful"):
                source, confirmed = self.system.ports[name], self.confirmed[name]
                told = source.confirmed()
                assert confirmed.issuperset(self.sent[name][:told])
                if len(confirmed) == len(self.sent[name]):
                    assert told == len(confirmed)


Account.TestCase.settings = settings(max_examples=examples(150), stateful_step_count=40, deadline=None)
TestAccount = Account.TestCase
