"""Spelling: how a protocol writes patterns of keys; converts a pattern to a sequence of words and wildcards.

A trie stores words and the two wildcards, not the characters that a protocol writes for wildcards.  So in a
protocol whose wildcard is ``+``, a word ``*`` is an ordinary word.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, TypeAlias

import msgspec


class Wildcard(Enum):
    """An element of a pattern that stands for any words."""

    ONE_WORD = "one word"
    ANY_WORDS = "any number of words, none among them"


Word: TypeAlias = "str | Wildcard"
"""One element of a pattern."""


class Spelling(msgspec.Struct, frozen=True, kw_only=True):
    """How patterns and keys are written.  The default is that of AMQP 0-9-1, 3.1.3.3, and of routes."""

    separator: str = "."
    one_word: str = "*"
    any_words: str = "#"
    prefix: str = "prefix:"
    """The mark in front of a prefix pattern; empty: there are no prefix patterns."""
    hidden: str = ""
    """Patterns that begin with a wildcard do not match keys that begin with this; empty: there are no such
    keys."""
    strict: bool = False
    """Whether a wildcard inside a word, and ``any_words`` before the end, are refused.  Otherwise a wildcard
    inside a word is part of the word."""

    def pattern(self, text: str) -> tuple[Word, ...]:
        """Return the words and wildcards of a pattern; ``ValueError`` if the protocol does not allow it."""
        words = text.split(self.separator)
        if self.strict:
            self._check(text, words)
        return tuple([self._word(word) for word in words])

    def _word(self, word: str) -> Word:
        if word == self.one_word:
            return Wildcard.ONE_WORD
        return Wildcard.ANY_WORDS if word == self.any_words else word

    def _check(self, text: str, words: list[str]) -> None:
        # MQTT 5.0, 4.7.3: a topic filter has at least one character.
        if not text:
            raise ValueError("a pattern has at least one character")
        # MQTT 5.0, 4.7.1.2 and 4.7.1.3: wildcards occupy a whole level, and ``#`` is the last.
        for wildcard in (self.one_word, self.any_words):
            if any(wildcard in word and word != wildcard for word in words):
                raise ValueError(f"pattern {text!r}: {wildcard!r} has to stand for a whole word")
        if self.any_words in words[:-1]:
            raise ValueError(f"pattern {text!r}: {self.any_words!r} may only be the last word")


DOTTED: Final = Spelling()
"""Words with dots between them, ``*``, ``#``, and ``prefix:`` patterns."""

MQTT: Final = Spelling(separator="/", one_word="+", any_words="#", prefix="", hidden="$", strict=True)
"""Levels with slashes between them, ``+`` and ``#`` (MQTT 5.0, 4.7); topics that begin with ``$`` are hidden
(4.7.2)."""
