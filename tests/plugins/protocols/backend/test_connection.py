"""A conversation: chunks, formats, limits, time, and bytes that are meant to hurt."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kernel.contracts.errors import LocalProtocolError, RemoteProtocolError
from kernel.contracts.message import PLAIN, Batch, Envelope, batch_of
from kernel.contracts.mixed_batch import EnvelopesByKey, all_divided, has_mixed, mixed_batch
from kernel.contracts.timestamp import Timestamp
from plugins.protocols.backend.connection import BackendConnection, Phase
from plugins.protocols.backend.frames import Control, control_frame, header
from plugins.protocols.backend.greeting import Greeting, encode_greeting
from plugins.protocols.backend.options import BackendOptions
from tests.notes import for_each
from tests.plugins.protocols.backend.conversation import exchange, make, opened, opened_to, plain, sent
from tests.seeds import examples

CORPUS = Path(__file__).parents[3] / "data" / "fuzz" / "backend"

# ---------------------------------------------------------------------- chunks

keyed = Envelope(
    key="a.b", exchange="x", reply_to="r", persistent=True, priority=3, expiration=9, properties={"n": 1}
)
other = Envelope(key="other")

SAMPLES: list[Batch] = [
    batch_of([b"", b"a", b"a" * 254, b"a" * 255, b"a" * 300]),
    batch_of([b"same size"] * 700),
    batch_of([b"under a key"], keyed),
    batch_of([b"%d" % number for number in range(300)], other),
    batch_of([(b"one", b"", b"x" * 300), (b"two",)], keyed, multipart=True),
    batch_of([b"z" * 40_000, b"y" * 200_000], PLAIN),
    batch_of([b"\xff" * 10, b"\xff\x81" * 5]),
]


def encoded() -> tuple[bytes, list[tuple[Any, str]]]:
    client, _ = opened()
    client.send_batches(SAMPLES, 0)
    return sent(client), plain(SAMPLES)


BYTES, EXPECTED = encoded()


def receive(pieces: list[bytes]) -> list[tuple[Any, str]]:
    _, server = opened()
    batches: list[Batch] = []
    for piece in pieces:
        batches += server.receive_data(piece, 0)
    assert sum(batch.size for batch in batches) == sum(batch.size for batch in SAMPLES)
    return plain(batches)


def test_a_whole_conversation_is_read() -> None:
    assert receive([BYTES]) == EXPECTED


def test_byte_by_byte_gives_the_same() -> None:
    short = BYTES[:9000]
    _, whole = opened()
    _, single = opened()
    expected = plain(whole.receive_data(short, 0))
    assert (
        plain([batch for at in range(len(short)) for batch in single.receive_data(short[at : at + 1], 0)])
        == expected
    )


@settings(max_examples=examples(60))
@given(st.lists(st.integers(0, len(BYTES)), max_size=40))
@example([8192 * at for at in range(1, 30)])
def test_any_chunking_gives_the_same(cuts: list[int]) -> None:
    borders = [0, *sorted(cuts), len(BYTES)]
    assert receive([BYTES[a:b] for a, b in pairwise(borders)]) == EXPECTED


batches = st.builds(
    lambda bodies, envelope: batch_of(bodies, envelope),
    st.lists(st.binary(max_size=300), min_size=1, max_size=8),
    st.sampled_from([PLAIN, keyed, other]),
)
multipart_batches = st.builds(
    lambda bodies: batch_of([tuple(parts) for parts in bodies], keyed, multipart=True),
    st.lists(st.lists(st.binary(max_size=300), min_size=1, max_size=4), min_size=1, max_size=3),
)


@given(st.lists(st.one_of(batches, multipart_batches), max_size=8), st.integers(1, 700))
def test_whatever_is_sent_arrives(group: list[Batch], chunk: int) -> None:
    client, server = opened()
    client.send_batches(group, 0)
    data = sent(client)
    got = [
        batch for at in range(0, len(data), chunk) for batch in server.receive_data(data[at : at + chunk], 0)
    ]
    assert plain(got) == plain(group)
    assert client.receive_data(sent(server), 0) == []


def test_envelopes_arrive_complete_and_are_shared_by_their_messages() -> None:
    client, server = opened()
    client.send_batches([batch_of([b"1"], keyed), batch_of([b"2"], other), batch_of([b"3"], keyed)], 0)
    got = server.receive_data(sent(client), 0)
    first, _, third = (batch.envelope for batch in got)
    assert first is third
    for field in ("key", "exchange", "reply_to", "persistent", "priority", "expiration"):
        assert getattr(first, field) == getattr(keyed, field)
    assert dict(first.properties) == {"n": 1}


few = [Envelope(key=f"few.{number}") for number in range(6)]
own = st.builds(
    lambda body, key: batch_of([body], Envelope(key=key)), st.binary(max_size=40), st.text(max_size=9)
)
odd = [
    Envelope(key="late", properties={"timestamp": Timestamp(1 << 40)}),
    Envelope(key="no dict", properties=ChainMap({"a": 1})),
    Envelope(key="empty and no dict", properties=ChainMap()),
    Envelope(key="complex", properties={"value": 1j}),
    Envelope(key="long", properties={"note": "x" * 3000}),
]


mixed_batches = st.lists(
    st.tuples(
        st.one_of(st.binary(max_size=9), st.just(b"large" * 600)),
        st.one_of(st.text(max_size=9), st.sampled_from([PLAIN, *few, *odd])),
    ),
    max_size=9,
).map(lambda pairs: mixed_batch([body for body, _ in pairs], [entry for _, entry in pairs]))


@settings(max_examples=examples(60))
@given(
    st.lists(
        st.one_of(
            own,
            batches,
            multipart_batches,
            st.builds(
                batch_of, st.lists(st.binary(max_size=9), max_size=3), st.sampled_from([PLAIN, *few, *odd])
            ),
            st.just(batch_of([b"large" * 9000], few[0])),
            mixed_batches,
        ),
        max_size=40,
    ),
    st.lists(st.integers(0, 40), max_size=4),
    st.integers(1, 700),
    st.integers(1, 8),
    st.integers(0, 2),
    st.booleans(),
)
def test_messages_under_envelopes_of_their_own_arrive_in_order_and_are_counted(
    group: list[Batch], cuts: list[int], chunk: int, remembered: int, version: int, mixing: bool
) -> None:
    client, server = opened(envelopes=remembered, envelope_bytes=2000)
    offer = Greeting(envelopes=remembered, envelope_bytes=2000, mixed=version)
    client = make("client", envelopes=remembered, envelope_bytes=2000)
    client.receive_data(control_frame(Control.GREETING, encode_greeting(offer)), 0)
    sent(client)
    server.mixing = mixing
    data = b""
    for begin, end in pairwise([0, *sorted(cuts), len(group)]):
        client.send_batches(group[begin:end], 0)
        data += sent(client)
    got = [
        batch for at in range(0, len(data), chunk) for batch in server.receive_data(data[at : at + chunk], 0)
    ]
    assert mixing or not has_mixed(got)
    group = all_divided(group, EnvelopesByKey())
    # Too large to be remembered, whether it comes alone or among others.
    kept = [batch for batch in group if batch.envelope is not odd[-1]]
    assert plain(got) == plain(kept)
    assert [number for number, _ in client.refused] == [
        number
        for number, envelope in enumerate((batch.envelope for batch in group for _ in batch.bodies), 1)
        if envelope is odd[-1]
    ]
    assert sum(batch.size for batch in got) == sum(batch.size for batch in kept)


def test_many_envelopes_need_few_frames_and_those_that_are_met_again_are_shared() -> None:
    client, server = opened()
    for _ in range(3):
        client.send_batches([batch_of([b"x"], Envelope(key=f"order.{at}")) for at in range(500)], 0)
        assert len(client.data_to_send()) <= 4
    repeated = [batch_of([b"x"], envelope) for envelope in few]
    got = []
    for _ in range(3):
        client.send_batches(repeated, 0)
        got.append([batch.envelope for batch in server.receive_data(sent(client), 0)])
    assert got[1] == got[2]


def test_a_peer_that_does_not_know_mixed_messages_gets_none() -> None:
    client = make("client")
    client.receive_data(control_frame(Control.GREETING, encode_greeting(Greeting(envelopes=9))), 0)
    sent(client)
    client.send_batches([batch_of([b"x"], envelope) for envelope in few], 0)
    kinds = [bytes(frame[:2]) for frame in client.data_to_send()]
    assert kinds == [b"\xff\x82", b"\x01x"] * len(few)


def test_a_thousand_keys_need_few_frames_and_no_numbers() -> None:
    client, server = opened()
    keys = [f"order.{at}" for at in range(1000)]
    for _ in range(2):
        client.send_batches([mixed_batch([b"x"] * 1000, keys)], 0)
        frames = client.data_to_send()
        assert [bytes(frame[:2]) for frame in frames] == [b"\xff\x8e"] * 4
        assert plain(server.receive_data(b"".join(frames), 0)) == [(b"x", key) for key in keys]


@for_each("kept", [False, True])
def test_keys_that_cannot_be_sent_are_refused_and_the_others_are_not(kept: bool) -> None:
    client, server = opened()
    server.mixing = kept
    client.send_batches([mixed_batch([b"1", b"2", b"3"], ["a", "\udc00", "c"])], 0)
    assert plain(server.receive_data(sent(client), 0)) == [(b"1", "a"), (b"3", "c")]
    assert [number for number, _ in client.refused] == [2]


def test_more_envelopes_than_are_remembered_may_be_used() -> None:
    client, server = opened(envelopes=3)
    group = [batch_of([b"%d" % (at % 7)], Envelope(key=f"k{at % 7}")) for at in range(50)]
    client.send_batches(group, 0)
    assert plain(server.receive_data(sent(client), 0)) == plain(group)


def test_a_peer_that_offers_to_remember_everything_does_not_fill_our_memory() -> None:
    client = make("client", envelopes=4)
    client.receive_data(control_frame(Control.GREETING, encode_greeting(Greeting(envelopes=2**62))), 0)
    client.send_batches([batch_of([b""], Envelope(key=str(number))) for number in range(100)], 0)
    numbers = [frame[9:13] for frame in client.data_to_send() if bytes(frame[:2]) == b"\xff\x82"]
    assert len(set(map(bytes, numbers))) == 4


@for_each(
    "properties, count", [(each, count) for each in (ChainMap(), ChainMap({"a": 1}), {}) for count in (1, 2)]
)
def test_properties_may_be_any_mapping(properties: Mapping[str, int], count: int) -> None:
    client, server = opened()
    client.send_batches([batch_of([b"x"], Envelope(key="k", properties=properties)) for _ in range(count)], 0)
    got = exchange(client, server)
    assert [(batch.envelope.key, dict(batch.envelope.properties)) for batch in got] == [
        ("k", dict(properties))
    ] * count


def test_properties_that_messagepack_cannot_say_are_said_in_text() -> None:
    client, server = opened()
    client.send_batches(
        [batch_of([b"x"], Envelope(properties={"o": 2**70, "d": {1: object}, "l": (1, {2j})}))], 0
    )
    (batch,) = server.receive_data(sent(client), 0)
    assert batch.envelope.properties["o"] == str(2**70)
    assert isinstance(batch.envelope.properties["d"]["1"], str)


def test_large_bodies_are_passed_by_reference() -> None:
    client, _ = opened()
    body = bytearray(100_000)
    client.send_batches([batch_of([b"small", body])], 0)
    assert any(buffer is body for buffer in client.data_to_send())


# ---------------------------------------------------------------------- formats


def test_the_short_cut_of_x_mode_takes_short_messages_only() -> None:
    client, server = opened()
    client.send_batches([batch_of([b"x" * 235], Envelope(key="k"))], 0)
    data = sent(client)
    assert data[0] == len(data) - 1  # as if 255 were the size of a short message
    assert server.decode_one(data) is None
    assert plain(server.receive_data(data, 0)) == [(b"x" * 235, "k")]
    assert opened()[1].decode_one((header(300) + bytes(300))[:256]) is None
    for size in (0, 254, 255, 300, 16 * 1024 - 1):
        whole = header(size) + bytes(size)
        assert opened()[1].decode_one(whole) == bytes(size)
        assert opened()[1].decode_one(whole + b"\0") is None
        assert opened()[1].decode_one(whole[:-1]) is None
    # In nine bytes where one would do; and a control frame.
    assert opened()[1].decode_one(b"\xff" + (3).to_bytes(8, "big") + b"abc") is None
    assert opened()[1].decode_one(control_frame(Control.PING, bytes(300))) is None


def test_the_short_cut_of_x_mode_takes_no_message_beyond_the_limit() -> None:
    for size in (10, 300):
        server = opened(max_message=size)[1]
        assert server.decode_one(header(size) + bytes(size)) == bytes(size)
        assert server.decode_one(header(size + 1) + bytes(size + 1)) is None


def test_a_listener_recognises_a_dialler_of_the_old_format() -> None:
    server = make()
    assert plain(server.receive_data(b"\x05hello\x00", 0)) == [(b"hello", ""), (b"", "")]
    assert server.phase is Phase.OLD
    assert server.ready_to_send()
    server.send_batches([batch_of([(b"two ", b"parts")], keyed, multipart=True), batch_of([b"x" * 300])], 0)
    assert sent(server) == b"\x09two parts" + b"\xff" + (300).to_bytes(8, "big") + b"x" * 300
    assert server.confirmed() is None


@pytest.mark.parametrize("size", [0, 5, 255, 70_000])
def test_a_dialler_of_the_old_format_is_recognised_byte_by_byte(size: int) -> None:
    server = make()
    data = b"\xff" + size.to_bytes(8, "big") + b"x" * size
    got = [batch for at in range(len(data)) for batch in server.receive_data(data[at : at + 1], 0)]
    assert plain(got) == [(b"x" * size, "")]
    assert sent(server) == b""


def test_a_dialler_of_the_extension_is_recognised_byte_by_byte() -> None:
    server, client = make(), make("client")
    data = sent(client)
    for at in range(len(data)):
        assert not server.ready_to_send()
        server.receive_data(data[at : at + 1], 0)
    assert server.ready_to_send()


def test_a_silent_dialler_is_served_in_the_old_format() -> None:
    server = make(recognition=0.5)
    assert server.next_deadline() == 0.5
    server.handle_timeout(0.4)
    assert not server.ready_to_send()
    server.handle_timeout(0.5)
    assert server.ready_to_send()
    assert server.next_deadline() is None
    server.send_batches([batch_of([b"hi"], keyed)], 1)
    assert sent(server) == b"\x02hi"


def test_a_dialler_that_stalls_after_a_long_size_byte_is_still_understood() -> None:
    server = make()
    assert server.receive_data(b"\xff", 0) == []
    server.handle_timeout(1.0)
    assert server.phase is Phase.OLD
    assert plain(server.receive_data(b"\0\0\0\0\0\0\0\x02hi", 1.1)) == [(b"hi", "")]


def test_both_ends_may_be_told_to_keep_to_the_old_format() -> None:
    client, server = make("client", format="0.x"), make(format="0.x")
    assert client.ready_to_send()
    assert sent(client) == b""
    client.send_batches([batch_of([b"x"])], 0)
    assert plain(exchange(client, server)) == [(b"x", "")]
    assert client.next_deadline() is None


def test_a_listener_that_insists_greets_first_and_refuses_the_old_format() -> None:
    server = make(format="extended")
    assert sent(server).startswith(b"\xff\x81")
    with pytest.raises(RemoteProtocolError, match=r"0\.x"):
        server.receive_data(b"\x05hello", 0)


def test_a_dialler_is_told_how_to_reach_an_old_listener() -> None:
    client = make("client")
    with pytest.raises(RemoteProtocolError, match=r'format = "0\.x"'):
        client.receive_data(b"\x05hello", 0)


def test_an_old_peer_may_not_use_control_frames() -> None:
    server = make()
    server.receive_data(b"\x01x", 0)
    with pytest.raises(RemoteProtocolError, match=r"0\.x"):
        server.receive_data(control_frame(Control.PING), 0)


def test_frames_of_later_versions_are_skipped() -> None:
    client, server = opened()
    client.send_batches([batch_of([b"after"])], 0)
    assert plain(server.receive_data(b"\xff\xfe" + (3).to_bytes(7, "big") + b"new" + sent(client), 0)) == [
        (b"after", "")
    ]


def test_fields_of_later_versions_are_ignored() -> None:
    server = make()
    payload = msgspec.msgpack.encode({"version": 9, "envelopes": 1, "wings": True})
    server.receive_data(control_frame(Control.GREETING, payload), 0)
    assert server.ready_to_send()


def test_messages_cannot_be_sent_before_the_greeting_or_after_the_end() -> None:
    client, server = make("client"), make()
    for connection in (client, server):
        with pytest.raises(LocalProtocolError):
            connection.send_batches([batch_of([b"x"])], 0)
    exchange(client, server)
    client.close("done", 0)
    with pytest.raises(LocalProtocolError):
        client.send_batches([batch_of([b"x"])], 0)


# ---------------------------------------------------------------------- limits


@pytest.mark.parametrize("setting", ["old", "extended"])
def test_a_message_above_the_limit_is_refused_before_it_is_there(setting: str) -> None:
    server = make(max_message=1000)
    if setting == "extended":
        opened_to(server)
    assert plain(server.receive_data(header(1000) + b"x" * 1000, 0)) == [(b"x" * 1000, "")]
    with pytest.raises(RemoteProtocolError, match="1001"):
        server.receive_data(header(1001), 0)


def test_an_absurd_size_is_refused_as_soon_as_its_first_bytes_are_there() -> None:
    server = make(max_message=1000)
    with pytest.raises(RemoteProtocolError):
        server.receive_data(b"\xff\x7f\xff\xff", 0)


def test_parts_count_against_the_limit_together() -> None:
    _, server = opened(max_message=1000)
    with pytest.raises(RemoteProtocolError):
        server.receive_data(b"\xff\x84" + (1001).to_bytes(7, "big"), 0)


def test_a_control_frame_above_its_limit_is_refused() -> None:
    _, server = opened()
    with pytest.raises(RemoteProtocolError, match="control frame"):
        server.receive_data(b"\xff\x88" + (2**20 + 1).to_bytes(7, "big"), 0)


@for_each(
    "frame",
    [
        control_frame(Control.GREETING, encode_greeting(Greeting())),
        control_frame(Control.ENVELOPE, b"\0\0\0"),
        control_frame(Control.ENVELOPE, (5000).to_bytes(4, "big") + b"\x80"),
        control_frame(Control.ENVELOPE, bytes(4) + b"\xc1"),
        control_frame(Control.ENVELOPE, bytes(4) + b"\x81\xa3key\xa1\xff"),
        control_frame(Control.USE, (7).to_bytes(4, "big")),
        control_frame(Control.USE, b"\0"),
        control_frame(Control.PARTS),
        control_frame(Control.PARTS, b"\x05abc"),
        control_frame(Control.PARTS, b"\xff\0\0"),
        control_frame(Control.CONFIRM, b"\0"),
        control_frame(Control.CONFIRM, (1).to_bytes(8, "big")),
        control_frame(Control.SUBSCRIBE, b"\xff\xfe"),
        control_frame(Control.UNSUBSCRIBE, b"\xc3"),
        control_frame(Control.PING, bytes(1025)),
        control_frame(Control.SYNC),
        control_frame(Control.SYNC, bytes(8)),
        control_frame(Control.SYNC, bytes(10)),
        control_frame(Control.SYNC, bytes(9)) * 2,
        b"".join(control_frame(Control.SYNC, number.to_bytes(8, "big") + b"\0") for number in range(65)),
        control_frame(Control.SYNCED, bytes(8)),
        control_frame(Control.SYNCED, bytes(9)),
        control_frame(Control.SYNCED),
        control_frame(Control.MIXED),
        control_frame(Control.MIXED, b"\x92\x91\xc4\x00\x90"),
        control_frame(Control.MIXED, b"\x92\x91\xc4\x00\x91\x07"),
        control_frame(Control.MIXED, b"\x92\x91\xc4\x00\x91\xff"),
        control_frame(Control.MIXED, b"\x92\x91\xc4\x00\x91\xfe"),
        control_frame(Control.MIXED, b"\x92\x91\xc4\x00\x91\xc3"),
        control_frame(Control.MIXED, b"\x92\x92\xc4\x00\xc4\x00\x92\xa1k\xff"),
        control_frame(Control.MIXED, b"\x92\x91\xc4\x00\x91\xa1\xff"),
        control_frame(Control.MIXED, b"\x92\x91\xc4\x00\x91\x81\xa3key\xa1\xff"),
        control_frame(
            Control.MIXED, b"\x92\xdc\x04\x01" + b"\xc4\x00" * 1025 + b"\xdc\x04\x01" + b"\xc0" * 1025
        ),
        control_frame(Control.MIXED, b"\x92\x90\xdd\x00\x01\x00\x00" + b"\x80" * 65536),
        *[control_frame(kind, b"\xff" * 5000) for kind in (Control.CONFIRM, Control.USE, Control.SYNCED)],
    ],
    ids=lambda frame: Control(frame[1] & 0x7F).name,
)
def test_a_frame_that_breaks_the_rules_is_refused_with_what_came_before_it(frame: bytes) -> None:
    _, server = opened()
    with pytest.raises(RemoteProtocolError) as caught:
        server.receive_data(b"\x02ok" + frame + b"\x05never", 0)
    assert plain(list(caught.value.batches)) == [(b"ok", "")]


def test_a_large_message_counts_as_received_though_a_fault_comes_with_its_end() -> None:
    _, server = opened()
    assert server.receive_data(header(40_000) + bytes(20_000), 0) == []
    with pytest.raises(RemoteProtocolError) as caught:
        server.receive_data(bytes(20_000) + b"\x02ok" + control_frame(Control.USE, b"\0"), 0)
    assert plain(list(caught.value.batches)) == [(bytes(40_000), ""), (b"ok", "")]


@pytest.mark.parametrize("payload", [b"", b"\xc0", b"\x81\xa7version\x00", b"\x81\xa9envelopes\x00", b"\xff"])
def test_a_bad_greeting_is_refused(payload: bytes) -> None:
    server = make()
    with pytest.raises(RemoteProtocolError, match="greeting"):
        server.receive_data(control_frame(Control.GREETING, payload), 0)


def test_a_confirmation_never_goes_backwards() -> None:
    _, server = opened()
    server.send_batches([batch_of([b"x"] * 9)], 0)
    server.receive_data(control_frame(Control.CONFIRM, (5).to_bytes(8, "big")), 0)
    with pytest.raises(RemoteProtocolError, match="4 after 5"):
        server.receive_data(control_frame(Control.CONFIRM, (4).to_bytes(8, "big")), 0)


# ---------------------------------------------------------------------- confirmations, subscriptions, the end


def test_confirmations_are_sent_only_to_those_who_want_them() -> None:
    client, server = opened()
    client.send_batches([batch_of([b"1", b"2"])], 0)
    exchange(client, server)
    server.confirm(2)
    assert sent(server) == b""
    client.want_confirm()
    exchange(client, server)
    server.confirm(1)
    server.confirm(2)
    server.confirm(2)
    exchange(server, client)
    assert client.confirmed() == 2
    assert sent(server) == b""


def test_subscriptions_of_the_options_are_asked_for_after_the_greeting() -> None:
    client, server = make("client", subscriptions=("a.*", "prefix:b")), make()
    exchange(client, server)
    assert server.subscriptions == [("subscribe", "a.*"), ("subscribe", "prefix:b")]


def test_closing_tells_the_peer() -> None:
    client, server = opened()
    client.send_batches([batch_of([b"last"])], 0)
    client.close("done", 0)
    assert plain(server.receive_data(sent(client), 0)) == [(b"last", "")]
    assert client.closed()
    assert server.closed()
    assert server.receive_data(b"\x05after", 0) == []
    server.receive_eof(0)


@pytest.mark.parametrize("rest", [b"\x05hal", b"\xff", b"\xff\x81", b"\xff\0\0\0\0\0\x10\0\0" + b"x" * 1000])
def test_hanging_up_in_the_middle_of_a_message_is_an_error(rest: bytes) -> None:
    server = make()
    server.receive_data(rest, 0)
    with pytest.raises(RemoteProtocolError, match="middle"):
        server.receive_eof(0)


def test_hanging_up_between_messages_is_none() -> None:
    _, server = opened()
    server.receive_data(b"\x01x", 0)
    server.receive_eof(0)
    assert server.closed()


# ---------------------------------------------------------------------- time


def test_a_peer_that_does_not_greet_is_given_up() -> None:
    client = make("client", handshake=3)
    assert client.next_deadline() == 3
    client.handle_timeout(2.9)
    with pytest.raises(RemoteProtocolError, match="no greeting"):
        client.handle_timeout(3)


def test_a_dialler_that_drips_its_greeting_is_given_up() -> None:
    server = make(handshake=3)
    server.receive_data(b"\xff\x81", 1.0)
    server.receive_data(b"\0", 3.5)
    assert server.next_deadline() == 4.0
    with pytest.raises(RemoteProtocolError):
        server.handle_timeout(4.0)


def test_who_has_nothing_to_say_pings() -> None:
    client, server = opened(heartbeat=10)
    assert client.next_deadline() == 10
    client.handle_timeout(10)
    ping = sent(client)
    assert ping == control_frame(Control.PING)
    assert client.next_deadline() == 20
    assert server.receive_data(ping, 10) == []
    client.receive_data(sent(server), 10)
    client.send_batches([batch_of([b"x"])], 15)
    assert client.next_deadline() == 25


def test_a_peer_that_falls_silent_is_given_up_after_three_promises() -> None:
    client, _ = opened(heartbeat=10)
    for now in (10, 20):
        client.handle_timeout(now)
    client.receive_data(control_frame(Control.PONG), 25)
    client.handle_timeout(54)
    with pytest.raises(RemoteProtocolError, match="nothing heard"):
        client.handle_timeout(55)


def test_without_heartbeats_nothing_is_due() -> None:
    client, _ = opened(heartbeat=0)
    assert client.next_deadline() in (None, float("inf"))


def test_two_idle_ends_keep_each_other_alive() -> None:
    client, server = opened(heartbeat=10)
    now = 0.0
    while now < 500:
        deadlines = [end.next_deadline() for end in (client, server)]
        now = min(deadline for deadline in deadlines if deadline is not None)
        for end in (client, server):
            deadline = end.next_deadline()
            if deadline is not None and deadline <= now:
                end.handle_timeout(now)
        exchange(client, server, now)


# ---------------------------------------------------------------------- hostile bytes


def feed(data: bytes, chunk: int, *, old: bool = False) -> None:
    """A listener is given bytes; only ``RemoteProtocolError`` may come of it, and what it keeps is bounded."""
    server: BackendConnection = make(max_message=100_000)
    if not old:
        opened_to(server)
    try:
        for at in range(0, len(data), chunk):
            server.receive_data(data[at : at + chunk], 0)
        server.receive_eof(0)
    except RemoteProtocolError:
        pass
    assert sum(map(len, server.data_to_send())) <= len(data) + 1000


@settings(max_examples=examples(150))
@given(st.binary(max_size=400), st.integers(1, 50), st.booleans())
def test_random_bytes_raise_a_remote_protocol_error_or_nothing(data: bytes, chunk: int, old: bool) -> None:
    feed(data, chunk, old=old)


frames = st.one_of(
    st.builds(
        lambda kind, payload: b"\xff%c" % (0x80 | kind) + len(payload).to_bytes(7, "big") + payload,
        st.integers(0, 15),
        st.one_of(
            st.binary(max_size=40), st.binary(max_size=30).map(lambda rest: bytes(4) + b"\x81\xa3key" + rest)
        ),
    ),
    st.binary(max_size=300).map(lambda body: header(len(body)) + body),
)


@settings(max_examples=examples(150))
@given(st.lists(frames, max_size=10).map(b"".join), st.integers(1, 100), st.booleans())
def test_frames_of_any_sort_raise_a_remote_protocol_error_or_nothing(
    data: bytes, chunk: int, old: bool
) -> None:
    feed(data, chunk, old=old)


@settings(max_examples=examples(150))
@given(
    st.lists(st.tuples(st.integers(0, 2999), st.integers(0, 255)), min_size=1, max_size=10),
    st.integers(1, 999),
)
def test_mutated_conversations_raise_a_remote_protocol_error_or_nothing(
    changes: list[tuple[int, int]], chunk: int
) -> None:
    data = bytearray(BYTES[:3000])
    for at, value in changes:
        data[at] = value
    feed(bytes(data), chunk)


@for_each("path", sorted(CORPUS.iterdir()), ids=lambda path: path.name)
def test_what_once_hurt_does_not_hurt_again(path: Path) -> None:
    data = path.read_bytes()
    for chunk in (1, 7, len(data) or 1):
        feed(data, chunk)
        feed(data, chunk, old=True)


def test_a_buffer_is_used_again_only_when_nobody_looks_at_it() -> None:
    """Large bodies are views of pooled buffers: one that is still held must not change under its holder."""
    connection = BackendConnection(BackendOptions(format="0.x"), "server")
    size = 100_000
    held = []
    for number in range(40):
        body = bytes([number]) * size
        frame = b"\xff" + size.to_bytes(8, "big") + body
        batches = connection.receive_data(frame[:5000], 0.0)
        with connection.room() as room:
            assert len(room) > 0
        position = 5000
        while not batches:
            with connection.room() as room:
                count = min(len(room), 30_000)
                room[:count] = frame[position : position + count]
            position += count
            batches = connection.filled(count, 0.0)
        (received,) = batches[0].bodies
        if number % 2:
            held.append((number, received))
    for number, received in held:
        assert received == bytes([number]) * size
