"""Hostile clients of the front end: whatever bytes they send, they harm no one else."""

from __future__ import annotations

import random

import pytest

from tests.plugins.engines.mqtt.raw_client import PUBCOMP, PUBREC, PUBREL, RawClient, connect_packet
from tests.plugins.engines.mqtt.still_server import StillServer
from tests.plugins.protocols.mqtt.test_hostile import mutated
from tests.seeds import in_groups, many


@pytest.mark.parametrize("group", in_groups(many(0, 600), 100))
def test_mutated_packets_do_not_disturb_others(quiet: StillServer, group: range) -> None:
    """Before CONNECT or behind it: the broker goes on, and nothing of a connection is left when it has ended."""
    reader, writer = quiet.connect(4), quiet.connect(5)
    reader.subscribe("fine", qos=2)
    left: list[RawClient] = []
    for seed in group:
        chance = random.Random(seed)
        version = chance.choice([4, 5])
        hostile = quiet.client(version)
        if chance.random() < 0.7:
            hostile.send(connect_packet(version, client_id=chance.choice(["", "twin", f"c{seed}"])))
        data = mutated(chance)
        try:
            for start in range(0, len(data), 97):
                hostile.wire.sendall(data[start : start + 97])
                quiet.process()
        except OSError:
            pass  # the broker has closed the connection
        writer.publish("fine", b"%d" % seed, 2)
        number = reader.expect_message("fine", b"%d" % seed, 2)
        reader.ack(PUBREC, number)
        reader.expect_acks(PUBREL, number)
        reader.ack(PUBCOMP, number)
        if chance.random() < 0.5:
            left.append(hostile)
        else:
            hostile.close()
        quiet.pass_time(1)
    for hostile in left:
        hostile.close()
    quiet.pass_time(60)
    assert len(quiet.engine.clients) == 2, "those of the reader and the writer"
