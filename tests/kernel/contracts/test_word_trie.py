"""What a look-up looks at, and what is left when all is taken back; that it finds the right ones is in test_key_trie.py."""

from __future__ import annotations

from kernel.contracts.key_trie import KeyTrie
from kernel.contracts.spelling import Wildcard
from kernel.contracts.word_trie import WordTrie

ONE, ANY = Wildcard.ONE_WORD, Wildcard.ANY_WORDS


class Counted(str):
    """A word or a key that counts how often it is looked up, or cut."""

    looks = 0

    def __hash__(self) -> int:
        type(self).looks += 1
        return super().__hash__()

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other)

    def __getitem__(self, at: object) -> str:
        type(self).looks += 1
        return super().__getitem__(at)  # type: ignore[index]


def test_ten_thousand_patterns_that_do_not_fit_are_not_looked_at() -> None:
    """Counted, not timed."""
    trie: WordTrie[int] = WordTrie()
    for number in range(10_000):
        trie.add(["feed", str(number), ONE], number)
    Counted.looks = 0
    assert trie.find([Counted("feed"), Counted("77"), Counted("x")]) == [77]
    assert Counted.looks == 2, "the third word stands under the wildcard"


def test_prefixes_are_looked_for_by_their_lengths() -> None:
    trie: KeyTrie[int] = KeyTrie()
    for number in range(10_000):
        trie.add(f"prefix:feed.{number:05}.", number)
    trie.add("prefix:feed.", -1)
    trie.add("prefix:" + "longer than any key" * 10, -2)
    key = Counted("feed.00077.x")
    Counted.looks = 0
    assert set(trie.match(key)) == {77, -1}
    assert Counted.looks == 4, (
        "once whether it is known, once for each of two lengths, and once to remember it"
    )


def test_a_value_stays_as_often_as_it_was_added() -> None:
    trie: WordTrie[str] = WordTrie()
    trie.add(["a", ANY], "x")
    trie.add(["a", ANY], "x")
    trie.add(["a"], "x")
    assert trie.find(["a"]) == ["x", "x"], "once for each pattern"
    assert trie.remove(["a", ANY], "x")
    assert trie.find(["a", "b"]) == ["x"]
    assert trie.remove(["a", ANY], "x")
    assert not trie.remove(["a", ANY], "x")
    assert not trie.remove(["nowhere"], "x")
    assert trie.find(["a"]) == ["x"]
    assert trie.remove(["a"], "x")
    assert not trie
