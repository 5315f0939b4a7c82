"""Many MQTT clients, and many retained messages."""

from __future__ import annotations

import resource
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

from benchmarks.amqp.brokers import Broker
from benchmarks.mqtt import crowd
from benchmarks.mqtt.bare import BareClient
from benchmarks.mqtt.brokers import mosquitto, our_broker
from benchmarks.processes import Child, allow_descriptors
from benchmarks.scenario import Figures, Row, Scenario, Side

VISITS = 2400
IDLE = 10_000
_OTHER_DESCRIPTORS = 300
RETAINED = 100_000

_Start = Callable[[], AbstractContextManager[Broker]]
_FIGURES = {"idle": 10 * 1024.0, "pause": 5.0, "rate": 5000.0}
_AIM = "the aim"


def _connects(start: _Start, scale: float) -> Figures:
    count = int(VISITS * scale) // crowd.AT_A_TIME * crowd.AT_A_TIME
    with start() as broker, Child(crowd.come_and_go, broker.address, count) as client:
        client.hear()
        before = broker.processor_seconds()
        client.say("go")
        seconds = client.hear()
        return {"rate": count / seconds, "cost": (broker.processor_seconds() - before) / count * 1e6}


def _idle(start: _Start, scale: float) -> Figures:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = int(IDLE * scale)
    if most != resource.RLIM_INFINITY:
        count = min(count, most - _OTHER_DESCRIPTORS)
    allow_descriptors(count)
    with start() as broker:
        BareClient(broker.address, "first").close()  # whatever the first one brings along
        before = broker.resident()
        with Child(crowd.stay, broker.address, count) as client:
            client.hear()
            return {"idle": (broker.resident() - before) / count}


def _retained(start: _Start, scale: float) -> Figures:
    count = int(RETAINED * scale)
    with start() as broker:
        with Child(crowd.retain, broker.address, count) as publisher:
            publisher.hear()
        with (
            Child(crowd.read_retained, broker.address, count) as reader,
            Child(crowd.ping, broker.address) as pinger,
        ):
            reader.hear()
            pinger.hear()
            reader.say("go")
            seconds = reader.hear(pinger)
            pinger.say("end")
            return {"seconds": seconds, "pause": pinger.hear() * 1000}


def _sides(name: str, measure: Callable[[_Start, float], Figures]) -> tuple[Side, Side]:
    return (
        Side(f"kernel, {name}", partial(measure, our_broker)),
        Side(f"mosquitto, {name}", partial(measure, mosquitto)),
    )


def _row(name: str, what: str, figure: str, unit: str, bar: str, side: str, *, aim: bool = False) -> Row:
    theirs = f"mosquitto, {side}"
    return Row(
        name=f"mqtt_{name}",
        what=what,
        figure=figure,
        unit=unit,
        bar=bar,
        ours=f"kernel, {side}",
        peers=(_AIM if aim else theirs,),
        also=(theirs,) if aim else (),
    )


SCENARIO = Scenario(
    name="mqtt_crowds",
    sides=(
        *_sides("connects", _connects),
        *_sides("idle", _idle),
        *_sides("retained", _retained),
        Side(_AIM, lambda scale: _FIGURES),
    ),
    rows=(
        _row(
            "connects",
            f"clients that connect and disconnect, {crowd.AT_A_TIME} at a time",
            "rate",
            "1/s",
            ">= 1.0",
            "connects",
            aim=True,
        ),
        _row(
            "connects_cost",
            "the broker's processor time for one of them",
            "cost",
            "µs",
            "<= 1.0",
            "connects",
        ),
        _row(
            "idle_bytes",
            f"memory of an idle connection, among {IDLE:,}",
            "idle",
            "B",
            "<= 1.0",
            "idle",
            aim=True,
        ),
        _row(
            "retained_100k",
            f"{RETAINED:,} retained messages for a new subscription to everything",
            "seconds",
            "s",
            "<= 1.0",
            "retained",
        ),
        _row(
            "retained_pause",
            "the longest time that another client waits for an answer meanwhile",
            "pause",
            "ms",
            "<= 1.0",
            "retained",
            aim=True,
        ),
    ),
)
