"""Quick patterns: which regular expressions users may have searched in names.

A search holds the interpreter's lock until it ends.  RabbitMQ's expressions give up after some steps, and
Python's do not.
"""

from __future__ import annotations

import re

from plugins.engines.web.management.call import bad_request

LONGEST_PATTERN = 200
"""Characters of a regular expression."""
MOST_CHOICES = 2
"""Repeats, options and groups with alternatives in a regular expression.

A search may try each way through one of them together with each way through all others."""
_LITERAL = re.compile(r"\\.|\[\^?\]?[^\]]*\]")
"""An escaped character, or a class: nothing in it has another meaning.

A class may end later than this says, and never earlier, so no repeat is overlooked."""


def require_quick(text: str) -> None:
    """Refuse a regular expression that could hold up the process."""
    # What "(?" begins is a group, and no option.
    bare = _LITERAL.sub("x", text).replace("(?", "(")
    choices = len(re.findall(r"[*+?{]", bare)) + _alternatives(bare)
    if len(text) > LONGEST_PATTERN or choices > MOST_CHOICES or re.search(r"\)[*+?{]", bare):
        raise bad_request(
            f"a pattern has at most {LONGEST_PATTERN} characters, at most {MOST_CHOICES} of repeats (* + ? {{) "
            "and of groups with alternatives, and no repeat of a group"
        )


def _alternatives(bare: str) -> int:
    """Return how many groups have alternatives.  Outside of groups they are tried one after the other."""
    open_groups: list[bool] = []
    found = 0
    for character in bare:
        if character == "(":
            open_groups.append(False)
        elif character == ")" and open_groups:
            found += open_groups.pop()
        elif character == "|" and open_groups:
            open_groups[-1] = True
    return found + sum(open_groups)
