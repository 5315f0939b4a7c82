"""What a peer may have us remember is bounded: envelopes and their bytes, subscriptions and theirs."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel.contracts.errors import RemoteProtocolError
from kernel.contracts.message import PLAIN, Envelope, batch_of
from plugins.protocols.backend.frames import Control, control_frame
from plugins.protocols.backend.greeting import encode_envelope
from tests.plugins.protocols.backend.conversation import exchange, make, opened, opened_to, plain


def envelope_frame(number: int, envelope: Envelope | None) -> bytes:
    """An ENVELOPE; without a map for None."""
    encoded = encode_envelope(envelope) if envelope is not None else b""
    return control_frame(Control.ENVELOPE, number.to_bytes(4, "big") + encoded)


def test_envelopes_of_too_many_bytes_together_are_an_end() -> None:
    server = make(envelope_bytes=1000)
    opened_to(server)
    large = Envelope(properties={"note": "x" * 400})
    server.receive_data(envelope_frame(0, large) + envelope_frame(1, large), 0)
    server.receive_data(envelope_frame(1, large), 0)  # instead of the one before
    with pytest.raises(RemoteProtocolError, match="envelope_bytes is 1000"):
        server.receive_data(envelope_frame(2, large), 0)


def test_a_forgotten_envelope_makes_room_and_leaves_in_force_what_is() -> None:
    server = make(envelope_bytes=1000)
    opened_to(server)
    large = Envelope(properties={"note": "x" * 400})
    for number in range(10):
        server.receive_data(envelope_frame(number, large), 0)
        (batch,) = server.receive_data(envelope_frame(number, None) + b"\x01a", 0)
        assert batch.envelope.properties == large.properties
        with pytest.raises(RemoteProtocolError, match="never sent"):
            server._peer_envelopes.use(number.to_bytes(4, "big"))


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(1, 3)), max_size=60),
    st.integers(1, 6),
    st.integers(100, 600),
)
def test_our_own_side_keeps_within_what_the_peer_remembers(
    uses: list[tuple[int, int]], most: int, most_bytes: int
) -> None:
    client, server = make("client"), make("server", envelopes=most, envelope_bytes=most_bytes)
    exchange(client, server)
    envelopes = [PLAIN, *(Envelope(key=f"{number}" * number * 7) for number in range(1, 13))]
    expected = []
    for index, count in uses:
        client.send_batches([batch_of([b"m"] * count, envelopes[index])], 0)
        got = plain(exchange(client, server))
        expected = [(b"m", envelopes[index].key)] * count
        assert got == (expected if not client.refused else [])
        client.refused.clear()


def test_too_many_subscriptions_are_an_end() -> None:
    client, server = opened(max_subscriptions=3)
    for pattern in ("a", "b", "a"):
        client.subscribe(pattern)
    client.unsubscribe("a")
    client.unsubscribe("never")
    client.subscribe("c")
    exchange(client, server)
    assert len(server.subscriptions) == 6
    client.subscribe("d")
    with pytest.raises(RemoteProtocolError, match="4 subscriptions; max_subscriptions is 3"):
        exchange(client, server)


def test_subscriptions_of_too_many_bytes_are_an_end() -> None:
    client, server = opened(subscription_bytes=100)
    client.subscribe("x" * 60)
    client.unsubscribe("x" * 60)
    client.subscribe("y" * 60)
    exchange(client, server)
    client.subscribe("z" * 41)
    with pytest.raises(RemoteProtocolError, match="101 bytes; subscription_bytes is 100"):
        exchange(client, server)
