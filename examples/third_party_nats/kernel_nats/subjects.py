"""Subjects of NATS and patterns of routes.

Both are words with dots between them, and ``*`` is one word in both.  ``>`` at the end of a subject is one
word or more; the pattern for it is ``*.#``.
"""

from __future__ import annotations

from kernel.contracts.groups import GROUP
from kernel.contracts.key_trie import PREFIX


def is_subject(text: str) -> bool:
    """Whether a message can have this subject: there is one, without spaces and control characters."""
    return bool(text) and text.isprintable() and " " not in text


def pattern_of(subject: str) -> str:
    """Return the pattern of a subscription.  Raises ``ValueError`` if the subject is invalid.

    In a pattern ``#`` is a wildcard, and ``group:`` and ``prefix:`` at its beginning have a meaning.  So such
    subjects are refused, though NATS allows them.
    """
    words = subject.split(".")
    if not is_subject(subject) or "" in words or ">" in words[:-1]:
        raise ValueError("no such subject")
    if "#" in words or subject.startswith((GROUP, PREFIX)):
        raise ValueError("a subject that routes write otherwise")
    if words[-1] == ">":
        words[-1:] = ["*", "#"]
    return ".".join(words)
