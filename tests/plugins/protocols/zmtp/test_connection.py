"""Chunks, keys, subscriptions, limits, and bytes that are meant to hurt."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel.contracts.errors import LocalProtocolError, ProtocolError, RemoteProtocolError
from kernel.contracts.message import Envelope, batch_of
from kernel.testing.protocol_checks import PROTOCOL_CHECKS, ProtocolSubject
from plugins.protocols.zmtp.commands import METADATA_LIMIT
from plugins.protocols.zmtp.connection import ZmtpConnection
from plugins.protocols.zmtp.prefixes import Prefixes, pattern_of, prefix_of
from tests.notes import for_each
from tests.plugins.protocols.zmtp.conversation import (
    PLAIN,
    SIGNATURE,
    carry,
    greeting,
    make,
    opened,
    plain,
    ready,
    told,
    written,
)
from tests.seeds import examples, many

OLD_GREETINGS = {1: b"\x01\0", 2: SIGNATURE + b"\x01\x08\0\0"}


@pytest.mark.parametrize("check", PROTOCOL_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("keyed", [False, True])
def test_it_passes_the_checks_that_every_protocol_has_to(check: Any, keyed: bool) -> None:
    options: dict[str, Any] = {"key_part": keyed, "handshake": 5.0}
    check(
        ProtocolSubject(make=lambda: (make("PUSH", "client", **options), make("PULL", **options)), keys=keyed)
    )


MESSAGES = st.lists(
    st.one_of(
        st.binary(max_size=5),
        st.sampled_from([b"same size", b"x" * 255, b"y" * 256, b"z" * 300]),
        st.tuples(st.sampled_from([b"", b"key"]), st.binary(max_size=3)),
        st.lists(st.binary(max_size=2), min_size=2, max_size=20).map(tuple),
    ).flatmap(lambda message: st.integers(1, 12).map(lambda times: [message] * times)),
    max_size=12,
)


@settings(max_examples=examples(150), deadline=None)
@given(MESSAGES, st.lists(st.integers(0, 4000), max_size=8), st.sampled_from([1, 2, 3]))
def test_any_messages_in_any_chunks(runs: list[list[Any]], cuts: list[int], version: int) -> None:
    messages = [message for run in runs for message in run]
    push, pull = make("PUSH"), make("PULL")
    if version == 3:
        carry(push, pull, 0.0)
    else:
        # The greeting of a peer of that version, which for PUSH is of PULL.
        push.receive_data(OLD_GREETINGS[version].replace(b"\x08", b"\x07"), 0)
        pull.receive_data(OLD_GREETINGS[version], 0)
        push.data_to_send()
    for message in messages:
        push.send_batches([batch_of([message], multipart=isinstance(message, tuple))], 0)
    data = written(push)
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    received = []
    for start, end in pairwise(edges):
        received += pull.receive_data(data[start:end], 0)
    assert plain(received) == [(message, "") for message in messages]


def test_runs_are_cut_as_single_messages_are() -> None:
    """Runs of all lengths around the sizes that are compared and cut at a time, and what breaks them."""
    for count in (1, 2, 3, 8, 9, 10, 15, 16, 17, 18, 33, 40, 41, 42, 43, 300):
        for shape in ((b"a",), (b"", b"bc"), (b"k", b"", b"v")):
            messages = [shape if len(shape) > 1 else shape[0]] * count + [b"", (b"a", b"a")]
            push, pull = opened("PUSH", "PULL")
            for message in messages:
                push.send_batches([batch_of([message], multipart=isinstance(message, tuple))], 0)
            batches = pull.receive_data(written(push), 0)
            assert plain(batches) == [(message, "") for message in messages]


def test_a_whole_batch_is_one_buffer_and_comes_as_one_batch() -> None:
    publisher = told("PUB", b"SUB")
    publisher.receive_data(b"\0\1\1", 0)
    bodies = [b"%04d" % number for number in range(1000)]
    publisher.send_batches([batch_of(bodies, Envelope(key="k"))], 0)
    out = publisher.data_to_send()
    assert len(out) == 1
    subscriber = told("SUB", b"PUB", subscribe=("",))
    (batch,) = subscriber.receive_data(bytes(out[0]), 0)
    assert (batch.bodies, batch.width, batch.envelope.key) == (bodies, 4, "k")


def test_a_read_is_cut_in_order_wherever_it_begins() -> None:
    bodies = [b"%04d" % number for number in range(100)]
    data = b"".join(b"\0\4" + body for body in bodies)
    for edge in (1, 2, 6, 7, 90, 91, 95, 96, 97, len(data) - 1):
        pull = opened("PUSH", "PULL")[1]
        batches = [*pull.receive_data(data[:edge], 0), *pull.receive_data(data[edge:], 0)]
        assert plain(batches) == [(body, "") for body in bodies]


# ---------------------------------------------------------------------- keys


@for_each(
    "message, body, key",
    [
        ((b"key", b"body"), b"body", "key"),
        ((b"key", b""), b"", "key"),
        ((b"key", b"a", b"b"), (b"a", b"b"), "key"),
        (("grün".encode(), b"x"), b"x", "grün"),
        (b"one part", b"one part", ""),
        ((b"", b"x"), (b"", b"x"), ""),
        ((b"\xff\xfe", b"x"), (b"\xff\xfe", b"x"), ""),
        ((b"k" * 256, b"x"), (b"k" * 256, b"x"), ""),
    ],
)
def test_what_comes_in_goes_out_as_it_was(message: Any, body: Any, key: str) -> None:
    source, _ = opened("PAIR", "PAIR")
    source.send_batches([batch_of([message], multipart=isinstance(message, tuple))], 0)
    octets = written(source)
    subscriber = told("SUB", b"PUB", subscribe=("",))
    batches = subscriber.receive_data(octets, 0)
    assert plain(batches) == [(body, key)]
    publisher = told("PUB", b"SUB")
    publisher.receive_data(b"\0\1\1", 0)
    publisher.send_batches(batches, 0)
    assert written(publisher) == octets


# ---------------------------------------------------------------------- subscriptions


@settings(max_examples=examples(150), deadline=None)
@given(
    st.lists(st.tuples(st.booleans(), st.text("ab", max_size=3).map(str.encode)), max_size=30),
    st.text("ab", max_size=5).map(str.encode),
)
def test_prefixes_are_a_counted_set(steps: list[tuple[bool, bytes]], octets: bytes) -> None:
    prefixes, model = Prefixes(), list[bytes]()
    for add, prefix in steps:
        before = set(model)
        if add:
            model.append(prefix)
            assert prefixes.add(prefix) == (prefix not in before)
        elif prefix in model:
            model.remove(prefix)
            assert prefixes.remove(prefix) == (prefix not in model)
        else:
            assert not prefixes.remove(prefix)
        assert (prefixes.number, prefixes.size) == (len(model), sum(map(len, model)))
    assert prefixes.match(octets) == any(octets.startswith(prefix) for prefix in model)


@settings(max_examples=examples(150), deadline=None)
@given(
    st.one_of(
        st.sets(st.text("ab", max_size=3).map(str.encode)),
        # Many, also of one length.
        st.sets(st.text("abcd", min_size=2, max_size=2).map(str.encode), min_size=5),
    ),
    st.lists(st.text("abcd", max_size=4).map(str.encode), min_size=1),
    st.sampled_from([bytes, bytearray, memoryview]),
    st.integers(0, 2),
)
def test_messages_are_sifted_by_their_beginnings(
    wanted: set[bytes], heads: list[bytes], buffer: Callable[[bytes], Any], more: int
) -> None:
    prefixes = Prefixes()
    for prefix in wanted:
        prefixes.add(prefix)
    # The last of them is another buffer.
    octets: list[Any] = [*heads[:-1], buffer(heads[-1])]
    messages = [(each, *[b"ab"] * more) for each in octets] if more else octets
    found = prefixes.sift(batch_of(messages, multipart=bool(more)))
    expected = [
        message for message, head in zip(messages, heads, strict=True) if head.startswith(tuple(wanted))
    ]
    assert (list(found.bodies) if found is not None else []) == expected


@settings(max_examples=examples(100), deadline=None)
@given(st.text(max_size=8), st.integers(0, 20))
def test_the_pattern_of_any_prefix_of_a_key_matches_it(key: str, size: int) -> None:
    prefix = key.encode("utf-8", "surrogatepass")[:size]
    if not any("\ud800" <= each <= "\udfff" for each in key):
        assert key.startswith(pattern_of(prefix).removeprefix("prefix:"))


@for_each(
    "pattern, prefix",
    [
        ("prefix:a.", b"a."),
        ("#", b""),
        ("a.#", b"a"),
        ("a.*.b", b"a."),
        ("*", b""),
        ("a.b", b"a.b"),
        ("prefix:", b""),
    ],
)
def test_patterns_of_routes_become_prefixes_that_have_their_keys(pattern: str, prefix: bytes) -> None:
    assert prefix_of(pattern) == prefix


def test_only_what_is_subscribed_to_is_sent() -> None:
    end = told("PUB", b"SUB")
    batches = [batch_of([b"1", b"2"], Envelope(key="tea.green")), batch_of([b"3"], Envelope(key="coffee"))]
    batches += [batch_of([b"tea", b"none", b"te"]), batch_of([(b"", b"tea"), (b"teapot",)], multipart=True)]
    end.send_batches(batches, 0)
    assert written(end) == b""
    end.receive_data(b"\0\4\1tea", 0)
    end.send_batches(batches, 0)
    assert written(end) == b"\1\x09tea.green\0\x011\1\x09tea.green\0\x012" + b"\0\3tea" + b"\0\6teapot"
    assert not end.refused


def test_what_a_subscriber_has_not_asked_for_is_dropped() -> None:
    end = told("SUB", b"PUB", subscribe=("tea",))
    assert plain(end.receive_data(b"\0\3tea\0\3mug\1\3tea\0\1x\1\1t\0\0", 0)) == [(b"tea", ""), (b"x", "tea")]


def test_messages_that_the_type_does_not_send_are_refused_by_number() -> None:
    end = told("PULL", b"PUSH")
    end.send_batches([batch_of([b"1", b"2"])], 0)
    assert [(number, reason) for number, reason in end.refused] == [
        (1, "PULL does not send"),
        (2, "PULL does not send"),
    ]
    assert written(end) == b""


def test_a_publisher_drops_what_is_no_subscription_and_xpub_takes_it() -> None:
    for kind, expected in (("PUB", []), ("XPUB", [(b"hello", "")])):
        end = told(kind, b"XSUB")
        assert plain(end.receive_data(b"\0\5hello\0\1\1", 0)) == expected
        assert end.subscriptions == [("subscribe", "prefix:")]


# ---------------------------------------------------------------------- limits, and wrong bytes

ALL = greeting() + ready(b"PUSH")


def feed(end: ZmtpConnection, pieces: list[bytes]) -> None:
    for piece in pieces:
        end.receive_data(piece, 0)


@pytest.mark.parametrize(
    "data, complaint",
    [
        (greeting(1, PLAIN), "mechanism 'PLAIN'"),
        (greeting() + ready(b"SUB"), "PULL needs PUSH"),
        (greeting() + b"\4\x06\x05READY", "PULL needs PUSH"),
        (SIGNATURE + b"\x01\x02", "the peer is SUB"),
        (SIGNATURE + b"\x01\x63", "the peer is 99"),
        (SIGNATURE + b"\0", "revision 0"),
        (greeting() + b"\0\1x", "before the handshake"),
        (greeting() + b"\1\1x", "before the handshake"),
        (greeting() + b"\4\x06\x05HELLO", "READY was to come"),
        (greeting() + b"\4\x07\x05READY\x09", "do not fill"),
        (greeting() + b"\6" + (METADATA_LIMIT + 1).to_bytes(8, "big"), "a command of 8193 bytes"),
        (greeting() + b"\4\0", "without a name"),
        (greeting() + b"\4\2\x09a", "without a name"),
        (ALL + ready(b"PUSH"), "a second READY"),
        (ALL + b"\x08", "flags 0x08"),
        (ALL + b"\5\0", "flags 0x05"),
        (ALL + b"\2" + (1001).to_bytes(8, "big"), "max_message is 1000"),
        (ALL + b"\1\xff" + b"x" * 255 + b"\2" + (746).to_bytes(8, "big"), "max_message is 1000"),
        (ALL + b"\2" + b"\xff" * 8, "max_message is 1000"),
        (ALL + b"\1\0" * 5, "more than 5 parts"),
        (ALL + b"\4\6\4PING\0", "a PING with 1 bytes"),
        (ALL + b"\4\x18\4PING\0\0" + b"c" * 17, "a PING with 19 bytes"),
        (ALL + b"\4\x0a\x09SUBSCRIBE", "does not publish"),
        (b"\1\0" + b"\0", "length of 0"),
        (b"\1\0" + b"\xff" + b"\0" * 9, "length of 0"),
    ],
)
def test_wrong_bytes(data: bytes, complaint: str) -> None:
    for pieces in ([data], [data[at : at + 1] for at in range(len(data))]):
        end = make("PULL", max_message=1000, max_parts=5)
        with pytest.raises(RemoteProtocolError, match=complaint):
            feed(end, pieces)
        assert end.closed()
        assert end.receive_data(b"more", 0) == []
        with pytest.raises(LocalProtocolError):
            end.send_batches([batch_of([b"x"])], 0)


def test_what_came_before_the_fault_counts() -> None:
    end = make("PULL", max_message=10)
    with pytest.raises(RemoteProtocolError) as caught:
        end.receive_data(ALL + b"\0\1a\0\1b\0\x0b", 0)
    assert plain(list(caught.value.batches)) == [(b"a", ""), (b"b", "")]


def test_a_peer_of_the_wrong_type_is_told() -> None:
    end = make("PULL")
    with pytest.raises(RemoteProtocolError):
        end.receive_data(greeting() + ready(b"SUB"), 0)
    assert b"\x05ERROR" in written(end)


@pytest.mark.parametrize("limit", [{"max_subscriptions": 3}, {"subscription_bytes": 12}])
def test_subscriptions_have_limits(limit: dict[str, int]) -> None:
    end = told("PUB", b"SUB", **limit)
    end.receive_data(b"\0\5\1abcd" * 9 + b"\0\5\1efgh\0\5\1ijkl\0\5\0abcd\0\5\1abcd", 0)
    with pytest.raises(RemoteProtocolError, match=next(iter(limit))):
        end.receive_data(b"\0\5\1mnop", 0)


def test_a_handshake_has_a_time() -> None:
    for said in (b"", SIGNATURE, greeting()):
        end = make("PULL", handshake=3.0)
        end.receive_data(said, 1.0)
        assert end.next_deadline() == 3.0
        with pytest.raises(RemoteProtocolError, match="no READY within 3 s"):
            end.handle_timeout(3.0)


def test_an_end_in_the_middle() -> None:
    for data in (SIGNATURE[:4], ALL + b"\0\5he", ALL + b"\1\1a"):
        end = make("PULL")
        end.receive_data(data, 0)
        with pytest.raises(RemoteProtocolError, match="in the middle"):
            end.receive_eof(0)
    end = make("PULL")
    end.receive_data(ALL + b"\0\1a", 0)
    end.receive_eof(0)


@pytest.mark.parametrize("seed", many(0, 30))
@pytest.mark.parametrize("kind", ["PULL", "XPUB", "SUB"])
def test_any_bytes(kind: str, seed: int) -> None:
    """Whatever comes, it is the protocol's own error or nothing."""
    chance = random.Random(seed)
    peer = {"PULL": b"PUSH", "XPUB": b"XSUB", "SUB": b"PUB"}[kind]
    good = greeting() + ready(peer) + b"\0\1\1\4\x0d\x09SUBSCRIBEtea\4\x07\4PING\0\x64\1\1a\0\2bc" * 3
    for _ in range(60):
        data = bytearray(good)
        for _ in range(chance.randrange(1, 6)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        start = chance.choice([0, 0, chance.randrange(len(data))])
        end = make(kind, max_message=1 << 20)
        try:
            for at in range(start, len(data), 1 + seed % 50):
                end.receive_data(bytes(data[at : at + 1 + seed % 50]), 0)
            end.receive_eof(0)
        except ProtocolError:
            assert end.closed()
        end.data_to_send()


def test_a_login_that_comes_too_late_or_too_early() -> None:
    end = make("PULL", mechanism="PLAIN")
    with pytest.raises(RemoteProtocolError, match="before WELCOME"):
        end.receive_data(greeting(1, PLAIN) + b"\4\x08\x05HELLO\0\0\4\x09\x08INITIATE", 0)
    end.decide(None, 0)
    assert not end.ready_to_send()


def test_what_all_subscribers_get_is_encoded_once() -> None:
    """Where the route chooses; each version of the protocol has octets of its own."""
    options = {"key_part": False, "chosen_by_route": True}
    first, second = (told("PUB", b"SUB", **options) for _ in range(2))
    old = make("PUB", **options)
    old.receive_data(b"\1\0", 0.0)  # a subscriber of 1.0, without an identity
    old.data_to_send()
    small, large = batch_of([b"rain", b"wind"]), batch_of([bytes(100_000)])
    sent = []
    for end in (first, old, second, first):
        end.send_batches([small, large], 0.0)
        sent.append(end.data_to_send())
    assert b"".join(sent[0]) == b"\0\4rain\0\4wind" + b"\2" + (100_000).to_bytes(8, "big") + bytes(100_000)
    assert b"".join(sent[1]).startswith(b"\5\0rain\5\0wind")
    assert b"".join(sent[2]) == b"".join(sent[3]) == b"".join(sent[0])
    assert sent[3][0] is sent[2][0]
