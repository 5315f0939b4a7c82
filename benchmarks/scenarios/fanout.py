"""Fan-out: what one delivery costs when a message goes to one, ten or a hundred subscribers.

Publisher and subscribers run in one thread and take turns, so that only the cost of deliveries is measured:
no waiting, no sockets, no competition for the interpreter.  A call sends one message; a call receives a
batch.
"""

from __future__ import annotations

import time
from functools import partial
from multiprocessing.connection import Connection

from benchmarks.processes import Child
from benchmarks.scenario import Figures, Row, Scenario, Side
from kernel.topology.plan import EnginePlan, Plan, RoutePlan
from kernel.topology.system import Kernel

DELIVERIES = 1_500_000
TURN = 100
"""Messages that are sent before the subscribers have their turn."""
AGAIN = "1 subscriber, once more"


def publish(link: Connection, subscribers: int, deliveries: int) -> None:
    """Say how many nanoseconds a delivery took."""
    names = tuple(f"subscriber-{number}" for number in range(subscribers))
    plan = Plan(
        engines=(
            EnginePlan(name="publisher", kind="native"),
            *(EnginePlan(name=name, kind="native") for name in names),
        ),
        routes=(RoutePlan(source="publisher", targets=names),),
    )
    with Kernel(plan) as kernel:
        send = kernel.open("publisher").send
        receivers = [kernel.open(name).receive_many for name in names]
        body = b"x" * 100
        turns = max(deliveries // subscribers // TURN, 1)
        start = time.perf_counter_ns()
        for _ in range(turns):
            for _ in range(TURN):
                send(body, key="quotes")
            for receive_many in receivers:
                if len(receive_many()) != TURN:
                    raise AssertionError("a subscriber did not get every message")
        link.send((time.perf_counter_ns() - start) / (turns * TURN * subscribers))


def _measure(subscribers: int, scale: float) -> Figures:
    with Child(publish, subscribers, int(DELIVERIES * scale)) as child:
        return {"cost": child.hear()}


def _side(subscribers: int) -> str:
    return f"{subscribers} subscriber{'s' if subscribers > 1 else ''}"


def _row(subscribers: int) -> Row:
    return Row(
        name=f"fanout_{subscribers}",
        what=f"cost of a delivery when a message goes to {subscribers}",
        figure="cost",
        unit="ns",
        bar="<= 1.2",
        ours=_side(subscribers),
        peers=(_side(1) if subscribers > 1 else AGAIN,),
    )


SCENARIO = Scenario(
    name="fanout",
    sides=(
        *(Side(_side(number), partial(_measure, number)) for number in (1, 10, 100)),
        Side(AGAIN, partial(_measure, 1)),
    ),
    rows=tuple(_row(number) for number in (1, 10, 100)),
)
