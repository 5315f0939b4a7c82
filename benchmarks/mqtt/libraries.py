"""A client library on both ends, and a broker between them: ours, and mosquitto."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from benchmarks.loads import with_library
from benchmarks.mqtt.brokers import mosquitto, our_broker
from benchmarks.scenario import Row, Scenario, Side


def both_ends(
    name: str, short: str, library: str, client: Any, counts: Mapping[int, int], *, pinned: bool = False
) -> Scenario:
    """Return the scenario of a library.

    ``client`` is a module with ``subscribe`` and ``publish``; ``counts`` are numbers of messages by QoS.
    ``pinned``: once more, with the publisher on a processor of its own.
    """
    where = {"": False, ", pinned": True} if pinned else {"": False}
    return Scenario(
        name=name,
        sides=tuple(
            Side(
                f"{short} on {broker}, QoS {qos}{words}",
                partial(
                    with_library, start, client.subscribe, client.publish, (qos,), count, pinned=is_pinned
                ),
            )
            for qos, count in counts.items()
            for words, is_pinned in where.items()
            for broker, start in (("kernel", our_broker), ("mosquitto", mosquitto))
        ),
        rows=tuple(
            Row(
                name=f"{name}_qos{qos}{'_pinned' if is_pinned else ''}",
                what=f"{library} on both ends, QoS {qos}, 100 B, a message a call{words}",
                figure="rate",
                unit="msg/s",
                bar=">= 1.0",
                ours=f"{short} on kernel, QoS {qos}{words}",
                peers=(f"{short} on mosquitto, QoS {qos}{words}",),
            )
            for qos in counts
            for words, is_pinned in where.items()
        ),
    )
