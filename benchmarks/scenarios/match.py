"""Routing by key: what it costs to find the one subscription of 10, or of 10,000, that a key matches.

The rows look up every key once, so that the trie has to be walked each time.  Half of the subscriptions are
topic patterns with a wildcard, half are prefixes.  Real feeds repeat their keys, and the trie caches the
results: the remarks have the look-up of a repeated key, and a whole route with the router ``by-key``.
"""

from __future__ import annotations

import random
import time
from functools import partial
from multiprocessing.connection import Connection

from benchmarks.processes import Child
from benchmarks.scenario import Figures, Measured, Row, Scenario, Side
from kernel.contracts.key_trie import KeyTrie
from kernel.topology.plan import EnginePlan, Plan, RoutePlan
from kernel.topology.system import Kernel

KEYS = 150_000
TURN = 100
CHANNELS = 10
AGAIN = "10 subscriptions, once more"


def _pattern(number: int) -> str:
    return f"quotes.{number:05}.*" if number % 2 else f"prefix:quotes.{number:05}."


def look_up(link: Connection, subscriptions: int, count: int) -> None:
    """Say how many nanoseconds a look-up takes: of keys never seen before, and of keys that repeat."""
    trie: KeyTrie[int] = KeyTrie()
    for number in range(subscriptions):
        trie.add(_pattern(number), number)
    chance = random.Random(subscriptions)
    keys = [f"quotes.{chance.randrange(subscriptions):05}.{serial}" for serial in range(count)]
    new = _time_matches(trie, keys)
    repeated = _time_matches(trie, keys[-1000:] * (count // 1000))
    link.send({"new": new, "repeated": repeated, "route": _route(subscriptions, count)})


def _time_matches(trie: KeyTrie[int], keys: list[str]) -> float:
    match = trie.match
    start = time.perf_counter_ns()
    for key in keys:
        if len(match(key)) != 1:
            raise AssertionError(f"{key} should match exactly once")
    return (time.perf_counter_ns() - start) / len(keys)


def _route(subscriptions: int, count: int) -> float:
    """Return how many nanoseconds a message takes over a by-key route, from ``send`` to ``receive_many``."""
    names = tuple(f"subscriber-{number}" for number in range(CHANNELS))
    plan = Plan(
        engines=tuple(EnginePlan(name=name, kind="native") for name in ("publisher", *names)),
        routes=(RoutePlan(source="publisher", targets=names, router="by-key"),),
    )
    with Kernel(plan) as kernel:
        publisher = kernel.open("publisher")
        channels = [kernel.open(name) for name in names]
        for number in range(subscriptions):
            channels[number % CHANNELS].subscribe(_pattern(number))
        # a channel does what others ask of it when it is called: here, to note the subscriptions
        publisher.send(b"nobody wants this", key="other")
        keys = [
            f"quotes.{number:05}.last" for number in range(0, subscriptions, max(subscriptions // 100, 1))
        ]
        send = publisher.send
        wanted = [sum(int(key[7:12]) % CHANNELS == at for key in keys) for at in range(CHANNELS)]
        turns = max(count // len(keys), 1)
        start = time.perf_counter_ns()
        for _ in range(turns):
            for key in keys:
                send(b"x", key=key)
            for channel, most in zip(channels, wanted, strict=True):
                if most:
                    channel.receive_many(most, timeout=10)
        return (time.perf_counter_ns() - start) / (turns * len(keys))


def _measure(subscriptions: int, scale: float) -> Figures:
    with Child(look_up, subscriptions, int(KEYS * scale)) as child:
        figures: Figures = child.hear()
        return figures


def _side(subscriptions: int) -> str:
    return f"{subscriptions:,} subscriptions"


def _row(subscriptions: int, peer: str) -> Row:
    return Row(
        name=f"match_{subscriptions}",
        what=f"look-up of a key never seen before among {subscriptions:,} subscriptions",
        figure="new",
        unit="ns",
        bar="<= 1.2",
        ours=_side(subscriptions),
        peers=(peer,),
    )


def _remarks(measured: Measured) -> list[str]:
    texts = (
        ("repeated", "look-up of a key that repeats"),
        ("route", "a message over a by-key route, whole way"),
    )
    remarks = []
    for figure, text in texts:
        few, many = measured.median(_side(10), figure), measured.median(_side(10_000), figure)
        if few and many:
            remarks.append(f"{text}: {few:.0f} ns with 10 subscriptions, {many:.0f} ns with 10,000.")
    return remarks


SCENARIO = Scenario(
    name="match",
    sides=(
        Side(_side(10), partial(_measure, 10)),
        Side(_side(10_000), partial(_measure, 10_000)),
        Side(AGAIN, partial(_measure, 10)),
    ),
    rows=(_row(10, AGAIN), _row(10_000, _side(10))),
    remarks=_remarks,
)
