"""What the peer would hang up on is not sent, and nobody waits for its confirmation."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel.contracts.errors import RemoteProtocolError
from kernel.contracts.message import Envelope, batch_of
from plugins.protocols.backend.connection import BackendConnection
from plugins.protocols.backend.frames import MAX_PARTS, Control, control_frame
from tests.notes import for_each
from tests.plugins.protocols.backend.conversation import exchange, make, plain

MOST = 300


def opened_to(**options: object) -> tuple[BackendConnection, BackendConnection]:
    """A dialler, and a listener that takes little."""
    client, server = make("client"), make("server", **options)
    exchange(client, server)
    client.want_confirm()
    exchange(client, server)
    return client, server


@given(st.lists(st.lists(st.integers(0, 2 * MOST), min_size=1, max_size=5), max_size=8), st.booleans())
def test_all_but_what_is_too_large_arrives_and_all_is_confirmed(sizes: list[list[int]], parts: bool) -> None:
    client, server = opened_to(max_message=MOST)
    bodies = [[bytes(size) for size in batch] for batch in sizes]
    batches = [batch_of([(body,) for body in batch] if parts else batch, multipart=parts) for batch in bodies]
    client.send_batches(batches, 0)
    got = [body[0] if parts else body for body, _ in plain(exchange(client, server))]  # type: ignore[index]
    header = [9 if size >= 255 else 1 for batch in sizes for size in batch] if parts else [0] * 40
    expected = [
        body
        for body, more in zip([body for batch in bodies for body in batch], header, strict=False)
        if len(body) + more <= MOST
    ]
    assert got == expected
    assert len(client.refused) == sum(map(len, sizes)) - len(expected)
    server.confirm(len(got))
    exchange(client, server)
    assert client.confirmed() == sum(map(len, sizes))


def test_a_refused_message_is_confirmed_as_soon_as_those_before_it_and_not_earlier() -> None:
    client, server = opened_to(max_message=MOST)
    assert client.confirmed() == 0
    client.send_batches([batch_of([bytes(MOST + 1)])], 0)
    assert client.confirmed() == 1  # there is nothing before it
    client.send_batches([batch_of([b"a", bytes(MOST + 1), b"b"])], 0)
    assert client.confirmed() == 1
    exchange(client, server)
    server.confirm(1)
    exchange(client, server)
    assert client.confirmed() == 3
    server.confirm(2)
    exchange(client, server)
    assert client.confirmed() == 4


def test_the_short_cut_of_x_mode_does_not_lead_past_it() -> None:
    client, _ = opened_to(max_message=MOST)
    assert client.encode_one(bytes(MOST)) is not None
    assert client.encode_one(bytes(MOST + 1)) is None
    client, _ = opened_to(max_message=10)
    assert client.encode_one(bytes(10)) is not None
    assert client.encode_one(bytes(11)) is None


@pytest.mark.parametrize("size", [500, 2_000_000])
def test_an_envelope_that_the_peer_cannot_remember_is_refused_with_its_messages(size: int) -> None:
    options = {"envelope_bytes": 400} if size < 1000 else {}
    client, server = opened_to(**options)
    large = Envelope(properties={"note": "x" * size})
    small = Envelope(key="k")
    client.send_batches(
        [batch_of([b"1"], small), batch_of([b"2", b"3"], large), batch_of([b"4"], small), batch_of([b"5"])], 0
    )
    assert plain(exchange(client, server)) == [(b"1", "k"), (b"4", "k"), (b"5", "")]
    assert len(client.refused) == 2
    assert "envelope" in client.refused[0].reason
    server.confirm(3)
    exchange(client, server)
    assert client.confirmed() == 5


def endless() -> list[Any]:
    nested: list[Any] = []
    nested.append(nested)
    return nested


@for_each(
    "fields",
    [
        {"key": "\ud800"},
        {"key": b"bytes"},
        {"priority": 2**70},
        {"expiration": 1.5},
        {"properties": {"note": "\ud800"}},
        {"properties": {1: "a name that is no text"}},
        {"properties": {"endless": endless()}},
    ],
    ids=str,
)
def test_an_envelope_that_cannot_be_written_or_read_is_refused_with_its_messages(fields: Any) -> None:
    client, server = opened_to()
    client.send_batches([batch_of([b"1"]), batch_of([b"2", b"3"], Envelope(**fields)), batch_of([b"4"])], 0)
    assert plain(exchange(client, server)) == [(b"1", ""), (b"4", "")]
    assert len(client.refused) == 2
    assert "cannot be sent" in client.refused[0].reason
    server.confirm(2)
    exchange(client, server)
    assert client.confirmed() == 4


def test_a_message_of_more_parts_than_a_peer_takes_is_refused_and_what_is_around_it_arrives() -> None:
    client, server = opened_to()
    most = (b"",) * MAX_PARTS
    client.send_batches([batch_of([most, (*most, b""), (b"a", b"b")], multipart=True)], 0)
    got = [body for batch in server.receive_data(b"".join(client.data_to_send()), 0) for body in batch.bodies]
    assert got == [most, (b"a", b"b")]
    assert [refusal.reason for refusal in client.refused] == [
        f"a message of {MAX_PARTS + 1} parts; a peer takes {MAX_PARTS} at the most"
    ]


def test_a_frame_of_too_many_parts_is_refused() -> None:
    """Its cost is by the part: 100 MB of empty ones took 76 s."""
    _, server = opened_to()
    frame = control_frame(Control.PARTS, bytes(MAX_PARTS + 1))
    with pytest.raises(RemoteProtocolError, match=f"more than {MAX_PARTS} of them"):
        server.receive_data(frame, 0)
