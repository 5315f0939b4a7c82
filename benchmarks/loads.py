"""Loads: floods through our broker and others', their rates, and the broker's time for a message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial

from benchmarks.amqp.brokers import Broker
from benchmarks.floods import Job
from benchmarks.processes import Child, Role, percentiles
from benchmarks.scenario import Figures, Row, Scenario, Side

Start = Callable[..., AbstractContextManager[Broker]]
"""Runs a broker; ``durable=True``: with a store."""


@dataclass(frozen=True)
class Load:
    """A job, and what is asked of our broker."""

    name: str
    what: str
    job: Job
    """Its ``count`` is for us, so that a round takes about a second."""
    their_count: int
    rate_bar: str = ">= 1.0"
    """Of the peer's rate."""
    most_cost: float = 0.0
    """Microseconds of the broker's processor time for a delivery; 0: there is no aim, but the peer's."""
    aim: float = 0.0
    """Messages a second instead of the peer's rate."""
    third_count: int = 0
    """Messages for another peer whose figures are only printed; 0: it is not measured."""

    @property
    def aim_name(self) -> str:
        """The name of the side that only has the aims."""
        return f"the aim: {self.most_cost:g} µs" if self.most_cost else f"the aim: {self.aim:,.0f} msg/s"


class Comparison:
    """The sides and rows of loads on brokers."""

    def __init__(self, prefix: str, flood: Role, loads: Sequence[Load], brokers: dict[str, Start]) -> None:
        """``flood`` gets a broker's address and a job.

        ``brokers``: ours, the peer and perhaps a third, by name.
        """
        self._prefix = prefix
        self._flood = flood
        self._loads = loads
        self._brokers = brokers

    def scenario(self) -> Scenario:
        """Return them all."""
        sides = [side for load in self._loads for side in self._sides(load)]
        rows = [row for load in self._loads for row in self._rows(load)]
        return Scenario(name=f"{self._prefix}_throughput", sides=tuple(sides), rows=tuple(rows))

    def _sides(self, load: Load) -> list[Side]:
        counts = (load.job.count, load.their_count, load.third_count)
        sides = []
        for (name, start), count in zip(self._brokers.items(), counts, strict=False):
            if count:
                job = replace(load.job, count=count)
                sides.append(Side(f"{name}, {load.name}", partial(self._measure, start, job)))
        if load.most_cost or load.aim:
            figures: Figures = {"cost": load.most_cost, "rate": load.aim}
            sides.append(Side(load.aim_name, lambda scale: figures))
        return sides

    def _rows(self, load: Load) -> list[Row]:
        ours, theirs, *others = (f"{name}, {load.name}" for name in self._brokers)
        also = tuple(others) if load.third_count else ()
        return [
            Row(
                name=f"{self._prefix}_{load.name}",
                what=load.what,
                figure="rate",
                unit="msg/s",
                bar=load.rate_bar,
                ours=ours,
                peers=(load.aim_name if load.aim else theirs,),
                also=(theirs,) if load.aim else also,
            ),
            Row(
                name=f"{self._prefix}_{load.name}_cost",
                what=f"the broker's processor time a delivery, {load.what}",
                figure="cost",
                unit="µs",
                bar="<= 1.0",
                ours=ours,
                peers=(load.aim_name if load.most_cost else theirs,),
                also=(theirs, *also) if load.most_cost else (),
            ),
        ]

    def _measure(self, start: Start, job: Job, scale: float) -> Figures:
        job = replace(job, count=max(int(job.count * scale), 2 * job.block))
        durable = not job.subscribers
        with start(durable=durable) as broker, Child(self._flood, broker.address, job) as client:
            client.hear()
            before = broker.processor_seconds()
            client.say("go")
            seconds = client.hear()
            deliveries = job.count // job.block * job.block * max(job.subscribers, 1)
            used = broker.processor_seconds() - before
            return {"rate": deliveries / seconds, "cost": used / deliveries * 1e6}


def with_library(
    start: Start,
    subscribe: Role,
    publish: Role,
    options: tuple[object, ...],
    most: int,
    scale: float,
    *,
    pinned: bool = False,
) -> Figures:
    """Run a client library on both ends, and a broker between them; return the rate that the subscriber saw.

    Both roles get the broker's address, the options and the number of messages.  ``pinned``: the publisher
    has a processor of its own, and the broker shares one with the subscriber.
    """
    count = int(most * scale)
    first, last = (0, -1) if pinned else (None, None)
    with (
        start() as broker,
        Child(subscribe, broker.address, *options, count, cpu=first) as subscriber,
        Child(publish, broker.address, *options, count, cpu=last) as publisher,
    ):
        if pinned:
            broker.stay_on(0)
        subscriber.hear(publisher)
        publisher.say("go")
        return {"rate": subscriber.hear(publisher)}


def asked_with_library(
    start: Start, answer: Role, ask: Role, options: tuple[object, ...], most: int, scale: float
) -> Figures:
    """Let a client library ask, and another process answer with it; return what the one that asks measured.

    Both roles get the broker's address and the options, and ``ask`` the number of questions as well.
    """
    with start() as broker, Child(answer, broker.address, *options) as answering:
        answering.hear()
        with Child(ask, broker.address, *options, int(most * scale)) as asking:
            return percentiles(asking.hear(answering))
