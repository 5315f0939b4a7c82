"""Patterns as AMQP and as MQTT spell them, against matchers that are too simple to be wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel.contracts.key_trie import KeyTrie, key_of_bytes, prefix_of_bytes
from kernel.contracts.spelling import DOTTED, MQTT, Spelling, Wildcard
from tests.notes import for_each


def words_match(pattern: list[str], words: list[str], one: str, many: str) -> bool:
    """Whether words match a pattern, word by word."""
    if not pattern:
        return not words
    if pattern[0] == many:
        return any(words_match(pattern[1:], words[at:], one, many) for at in range(len(words) + 1))
    if not words:
        return False
    return pattern[0] in (one, words[0]) and words_match(pattern[1:], words[1:], one, many)


def naive(spelling: Spelling, pattern: str, key: str) -> bool:
    """What the specification says; AMQP 0-9-1, 3.1.3.3, and MQTT 5.0, 4.7."""
    if spelling is MQTT and key.startswith("$") and pattern[:1] in ("+", "#"):
        return False
    return words_match(
        pattern.split(spelling.separator),
        key.split(spelling.separator),
        spelling.one_word,
        spelling.any_words,
    )


@for_each(
    "pattern, topic, expected",
    [
        # MQTT 5.0, 4.7.1.2 and 4.7.1.3: the examples of the specification
        ("sport/tennis/player1/#", "sport/tennis/player1", True),
        ("sport/tennis/player1/#", "sport/tennis/player1/ranking", True),
        ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", True),
        ("sport/#", "sport", True),
        ("sport/tennis/+", "sport/tennis/player1", True),
        ("sport/tennis/+", "sport/tennis/player1/ranking", False),
        ("sport/+", "sport", False),
        ("sport/+", "sport/", True),
        ("+/+", "/finance", True),
        ("/+", "/finance", True),
        ("+", "/finance", False),
        # 4.7.2
        ("#", "$SYS/monitor/Clients", False),
        ("+/monitor/Clients", "$SYS/monitor/Clients", False),
        ("$SYS/#", "$SYS/monitor/Clients", True),
        ("$SYS/monitor/+", "$SYS/monitor/Clients", True),
        ("sport/+", "sport/$money", True),
        # characters that mean nothing in MQTT
        ("a/*", "a/b", False),
        ("a/*", "a/*", True),
        ("*", "*", True),
        ("a.b/+", "a.b/c", True),
        ("prefix:a", "prefix:a", True),
        ("prefix:a", "prefix:ab", False),
    ],
)
def test_filters_of_mqtt_mean_what_the_specification_says(pattern: str, topic: str, expected: bool) -> None:
    trie: KeyTrie[int] = KeyTrie(MQTT)
    trie.add(pattern, 1)
    assert bool(trie.match(topic)) is expected
    assert naive(MQTT, pattern, topic) is expected


@for_each("pattern", ["", "sport/tennis#", "sport/tennis/#/ranking", "sport+", "a/+b/c", "#/#"])
def test_filters_that_mqtt_does_not_allow_are_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="pattern"):
        MQTT.pattern(pattern)


def test_a_refused_filter_leaves_the_trie_as_it_was() -> None:
    trie: KeyTrie[int] = KeyTrie(MQTT)
    with pytest.raises(ValueError, match="last word"):
        trie.add("a/#/b", 1)
    assert not trie


def test_a_wildcard_inside_a_word_is_part_of_the_word_in_amqp() -> None:
    assert DOTTED.pattern("a*.#b.*.#") == ("a*", "#b", Wildcard.ONE_WORD, Wildcard.ANY_WORDS)


_AMQP_WORDS = ["a", "b", "*", "#", "+", "$a", ""]
_MQTT_LEVELS = ["a", "b", "+", "*", ".", "$a", ""]
_amqp_patterns = st.lists(st.sampled_from(_AMQP_WORDS), min_size=1, max_size=5).map(".".join)
_mqtt_patterns = (
    st.tuples(st.lists(st.sampled_from(_MQTT_LEVELS), max_size=4), st.sampled_from([[], ["#"]]))
    .map(lambda parts: "/".join(parts[0] + parts[1]))
    .filter(bool)
)
_amqp_keys = st.lists(st.sampled_from(["a", "b", "*", "+", "$a", ""]), min_size=1, max_size=5).map(".".join)
_mqtt_topics = st.lists(st.sampled_from(["a", "b", "*", ".", "$a", ""]), min_size=1, max_size=5).map("/".join)


@given(st.lists(_amqp_patterns, max_size=12), st.lists(_amqp_keys, min_size=1, max_size=8))
def test_the_trie_agrees_with_a_naive_matcher_for_amqp(patterns: list[str], keys: list[str]) -> None:
    _compare(DOTTED, patterns, keys)


@given(st.lists(_mqtt_patterns, max_size=12), st.lists(_mqtt_topics, min_size=1, max_size=8))
def test_the_trie_agrees_with_a_naive_matcher_for_mqtt(patterns: list[str], topics: list[str]) -> None:
    _compare(MQTT, patterns, topics)


def _compare(spelling: Spelling, patterns: list[str], keys: list[str]) -> None:
    trie: KeyTrie[str] = KeyTrie(spelling)
    for pattern in patterns:
        trie.add(pattern, pattern)
    for key in keys:
        assert set(trie.match(key)) == {pattern for pattern in patterns if naive(spelling, pattern, key)}
    for pattern in patterns:
        assert trie.remove(pattern, pattern)
    assert not trie


@given(st.lists(st.binary(max_size=4), max_size=10), st.lists(st.binary(max_size=6), min_size=1, max_size=8))
def test_prefixes_of_octets_match_what_begins_with_them(prefixes: list[bytes], keys: list[bytes]) -> None:
    trie: KeyTrie[bytes] = KeyTrie()
    for prefix in prefixes:
        trie.add(prefix_of_bytes(prefix), prefix)
    for key in keys:
        expected = {prefix for prefix in prefixes if key.startswith(prefix)}
        assert set(trie.match(key_of_bytes(key))) == expected


def test_half_a_character_of_utf_8_is_a_prefix() -> None:
    trie: KeyTrie[int] = KeyTrie()
    trie.add(prefix_of_bytes("é".encode()[:1]), 1)
    assert trie.match(key_of_bytes(memoryview("été".encode()))) == (1,)
