"""Units of the backend carriage: each is complete in itself."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kernel.contracts.message import PLAIN, Batch, Envelope, batch_of
from plugins.protocols.backend.units import UnitDecoder, UnitEncoder

KEYS = [PLAIN, Envelope(key="weather.wien", persistent=True), Envelope(properties={"headers": {"n": 1}})]


def _flat(batches: list[Batch]) -> list[tuple[Any, str, Any]]:
    return [
        (body, batch.envelope.key, dict(batch.envelope.properties))
        for batch in batches
        for body in batch.bodies
    ]


_bodies = st.lists(st.integers(0, 300).map(lambda size: b"b" * size), min_size=1, max_size=12)
_batches = st.lists(
    st.builds(batch_of, _bodies, st.sampled_from(KEYS))
    | st.lists(st.tuples(st.binary(max_size=9), st.binary(max_size=300)), min_size=1, max_size=3).map(
        lambda bodies: batch_of(bodies, KEYS[1], multipart=True)
    ),
    max_size=6,
)


@given(_batches, st.integers(50, 400))
def test_whatever_is_sent_arrives(batches: list[Batch], size: int) -> None:
    units = UnitEncoder(size).encode(batches)
    decoder = UnitDecoder(10_000)
    assert _flat(decoder.decode(units)) == _flat(batches)
    assert decoder.malformed == 0


@given(_batches, st.integers(50, 400))
def test_every_unit_is_understood_alone(batches: list[Batch], size: int) -> None:
    units = UnitEncoder(size).encode(batches)
    alone = [message for unit in units for message in _flat(UnitDecoder(10_000).decode([unit]))]
    assert alone == _flat(batches)


def test_small_messages_share_a_packet_and_their_envelope() -> None:
    encoder = UnitEncoder(1000)
    units = encoder.encode([batch_of([b"x" * 50] * 100, KEYS[1])])
    assert 5 <= len(units) <= 7
    assert all(900 < len(unit) <= 1000 for unit in units[:-1])
    batches = UnitDecoder(1000).decode(units)
    assert len({id(batch.envelope) for batch in batches}) == 1


@given(st.lists(st.none() | st.binary(max_size=60), max_size=20))
def test_anything_may_come_and_the_next_unit_is_read(units: list[bytes | None]) -> None:
    decoder = UnitDecoder(1000)
    decoder.decode(units)
    assert _flat(decoder.decode(UnitEncoder(100).encode([batch_of([b"good"], KEYS[1])]))) == [
        (b"good", "weather.wien", {})
    ]


def test_half_a_unit_is_counted() -> None:
    decoder = UnitDecoder(1000)
    decoder.decode([b"\x10half", b"\xff\x82"])
    assert decoder.malformed == 2


def test_messages_whose_envelope_cannot_be_written_or_read_are_refused() -> None:
    encoder = UnitEncoder(1000)
    bad: list[Any] = ["half a pair \ud800", b"octets"]
    batches = [batch_of([b"bad", b"bad"], Envelope(key=key)) for key in bad]
    units = encoder.encode([*batches, batch_of([b"good"], KEYS[1])])
    assert _flat(UnitDecoder(1000).decode(units)) == [(b"good", "weather.wien", {})]
    assert encoder.refused == 4
    assert "an envelope that cannot be sent" in encoder.problem
