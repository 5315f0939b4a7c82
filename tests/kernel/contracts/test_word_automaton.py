"""A word automaton finds what the trie finds, whatever the patterns, and however much it has to forget."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from kernel.contracts import word_automaton
from kernel.contracts.spelling import Wildcard, Word
from kernel.contracts.word_automaton import WordAutomaton
from kernel.contracts.word_trie import WordTrie

WORDS = some.sampled_from(["a", "b", "c", ""])
PATTERNS = some.lists(
    some.lists(some.one_of(WORDS, some.sampled_from([*Wildcard])), max_size=5).map(tuple), max_size=8
)
KEYS = some.lists(some.lists(WORDS, max_size=6).map(".".join), max_size=12)


def words_of(key: str) -> list[str]:
    """The empty key has no word."""
    return key.split(".") if key else []


def check(patterns: list[tuple[Word, ...]], keys: list[str]) -> None:
    trie: WordTrie[int] = WordTrie()
    for number, pattern in enumerate(patterns):
        trie.add(pattern, number)
    found = WordAutomaton(trie).find_all(keys, ".")
    assert list(map(Counter, found)) == [Counter(trie.find(words_of(key))) for key in keys]


@given(PATTERNS, KEYS)
def test_it_finds_what_the_trie_finds(patterns: list[tuple[Word, ...]], keys: list[str]) -> None:
    check(patterns, keys)


@given(
    PATTERNS,
    some.sampled_from(["a", "a.b", "", "."]),
    some.lists(some.sampled_from(["a", "b", "1", "2", "3", "", "a.b", "\0"]), min_size=8, max_size=12),
    some.lists(some.sampled_from(["a", "a.b", "a.b.c", "ab.1", "", "b.1"]), max_size=1),
    some.integers(0, 12),
)
def test_it_finds_it_for_keys_that_differ_in_their_last_word(
    patterns: list[tuple[Word, ...]], front: str, last: list[str], other: list[str], at: int
) -> None:
    """They are looked at together, if all of them are so and no pattern asks for a certain last word."""
    keys = [f"{front}.{word}" for word in last]
    check(
        [*patterns, ("a", Wildcard.ONE_WORD), ("a", "b", Wildcard.ANY_WORDS)], keys[:at] + other + keys[at:]
    )


@pytest.mark.parametrize("states, words", [(1, 50_000), (3, 50_000), (1000, 1)])
def test_it_finds_the_same_when_it_forgets(monkeypatch: pytest.MonkeyPatch, states: int, words: int) -> None:
    monkeypatch.setattr(word_automaton, "_MOST_STATES", states)
    monkeypatch.setattr(word_automaton, "_MOST_WORDS", words)
    patterns: list[tuple[Word, ...]] = [
        ("a", Wildcard.ANY_WORDS, "b"),
        (Wildcard.ONE_WORD, "b", Wildcard.ANY_WORDS),
        (Wildcard.ANY_WORDS, "c", Wildcard.ONE_WORD),
        ("a", "b", "c"),
        (),
    ]
    keys = [".".join((x, y, z)) for x in "abcd" for y in "abcd" for z in "abcd"]
    check(patterns, [*keys, "", "a", "b.b", *reversed(keys)])


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patterns with several ``#`` lead to exponentially many states."""
    monkeypatch.setattr(word_automaton, "_MOST_STATES", 20)
    trie: WordTrie[int] = WordTrie()
    for number in range(8):
        trie.add((Wildcard.ANY_WORDS, "a", *[Wildcard.ONE_WORD] * number), number)
    automaton = WordAutomaton(trie)
    keys = [".".join("ab"[number >> bit & 1] for bit in range(10)) for number in range(1024)]
    automaton.find_all(keys, ".")
    assert len(automaton._states) <= 20


def test_keys_that_differ_in_their_last_word_are_looked_at_together(monkeypatch: pytest.MonkeyPatch) -> None:
    trie: WordTrie[str] = WordTrie()
    trie.add(("feed", Wildcard.ONE_WORD), "queue")
    trie.add(("other", "special"), "another")
    automaton = WordAutomaton(trie)
    numbers = [f"{number}" for number in range(100)]
    monkeypatch.setattr(automaton, "_fronts", fronts := Counting())
    assert automaton.find_all([f"feed.{number}" for number in numbers], ".") == [("queue",)] * 100
    assert fronts.asked == 1
    fronts.asked = 0
    assert automaton.find_all([f"other.{number}" for number in numbers], ".") == [()] * 100
    assert fronts.asked > 1, "one of them might be the special one"


class Counting(dict[str, Any]):
    """Counts how often it is asked."""

    asked = 0

    def get(self, key: str, default: Any = None) -> Any:
        self.asked += 1
        return super().get(key, default)


def test_equal_answers_are_one_object() -> None:
    trie: WordTrie[str] = WordTrie()
    trie.add(("feed", Wildcard.ONE_WORD), "queue")
    found = WordAutomaton(trie).find_all([f"feed.{number}" for number in range(100)], ".")
    assert found == [("queue",)] * 100
    assert len(set(map(id, found))) == 1
