"""Key trie: which values are stored under patterns that match a key; the cost does not grow with their number.

Two sorts of patterns live in it side by side.  *Topic* patterns are words with dots between them, where ``*`` stands for
one word and ``#`` for any number of words (AMQP 0-9-1, 3.1.3.3).  *Prefix* patterns match every key that begins with them
(ØMQ's subscriptions) and are written with ``prefix:`` in front.

A key is looked up once and its answer kept until the patterns change: flows repeat their keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

PREFIX = "prefix:"
_REMEMBERED = 16_384

V = TypeVar("V")


class _Node(Generic[V]):
    __slots__ = ("children", "values")

    def __init__(self) -> None:
        self.children: dict[str, _Node[V]] = {}
        self.values: dict[V, int] = {}  # value -> how many times it was stored here


class KeyTrie(Generic[V]):
    """Patterns to values, and keys to the values whose patterns match."""

    def __init__(self) -> None:
        self._topics: _Node[V] = _Node()
        self._prefixes: _Node[V] = _Node()
        self._answers: dict[str, tuple[V, ...]] = {}

    def add(self, pattern: str, value: V) -> None:
        """Store ``value`` under ``pattern``, once more if it is there already."""
        self._answers.clear()
        values = self._node(pattern).values
        values[value] = values.get(value, 0) + 1

    def remove(self, pattern: str, value: V) -> bool:
        """Take back one ``add``; False when there was none."""
        self._answers.clear()
        root, steps = self._path(pattern)
        path = [root]
        for step in steps:
            node = path[-1].children.get(step)
            if node is None:
                return False
            path.append(node)
        values = path[-1].values
        if value not in values:
            return False
        values[value] -= 1
        if not values[value]:
            del values[value]
        for parent, step in zip(reversed(path[:-1]), reversed(steps), strict=True):
            child = parent.children[step]
            if child.values or child.children:
                break
            del parent.children[step]
        return True

    def match(self, key: str) -> tuple[V, ...]:
        """The values whose patterns match ``key``, each once, in no particular order."""
        answer = self._answers.get(key)
        if answer is None:
            if len(self._answers) >= _REMEMBERED:
                self._answers.clear()
            answer = self._answers[key] = tuple(dict.fromkeys(self._find(key)))
        return answer

    def _path(self, pattern: str) -> tuple[_Node[V], list[str]]:
        if pattern.startswith(PREFIX):
            return self._prefixes, list(pattern[len(PREFIX) :])
        return self._topics, pattern.split(".")

    def _node(self, pattern: str) -> _Node[V]:
        node, steps = self._path(pattern)
        for step in steps:
            node = node.children.setdefault(step, _Node())
        return node

    def _find(self, key: str) -> Iterator[V]:
        node: _Node[V] | None = self._prefixes
        for character in [*key, None]:
            if node is None:
                break
            yield from node.values
            node = node.children.get(character) if character is not None else None
        yield from self._match_words(key.split("."))

    def _match_words(self, words: list[str]) -> Iterator[V]:
        """Walk all branches at once; ``seen`` keeps ``#`` from making the walk exponential."""
        todo: list[tuple[_Node[V], int]] = [(self._topics, 0)]
        seen: set[tuple[int, int]] = set()
        while todo:
            node, at = todo.pop()
            if (id(node), at) in seen:
                continue
            seen.add((id(node), at))
            children = node.children
            if at == len(words):
                yield from node.values
            else:
                steps = ("*",) if words[at] in ("#", "*") else (words[at], "*")
                todo += [(child, at + 1) for step in steps if (child := children.get(step)) is not None]
            if (child := children.get("#")) is not None:
                todo.extend((child, rest) for rest in range(at, len(words) + 1))


def key_filter(patterns: tuple[str, ...]) -> Callable[[str], bool]:
    """Return a test whether a key matches any of ``patterns``."""
    trie: KeyTrie[bool] = KeyTrie()
    for pattern in patterns:
        trie.add(pattern, True)
    return lambda key: bool(trie.match(key))
