"""Each method against pamqp, and some against bytes worked out by hand from the specification."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from pamqp import commands, frame

from kernel.contracts.errors import LocalProtocolError
from plugins.protocols.amqp091.errors import MalformedField
from plugins.protocols.amqp091.frames import METHODS, method_frame
from plugins.protocols.amqp091.methods import basic, channel, connection, queue
from plugins.protocols.amqp091.methods.method import Method
from tests.notes import for_each

RESERVED = {"capabilities": "", "known_hosts": "", "out_of_band": "0", "cluster_id": ""}
TABLE = {"x-max-length": 10, "nested": {"a": [1, "b"]}, "on": True}


def sample(kind: type[Method], *, truth: bool) -> Method:
    values: dict[str, Any] = {}
    for name, annotation in kind.__annotations__.items():
        if name not in kind.__struct_fields__:
            continue
        values[name] = {
            "int": 0 if name == "ticket" else 7,
            "str": RESERVED.get(name, "some.name"),
            "bytes": b"0" if name == "channel_id" else b"octets",
            "bool": False if name == "insist" else truth,
            "Mapping[str, Any]": TABLE,
        }[annotation]
    return kind(**values)


KNOWN_TO_PAMQP = [kind for kind in METHODS.values() if not kind.name.startswith("access.")]
"""Class access is AMQP 0-8's."""


@for_each("truth", [True, False])
@for_each("kind", KNOWN_TO_PAMQP, ids=lambda kind: kind.name)
def test_method_reads_as_pamqp_writes_it_and_back(kind: type[Method], truth: bool) -> None:
    method = sample(kind, truth=truth)
    octets = method_frame(3, method.encode())
    size, number, theirs = frame.unmarshal(octets)
    assert (size, number) == (len(octets), 3)
    assert theirs.index == kind.class_id << 16 | kind.method_id
    for ours, name in zip(kind.__struct_fields__, theirs.attributes(), strict=True):
        value = getattr(method, ours)
        seen = getattr(theirs, name)
        assert (seen.encode() if isinstance(value, bytes) and isinstance(seen, str) else seen) == value
    if kind.name == "connection.close":
        return  # pamqp refuses to write reply codes that it does not know
    written = frame.marshal(theirs, 3)
    assert kind.decode(written[7:-1]) == kind.decode(octets[7:-1]) == method
    if "Mapping[str, Any]" not in kind.__annotations__.values():  # it writes small integers shorter
        assert written == octets


@for_each("kind", METHODS.values(), ids=lambda kind: kind.name)
def test_method_of_a_wrong_length_is_refused(kind: type[Method]) -> None:
    payload = sample(kind, truth=True).encode()
    with pytest.raises(MalformedField):
        kind.decode(payload + b"\0")
    for length in range(4, len(payload)):
        with pytest.raises((MalformedField, IndexError, struct.error)):
            kind.decode(payload[:length])


@for_each(
    "method, payload",
    [
        (basic.Ack(delivery_tag=1, multiple=True), "003c0050 0000000000000001 01"),
        (basic.Nack(delivery_tag=2, multiple=False, requeue=True), "003c0078 0000000000000002 02"),
        (channel.Open(), "0014000a 00"),
        (queue.Declare(queue="q", durable=True, nowait=True), "0032000a 0000 0171 12 00000000"),
        (connection.TuneOk(channel_max=1, frame_max=4096, heartbeat=2), "000a001f 0001 00001000 0002"),
        (basic.Qos(prefetch_count=10, global_=True), "003c000a 00000000 000a 01"),
    ],
)
def test_golden_bytes(method: Method, payload: str) -> None:
    octets = bytes.fromhex(payload)
    assert method.encode() == octets
    assert type(method).decode(octets) == method


def test_all_methods_of_pamqp_are_known() -> None:
    theirs = {index.to_bytes(4, "big") for index in commands.INDEX_MAPPING}
    assert theirs <= METHODS.keys()


def test_octets_that_are_not_utf8_pass_through() -> None:
    payload = basic.Publish(routing_key="\udcff\udc80k").encode()
    assert b"\x03\xff\x80k" in payload
    assert basic.Publish.decode(payload).encode() == payload


def test_a_short_string_has_at_most_255_octets() -> None:
    assert queue.Delete(queue="q" * 255).encode()
    with pytest.raises(LocalProtocolError):
        queue.Delete(queue="é" * 128).encode()
