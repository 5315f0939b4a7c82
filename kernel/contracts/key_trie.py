"""Key trie: which values are stored under patterns that match a key; the cost does not grow with their number.

Two sorts of patterns live in it side by side.  *Topic* patterns are words with dots between them, where ``*`` stands for
one word and ``#`` for any number of words (AMQP 0-9-1, 3.1.3.3).  *Prefix* patterns match every key that begins with them
(ØMQ's subscriptions) and are written with ``prefix:`` in front.  Another protocol's way to write them is a ``Spelling``.

A protocol whose keys are octets, not text, makes keys and prefix patterns of them with ``key_of_bytes`` and ``prefix_of_bytes``.

A key is looked up once and its answer kept until the patterns change: flows repeat their keys.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from kernel.contracts.message import Buffer
from kernel.contracts.spelling import DOTTED, Spelling
from kernel.contracts.word_trie import WordTrie

PREFIX = DOTTED.prefix
_REMEMBERED = 16_384

V = TypeVar("V")


class KeyTrie(Generic[V]):
    """Patterns to values, and keys to the values whose patterns match."""

    def __init__(self, spelling: Spelling = DOTTED) -> None:
        self._spelling = spelling
        self._separator = spelling.separator
        self._hidden = spelling.hidden
        self._topics: WordTrie[V] = WordTrie()
        self._prefixes: _Prefixes[V] = _Prefixes()
        self._answers: dict[str, tuple[V, ...]] = {}

    def __bool__(self) -> bool:
        return bool(self._topics) or bool(self._prefixes)

    def add(self, pattern: str, value: V) -> None:
        """Store ``value`` under ``pattern``, once more if it is there already; ``ValueError``: it is malformed."""
        self._answers.clear()
        prefix = self._prefix(pattern)
        if prefix is not None:
            self._prefixes.add(prefix, value)
        else:
            self._topics.add(self._spelling.pattern(pattern), value)

    def remove(self, pattern: str, value: V) -> bool:
        """Take back one ``add``; False when there was none."""
        self._answers.clear()
        prefix = self._prefix(pattern)
        if prefix is not None:
            return self._prefixes.remove(prefix, value)
        return self._topics.remove(self._spelling.pattern(pattern), value)

    def match(self, key: str) -> tuple[V, ...]:
        """The values whose patterns match ``key``, each once, in no particular order."""
        answer = self._answers.get(key)
        if answer is None:
            if len(self._answers) >= _REMEMBERED:
                self._answers.clear()
            found = self._topics.find(
                key.split(self._separator), hidden=bool(self._hidden) and key.startswith(self._hidden)
            )
            self._prefixes.find(key, found)
            answer = self._answers[key] = tuple(dict.fromkeys(found))
        return answer

    def _prefix(self, pattern: str) -> str | None:
        """Return the beginning of keys that a prefix pattern is for; None: it is a topic pattern."""
        mark = self._spelling.prefix
        return pattern[len(mark) :] if mark and pattern.startswith(mark) else None


class _Prefixes(Generic[V]):
    """Values under the beginnings of keys, looked for by each length that there is: a key has no more beginnings than characters."""

    def __init__(self) -> None:
        self._counts: dict[str, dict[V, int]] = {}
        self._having: dict[int, int] = {}  # length -> how many prefixes
        self._lengths: list[int] = []

    def __bool__(self) -> bool:
        return bool(self._counts)

    def add(self, prefix: str, value: V) -> None:
        counts = self._counts.get(prefix)
        if counts is None:
            counts = self._counts[prefix] = {}
            self._count(len(prefix), 1)
        counts[value] = counts.get(value, 0) + 1

    def remove(self, prefix: str, value: V) -> bool:
        counts = self._counts.get(prefix)
        if counts is None or value not in counts:
            return False
        counts[value] -= 1
        if not counts[value]:
            del counts[value]
        if not counts:
            del self._counts[prefix]
            self._count(len(prefix), -1)
        return True

    def find(self, key: str, found: list[V]) -> None:
        """Add what is under the beginnings of a key to what was found."""
        size = len(key)
        for length in self._lengths:
            if length > size:
                return
            counts = self._counts.get(key[:length])
            if counts is not None:
                found += counts

    def _count(self, length: int, change: int) -> None:
        having = self._having.get(length, 0) + change
        if having:
            self._having[length] = having
        else:
            del self._having[length]
        if len(self._having) != len(self._lengths):
            self._lengths = sorted(self._having)


def key_of_bytes(octets: Buffer) -> str:
    """Return octets as a key in which each octet is one character, so that what begins with what stays as it is.

    UTF-8 does not keep this: half a character, as the end of a prefix, would match nothing.
    """
    return str(octets, "latin-1")


def prefix_of_bytes(octets: Buffer) -> str:
    """Return the pattern of all keys (of ``key_of_bytes``) that begin with these octets."""
    return PREFIX + key_of_bytes(octets)


def key_filter(patterns: tuple[str, ...]) -> Callable[[str], bool]:
    """Return a test whether a key matches any of ``patterns``."""
    trie: KeyTrie[bool] = KeyTrie()
    for pattern in patterns:
        trie.add(pattern, True)
    return lambda key: bool(trie.match(key))
