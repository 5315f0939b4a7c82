"""Key trie: maps patterns to values, and finds the values whose patterns match a key.

The cost of a look-up does not grow with the number of patterns.  There are two sorts of patterns:

* *Topic* patterns are words with dots between them, where ``*`` stands for one word and ``#`` for any number
  of words (AMQP 0-9-1, 3.1.3.3).  Other protocols write them differently: see ``Spelling``.
* *Prefix* patterns match every key that begins with them (as ØMQ's subscriptions do).  They are written with
  ``prefix:`` in front.

A protocol whose keys are octets, not text, converts them with ``key_of_bytes`` and ``prefix_of_bytes``.

The answer for a key is cached until a pattern changes, because flows repeat their keys.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from kernel.contracts.message import Buffer
from kernel.contracts.prefix_table import PrefixTable
from kernel.contracts.spelling import DOTTED, Spelling
from kernel.contracts.word_trie import WordTrie

PREFIX = DOTTED.prefix
_REMEMBERED = 16_384
"""Keys whose answers are cached.  When there are more, the cache is emptied."""

V = TypeVar("V")


class KeyTrie(Generic[V]):
    """Patterns to values, and keys to the values whose patterns match."""

    def __init__(self, spelling: Spelling = DOTTED) -> None:
        self._spelling = spelling
        self._separator = spelling.separator
        self._hidden = spelling.hidden
        self._topics: WordTrie[V] = WordTrie()
        self._prefixes: PrefixTable[str, V] = PrefixTable()
        self._answers: dict[str, tuple[V, ...]] = {}

    def __bool__(self) -> bool:
        return bool(self._topics) or bool(self._prefixes)

    def add(self, pattern: str, value: V) -> None:
        """Store ``value`` under ``pattern``; ``ValueError`` if the pattern is malformed.

        A value that is added several times under one pattern has to be removed as often.
        """
        # All of them: to find the keys whose answers change, each cached key would have to be matched again.
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
        """Return the values whose patterns match ``key``, each once, in no particular order."""
        answer = self._answers.get(key)
        if answer is None:
            # As a whole: that needs no bookkeeping at each look-up, and a key in use is back with its next
            # message.
            if len(self._answers) >= _REMEMBERED:
                self._answers.clear()
            # Every text begins with the empty one, so a spelling without hidden keys is asked for first.
            hidden = self._hidden
            words = key.split(self._separator)
            if hidden and key.startswith(hidden):
                found = self._topics.find(words, hidden=True)
            else:
                found = self._topics.find(words)
            found += self._prefixes.find(key)
            # Each value once: several patterns of one reader may match, and it gets the message once. A
            # tuple, since callers share the cached answer.
            answer = self._answers[key] = tuple(dict.fromkeys(found))
        return answer

    def longest_prefix(self) -> int:
        """Return the length of the longest prefix: prefix patterns do not look at more of a key."""
        return self._prefixes.longest()

    def _prefix(self, pattern: str) -> str | None:
        """Return the prefix of a prefix pattern; None for a topic pattern."""
        mark = self._spelling.prefix
        return pattern[len(mark) :] if mark and pattern.startswith(mark) else None


def key_of_bytes(octets: Buffer) -> str:
    """Return octets as a key with one character for each octet.

    So a prefix of the octets is a prefix of the key.  With UTF-8 a prefix that ends in the middle of a
    character would match nothing.
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
