"""Versions and heart-beats are agreed on as the specification's tables say."""

from __future__ import annotations

import pytest

from plugins.protocols.stomp.errors import Fault
from plugins.protocols.stomp.heart_beats import HeartBeats, Offer, interval
from plugins.protocols.stomp.versions import Version, negotiate
from tests.notes import for_each


@for_each(
    "accepted, version",
    [
        (None, "1.0"),
        ("1.0", "1.0"),
        ("1.0,1.1,2.0", "1.1"),
        ("1.2,1.1,1.0", "1.2"),
        ("1.1, 1.2", "1.2"),
        ("2.0", None),
        ("", None),
        ("1.20", None),
    ],
)
def test_the_highest_common_version(accepted: str | None, version: str | None) -> None:
    assert negotiate(accepted) == (None if version is None else Version(version))


@pytest.mark.parametrize(
    "sender, receiver, seconds", [(0, 0, 0), (0, 100, 0), (100, 0, 0), (2000, 1000, 2), (1000, 2000, 2)]
)
def test_the_interval_is_the_larger_of_what_both_want(sender: int, receiver: int, seconds: float) -> None:
    assert interval(sender, receiver) == seconds


@pytest.mark.parametrize(
    "text, offer",
    [(None, (0, 0)), ("0,0", (0, 0)), ("1000,2000", (1000, 2000)), (" 10 , 20 ", (10, 20))],
)
def test_the_header_of_heart_beats(text: str | None, offer: tuple[int, int]) -> None:
    assert Offer.of(text) == offer


@for_each("text", ["", "1", "1,2,3", "a,b", "-1,0", "1.5,0", "\u0663,0", "1" * 20 + ",0"])
def test_a_header_of_heart_beats_that_is_none(text: str) -> None:
    with pytest.raises(Fault, match="heart-beat"):
        Offer.of(text)


@pytest.mark.parametrize(
    "client, least, answer",
    [
        ((0, 0), 1000, (0, 0)),
        ((10_000, 20_000), 1000, (20_000, 10_000)),
        ((1, 1), 1000, (1000, 1000)),
        ((5000, 0), 1000, (0, 5000)),
        ((5000, 5000), 0, (0, 0)),
    ],
)
def test_a_server_offers_what_the_client_wants(
    client: tuple[int, int], least: int, answer: tuple[int, int]
) -> None:
    assert Offer(*client).answer(least) == answer


def test_something_is_sent_in_each_interval() -> None:
    beats = HeartBeats()
    beats.start(Offer(3000, 0), Offer(0, 3000), 0.0)
    assert beats.next_deadline() == 1.0
    assert beats.due(1.0, 0)
    assert not beats.due(1.1, 1)
    assert beats.due(2.0, 1)  # the one octet was the heart-beat
    assert not beats.due(3.0, 50)
    assert beats.due(4.0, 50)


def test_a_silent_peer_is_lost_after_two_intervals() -> None:
    beats = HeartBeats()
    beats.start(Offer(0, 1000), Offer(1000, 0), 0.0)
    beats.received(1.0)
    assert beats.next_deadline() == 3.0
    assert not beats.peer_is_silent(2.9)
    assert beats.peer_is_silent(3.0)
    beats.stop()
    assert beats.next_deadline() is None
    assert not beats.peer_is_silent(100.0)


def test_without_heart_beats_nothing_is_due() -> None:
    beats = HeartBeats()
    beats.start(Offer(0, 0), Offer(1000, 1000), 0.0)
    assert beats.next_deadline() is None
    assert not beats.due(10.0, 0)
    assert not beats.peer_is_silent(10.0)
