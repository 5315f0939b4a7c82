"""Quick patterns: which regular expressions users may have searched in names.

A search holds the interpreter's lock until it ends.  RabbitMQ's expressions give up after some steps, and
Python's do not.
"""

from __future__ import annotations

import re

from plugins.engines.web.management.call import bad_request

LONGEST_PATTERN = 200
"""Characters of a regular expression."""
MOST_REPEATS = 2
"""Repeats in a regular expression: the time for a name grows with their number as its exponent."""


def require_quick(text: str) -> None:
    """Refuse a regular expression that could hold up the process."""
    repeats = len(re.findall(r"[*+{]", text))
    if len(text) > LONGEST_PATTERN or repeats > MOST_REPEATS or re.search(r"\)[*+?{]", text):
        raise bad_request(
            f"a pattern has at most {LONGEST_PATTERN} characters and {MOST_REPEATS} repeats, and none of a group"
        )
