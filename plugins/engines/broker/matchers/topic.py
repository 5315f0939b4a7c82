"""Topic: the key's words against patterns with ``*`` (one word) and ``#`` (any number of words).

A trie of words: the cost of a match depends on the words of the key and on how many patterns do
match, not on how many are bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from plugins.engines.broker.binding import Binding, Destination
from plugins.engines.broker.matchers.matcher import LooksAt


class _Node:
    """What follows one word of a pattern.

    A match reads few objects of each node it comes by: among many bindings each is a miss of the processor's cache.
    """

    __slots__ = ("_destinations", "any_words", "bindings", "one_word", "repeats", "words")

    def __init__(self, *, repeats: bool = False) -> None:
        self.words: dict[str, _Node] | None = None
        self.one_word: _Node | None = None
        self.any_words: _Node | None = None
        self.repeats = repeats
        """Whether it was reached by ``#`` and may swallow more words."""
        self.bindings: dict[Binding, None] | None = None
        self._destinations: tuple[Destination, ...] | None = None

    def empty(self) -> bool:
        return not (self.words or self.one_word or self.any_words or self.bindings)

    def add(self, binding: Binding) -> None:
        """A pattern ends here."""
        if self.bindings is None:
            self.bindings = {}
        self.bindings[binding] = None
        self._destinations = (binding.destination,) if len(self.bindings) == 1 else None

    def remove(self, binding: Binding) -> None:
        """It does no more."""
        assert self.bindings is not None, "the binding was added"
        del self.bindings[binding]
        self._destinations = None

    def destinations(self) -> tuple[Destination, ...]:
        """Return where the patterns lead that end here."""
        found = self._destinations
        if found is None:
            found = self._destinations = tuple(binding.destination for binding in self.bindings or ())
        return found


def words_of(key: str) -> list[str]:
    """Split a key; the empty key has no word at all (RabbitMQ), ``a..b`` has three."""
    return key.split(".") if key else []


class TopicMatcher:
    """Patterns in a trie."""

    looks_at: ClassVar[LooksAt] = "key"

    def __init__(self) -> None:
        self._root = _Node()

    def check(self, key: str, arguments: Mapping[str, Any]) -> None:
        """Any key will do."""

    def add(self, binding: Binding) -> None:
        """Take a binding."""
        node = self._root
        for word in words_of(binding.key):
            node = _grow(node, word)
        node.add(binding)

    def remove(self, binding: Binding) -> None:
        """Forget a binding, and the branches that led to it alone."""
        words = words_of(binding.key)
        path = [self._root]
        for word in words:
            path.append(_follow(path[-1], word))
        path[-1].remove(binding)
        for parent, word, node in zip(reversed(path[:-1]), reversed(words), reversed(path), strict=False):
            if not node.empty():
                break
            _cut(parent, word)

    def match(self, key: str, headers: Mapping[str, Any]) -> Iterable[Destination]:
        """Return the destinations whose pattern the key fits."""
        nodes: dict[_Node, None] = {}
        _enter(nodes, self._root)
        for word in words_of(key):
            reached: dict[_Node, None] = {}
            for node in nodes:
                if node.repeats:
                    reached[node] = None
                if node.words is not None and (following := node.words.get(word)) is not None:
                    _enter(reached, following)
                if node.one_word is not None:
                    _enter(reached, node.one_word)
            nodes = reached
            if not nodes:
                return ()
        return [destination for node in nodes for destination in node.destinations()]


def _enter(nodes: dict[_Node, None], node: _Node | None) -> None:
    """Stand on a node, and on what ``#`` leads to from there without any word."""
    while node is not None and node not in nodes:
        nodes[node] = None
        node = node.any_words


def _grow(node: _Node, word: str) -> _Node:
    if word == "*":
        node.one_word = node.one_word or _Node()
        return node.one_word
    if word == "#":
        node.any_words = node.any_words or _Node(repeats=True)
        return node.any_words
    if node.words is None:
        node.words = {}
    following = node.words.get(word)
    if following is None:
        following = node.words[word] = _Node()
    return following


def _follow(node: _Node, word: str) -> _Node:
    following = {"*": node.one_word, "#": node.any_words}.get(word, (node.words or {}).get(word))
    assert following is not None, "the binding was added"
    return following


def _cut(parent: _Node, word: str) -> None:
    if word == "*":
        parent.one_word = None
    elif word == "#":
        parent.any_words = None
    elif parent.words is not None:
        del parent.words[word]
        parent.words = parent.words or None
