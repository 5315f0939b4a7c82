"""Spelling: how a protocol writes patterns of keys, and what they mean as sequences of words.

A trie stores words and two wildcards, never the characters that a protocol writes for them: a word ``*`` in a protocol
that spells the wildcard ``+`` is a word like any other.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, TypeAlias

import msgspec


class Wildcard(Enum):
    """What stands in a pattern for words that are not named."""

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
    """What a pattern begins with whose rest is the beginning of a key; empty: there are no such patterns."""
    hidden: str = ""
    """Keys that begin with this are matched by no pattern that begins with a wildcard; empty: all are alike."""
    strict: bool = False
    """Whether a wildcard inside a word, and ``any_words`` before the end, are refused.  Otherwise a wildcard inside a
    word is part of the word."""

    def pattern(self, text: str) -> tuple[Word, ...]:
        """Return what a pattern says; ``ValueError`` in words for one that the protocol does not allow."""
        words = text.split(self.separator)
        if self.strict:
            self._check(text, words)
        return tuple([self._word(word) for word in words])

    def _word(self, word: str) -> Word:
        if word == self.one_word:
            return Wildcard.ONE_WORD
        return Wildcard.ANY_WORDS if word == self.any_words else word

    def _check(self, text: str, words: list[str]) -> None:
        if not text:
            raise ValueError("a pattern has at least one character")
        for wildcard in (self.one_word, self.any_words):
            if any(wildcard in word and word != wildcard for word in words):
                raise ValueError(f"pattern {text!r}: {wildcard!r} has to stand for a whole word")
        if self.any_words in words[:-1]:
            raise ValueError(f"pattern {text!r}: {self.any_words!r} may only be the last word")


DOTTED: Final = Spelling()
"""Words with dots between them, ``*``, ``#``, and ``prefix:`` patterns."""

MQTT: Final = Spelling(separator="/", one_word="+", any_words="#", prefix="", hidden="$", strict=True)
"""Levels with slashes between them, ``+`` and ``#`` (MQTT 5.0, 4.7); topics that begin with ``$`` are hidden (4.7.2)."""
