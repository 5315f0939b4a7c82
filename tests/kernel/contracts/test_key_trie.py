"""The trie against a matcher that is too simple to be wrong."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from kernel.contracts.key_trie import PREFIX, KeyTrie, key_filter
from tests.notes import for_each


def matches(pattern: str, key: str) -> bool:
    """What the words of AMQP 0-9-1, 3.1.3.3 mean, word by word."""
    if pattern.startswith(PREFIX):
        return key.startswith(pattern[len(PREFIX) :])
    return _words_match(pattern.split("."), key.split("."))


def _words_match(pattern: list[str], words: list[str]) -> bool:
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(_words_match(pattern[1:], words[at:]) for at in range(len(words) + 1))
    if not words:
        return False
    return (pattern[0] == "*" or pattern[0] == words[0]) and _words_match(pattern[1:], words[1:])


@for_each(
    "pattern, key, expected",
    [
        ("a.b", "a.b", True),
        ("a.b", "a.c", False),
        ("a", "a.b", False),
        ("a.*", "a.b", True),
        ("a.*", "a", False),
        ("a.*", "a.b.c", False),
        ("*", "", True),
        ("#", "", True),
        ("#", "a.b.c", True),
        ("a.#", "a", True),
        ("a.#", "a.b.c", True),
        ("a.#", "ab", False),
        ("#.c", "a.b.c", True),
        ("#.c", "c", True),
        ("a.#.c", "a.c", True),
        ("a.#.c", "a.b.b.c", True),
        ("#.#", "", True),
        ("*.#", "a", True),
        ("", "", True),
        ("", "a", False),
        ("prefix:", "anything", True),
        ("prefix:ab", "abc", True),
        ("prefix:ab", "ab", True),
        ("prefix:ab", "a", False),
        ("prefix:a.*", "a.b", False),
        ("prefix:a.*", "a.*b", True),
    ],
)
def test_patterns_mean_what_the_specification_says(pattern: str, key: str, expected: bool) -> None:
    trie: KeyTrie[int] = KeyTrie()
    trie.add(pattern, 1)
    assert bool(trie.match(key)) is expected
    assert matches(pattern, key) is expected


words = st.sampled_from(["a", "b", "ab", "*", "#", ""])
keys = st.lists(st.sampled_from(["a", "b", "ab", ""]), min_size=1, max_size=5).map(".".join)
patterns = st.one_of(
    st.lists(words, min_size=1, max_size=5).map(".".join), keys.map(lambda key: PREFIX + key[: len(key) // 2])
)


@given(st.lists(st.tuples(patterns, st.integers(0, 4)), max_size=12), st.lists(keys, min_size=1, max_size=8))
def test_the_trie_agrees_with_a_naive_matcher(stored: list[tuple[str, int]], looked_up: list[str]) -> None:
    trie: KeyTrie[int] = KeyTrie()
    for pattern, value in stored:
        trie.add(pattern, value)
    for key in looked_up:
        found = trie.match(key)
        assert len(found) == len(set(found))
        assert set(found) == {value for pattern, value in stored if matches(pattern, key)}


@given(
    st.lists(st.tuples(st.booleans(), patterns, st.integers(0, 2), keys), max_size=40),
)
def test_adding_and_removing_agree_with_a_multiset(steps: list[tuple[bool, str, int, str]]) -> None:
    trie: KeyTrie[int] = KeyTrie()
    model: Counter[tuple[str, int]] = Counter()
    for add, pattern, value, key in steps:
        if add:
            trie.add(pattern, value)
            model[pattern, value] += 1
        else:
            assert trie.remove(pattern, value) is (model[pattern, value] > 0)
            model[pattern, value] -= model[pattern, value] > 0
        expected = {stored for (kept, stored), count in model.items() if count and matches(kept, key)}
        assert set(trie.match(key)) == expected


def test_what_is_removed_leaves_no_nodes_behind() -> None:
    trie: KeyTrie[int] = KeyTrie()
    for number in range(100):
        trie.add(f"a.{number}.#", number)
        trie.add(f"prefix:x{number}", number)
    for number in range(100):
        trie.remove(f"a.{number}.#", number)
        trie.remove(f"prefix:x{number}", number)
    assert not trie


def test_many_hashes_do_not_make_matching_explode() -> None:
    trie: KeyTrie[int] = KeyTrie()
    trie.add(".".join(["#", "a"] * 12), 1)
    assert trie.match(".".join(["a"] * 40)) == (1,)
    assert trie.match(".".join(["b"] * 40)) == ()


def test_remembered_answers_are_bounded() -> None:
    trie: KeyTrie[int] = KeyTrie()
    trie.add("#", 1)
    for number in range(40_000):
        trie.match(str(number))
    assert len(trie._answers) <= 16_384


def test_a_key_filter_takes_any_of_its_patterns() -> None:
    wants = key_filter(("a.*", "prefix:z"))
    assert [wants(key) for key in ("a.b", "zz", "b")] == [True, True, False]
