"""Topics and keys: the table, that nothing is lost, and what is a valid topic."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from kernel.contracts.spelling import DOTTED, MQTT
from kernel.contracts.word_trie import WordTrie
from plugins.protocols.mqtt.encoder import encode
from plugins.protocols.mqtt.topics import (
    filter_fault,
    is_hidden,
    join_share,
    key_to_topic,
    name_fault,
    split_share,
    topic_to_key,
)
from tests.notes import for_each
from tests.plugins.protocols.mqtt.conversation import opened, plain, publish
from tests.seeds import examples

KEYS = [
    ("a", "a"),
    ("a/b", "a.b"),
    ("a.b/c", "a/b.c"),
    ("/finance", ".finance"),
    ("a//b/", "a..b."),
    ("sport/tennis/+", "sport.tennis.*"),
    ("sport/tennis/#", "sport.tennis.#"),
    ("#", "#"),
    ("+/+", "*.*"),
    ("a*b/c+d", "a+b.c*d"),
    ("$SYS/broker/load", "$SYS.broker.load"),
    ("v1.2/π/\U0001f600", "v1/2.π.\U0001f600"),
]


@for_each("topic,key", KEYS)
def test_topics_and_keys(topic: str, key: str) -> None:
    assert topic_to_key(topic) == key
    assert key_to_topic(key) == topic


@pytest.mark.slow
@given(some.text(some.sampled_from("ab/.+*#$é")) | some.text())
@settings(max_examples=examples(200), deadline=None)
def test_the_exchange_is_undone_by_itself(text: str) -> None:
    assert key_to_topic(topic_to_key(text)) == text
    assert topic_to_key(topic_to_key(text)) == text


words = some.sampled_from(["a", "b", "a.b", "*", "", "é"])
topics = some.lists(words, min_size=1, max_size=4).map("/".join).filter(bool)
filters = some.lists(words | some.just("+"), min_size=1, max_size=4).map("/".join).filter(bool)


@pytest.mark.slow
@given(filters | filters.map(lambda text: text + "/#"), topics)
@settings(max_examples=examples(150), deadline=None)
def test_a_key_matches_a_pattern_exactly_when_the_topic_matches_the_filter(text: str, topic: str) -> None:
    """The trie of MQTT's own spelling says what is right."""
    theirs: WordTrie[int] = WordTrie()
    theirs.add(MQTT.pattern(text), 1)
    ours: WordTrie[int] = WordTrie()
    ours.add(DOTTED.pattern(topic_to_key(text)), 1)
    assert ours.find(topic_to_key(topic).split(".")) == theirs.find(topic.split("/"))


@pytest.mark.parametrize("version", [4, 5])
def test_topics_are_not_normalized(version: int) -> None:
    """[MQTT-4.7.3-4], with the examples of 4.7.3; the two forms of an accented letter are two topics."""
    parser = opened("server", version)
    for topic in ("ACCOUNTS", "Accounts", "/finance", "finance", "a//b", "a/b/", "\u00e9", "e\u0301", " a "):
        octets = encode(publish(topic, b""), version)
        assert plain(parser.receive_data(octets))[0][1] == topic
        assert key_to_topic(topic_to_key(topic)) == topic


def test_topics_that_begin_with_a_dollar_are_hidden_from_wildcards() -> None:
    """[MQTT-4.7.2-1], with the examples of 4.7.2."""
    trie: WordTrie[str] = WordTrie()
    for text in ("#", "+/monitor/Clients", "$SYS/#", "$SYS/monitor/+"):
        trie.add(MQTT.pattern(text), text)
    topic = "$SYS/monitor/Clients"
    assert is_hidden(topic)
    assert is_hidden(topic_to_key(topic))
    assert set(trie.find(topic.split("/"), hidden=is_hidden(topic))) == {"$SYS/#", "$SYS/monitor/+"}
    assert not is_hidden("a/$SYS")
    assert set(trie.find(["x", "monitor", "Clients"], hidden=is_hidden("x"))) == {"#", "+/monitor/Clients"}


# The examples of 4.7.1.2, 4.7.1.3 and 4.7.3.
GOOD = [
    "sport/tennis/player1/#",
    "sport/#",
    "#",
    "sport/tennis/#",
    "+",
    "+/tennis/#",
    "sport/+/player1",
    "/",
    " ",
    "/+",
    "+/+",
]
BAD = ["sport/tennis#", "sport/tennis/#/ranking", "sport+", "", "a/+b/c", "#/", "a\0b", "##", "++"]


@for_each("text", GOOD)
def test_filters_that_are_valid(text: str) -> None:
    assert filter_fault(text) is None


@for_each("text", BAD)
def test_filters_that_are_not(text: str) -> None:
    assert filter_fault(text)


@for_each("text", ["Accounts payable", "/finance", "/", "a.b", "$SYS", "a*"])
def test_names_that_are_valid(text: str) -> None:
    assert name_fault(text) is None


@pytest.mark.parametrize("text", ["", "+", "a/#", "a\0"])
def test_names_that_are_not(text: str) -> None:
    assert name_fault(text)


@for_each(
    "text,name,rest",
    [
        ("$share/consumer1/sport/tennis/+", "consumer1", "sport/tennis/+"),
        ("$share/consumer1//finance", "consumer1", "/finance"),
        ("$share/n/#", "n", "#"),
        ("a/$share/n/b", "", "a/$share/n/b"),
        ("$shared/n/b", "", "$shared/n/b"),
        ("$share", "", "$share"),
    ],
)
def test_shared_subscriptions(text: str, name: str, rest: str) -> None:
    """4.8.2, with its examples."""
    assert split_share(text) == (name, rest)
    assert join_share(name, rest) == text


@for_each("text", ["$share/", "$share//a", "$share/n", "$share/n/", "$share/+/a", "$share/#/a"])
def test_shared_subscriptions_that_are_not(text: str) -> None:
    with pytest.raises(ValueError, match="share"):
        split_share(text)
