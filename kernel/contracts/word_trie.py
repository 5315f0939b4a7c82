"""Word trie: maps patterns of words to values.

A pattern may have wildcards for one word and for any number of words.

``kernel.contracts.spelling`` parses the patterns of a protocol.  The cost of a look-up depends on the number
of words and of matching patterns, not on the number of all patterns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

from kernel.contracts.spelling import Wildcard, Word

V = TypeVar("V")


class Node(Generic[V]):
    """A node of the trie: what may follow one word of a pattern.

    A look-up reads as few objects of a node as possible: with many patterns, each one is a miss of the
    processor's cache.
    """

    __slots__ = ("_counts", "_values", "any_words", "one_word", "words")

    def __init__(self) -> None:
        # None, not an empty dict: most nodes are leaves, and a look-up that goes no further reads one object
        # less.
        self.words: dict[str, Node[V]] | None = None
        self.one_word: Node[V] | None = None
        self.any_words: Node[V] | None = None
        self._counts: dict[V, int] | None = None
        self._values: tuple[V, ...] | None = ()

    def empty(self) -> bool:
        """Whether no pattern ends here or leads on."""
        return not (self.words or self.one_word or self.any_words or self._counts)

    def add(self, value: V) -> None:
        """Add a value of a pattern that ends here."""
        counts = self._counts
        if counts is None:
            counts = self._counts = {}
        counts[value] = counts.get(value, 0) + 1
        # Most patterns have one value. Otherwise the tuple is made when a look-up needs it, since many values
        # may be added in a row.
        self._values = (value,) if len(counts) == 1 else None

    def remove(self, value: V) -> bool:
        """Take back one ``add``; False when there was none."""
        counts = self._counts
        if counts is None or value not in counts:
            return False
        counts[value] -= 1
        if not counts[value]:
            del counts[value]
            self._counts = counts or None
            self._values = None
        return True

    def values(self) -> tuple[V, ...]:
        """Return the values of the patterns that end here."""
        found = self._values
        if found is None:
            found = self._values = tuple(self._counts or ())
        return found


class WordTrie(Generic[V]):
    """Maps patterns to values, and finds the values whose patterns match a sequence of words."""

    __slots__ = ("_root",)

    def __init__(self) -> None:
        self._root: Node[V] = Node()

    def __bool__(self) -> bool:
        return not self._root.empty()

    @property
    def root(self) -> Node[V]:
        """Where all patterns begin: for a ``WordAutomaton``."""
        return self._root

    def add(self, pattern: Sequence[Word], value: V) -> None:
        """Store a value under a pattern.  A value that is added several times has to be removed as often."""
        node = self._root
        for word in pattern:
            node = _grow(node, word)
        node.add(value)

    def remove(self, pattern: Sequence[Word], value: V) -> bool:
        """Take back one ``add``, and remove branches that are empty then; False if there was none."""
        path = [self._root]
        for word in pattern:
            node = _follow(path[-1], word)
            if node is None:
                return False
            path.append(node)
        # The path exists, but it may belong to a longer pattern, or the value to another one.
        if not path[-1].remove(value):
            return False
        # From the end of the pattern to the root. ``path`` has one node more than ``pattern``: the root,
        # which stays.
        for parent, word, node in zip(reversed(path[:-1]), reversed(pattern), reversed(path), strict=False):
            # Still in use, and so are all nodes above it.
            if not node.empty():
                break
            _cut(parent, word)
        return True

    def every(self) -> Iterator[V]:
        """Yield all values, once for each of their patterns.  Not while the trie is changed."""
        nodes = [self._root]
        while nodes:
            node = nodes.pop()
            yield from node.values()
            nodes += (node.words or {}).values()
            nodes += [each for each in (node.one_word, node.any_words) if each is not None]

    def find(  # noqa: C901 - an inner loop
        self, words: Sequence[str], *, hidden: bool = False
    ) -> list[V]:
        """Return the values whose patterns match, in no particular order.

        A value once for each of its patterns.

        ``hidden``: patterns that begin with a wildcard do not match.  The look-up goes through the trie word
        by word, with all nodes that the words so far lead to.
        """
        root = self._root
        after = root.any_words
        if (
            after is not None
            and words
            and not hidden
            and _is_leaf(after)
            and not (root.words or root.one_word)
        ):
            # ``ANY_WORDS`` alone, which is what those have who want everything.
            return [*after.values()]
        # Each node is in one of the two, and once. One way leads to a node of ``reached``, so a list will do.
        # ``staying`` has the nodes of ``ANY_WORDS``, which any further word does not leave. There a
        # dict is an ordered set: a pattern with several ``#`` can match a key in a number of ways that
        # grows exponentially.
        reached = [root]
        staying: dict[Node[V], None] = {}
        if hidden:
            # Only a pattern whose first word is this very word may match, so the root's wildcards are not
            # entered.
            following = _follow(root, words[0])
            reached = [] if following is None else [following]
            words = words[1:]
        for node in reached:
            enter(staying, node.any_words)
        for word in words:
            nodes = [*reached, *staying] if staying else reached
            reached = []
            for node in nodes:
                # ``enter`` is for the rare case that ``ANY_WORDS`` follows: its calls cost more than the
                # rest of this loop.
                if node.words is not None and (following := node.words.get(word)) is not None:
                    reached.append(following)
                    if following.any_words is not None:
                        enter(staying, following.any_words)
                if (following := node.one_word) is not None:
                    reached.append(following)
                    if following.any_words is not None:
                        enter(staying, following.any_words)
            if not reached and not staying:
                return []
        reached += staying
        return [value for node in reached for value in node.values()]


def enter(staying: dict[Node[V], None], node: Node[V] | None) -> None:
    """Add a node of ``ANY_WORDS``, and those that follow it with no word at all."""
    while node is not None and node not in staying:
        staying[node] = None
        node = node.any_words


def _is_leaf(node: Node[V]) -> bool:
    return not (node.words or node.one_word or node.any_words)


def _grow(node: Node[V], word: Word) -> Node[V]:
    if word is Wildcard.ONE_WORD:
        node.one_word = node.one_word or Node()
        return node.one_word
    if word is Wildcard.ANY_WORDS:
        node.any_words = node.any_words or Node()
        return node.any_words
    if node.words is None:
        node.words = {}
    following = node.words.get(word)
    if following is None:
        following = node.words[word] = Node()
    return following


def _follow(node: Node[V], word: Word) -> Node[V] | None:
    if word is Wildcard.ONE_WORD:
        return node.one_word
    if word is Wildcard.ANY_WORDS:
        return node.any_words
    return node.words.get(word) if node.words is not None else None


def _cut(parent: Node[V], word: Word) -> None:
    if word is Wildcard.ONE_WORD:
        parent.one_word = None
    elif word is Wildcard.ANY_WORDS:
        parent.any_words = None
    elif parent.words is not None:
        del parent.words[word]
        parent.words = parent.words or None
