"""Groups of subscribers: of the members of a group one gets each message that matches.

A subscription of a member is the pattern with ``group:NAME:`` in front.  It is text, as patterns are, so it stands
wherever a pattern may: in options, in calls, and in the subscriptions of a protocol.
"""

from __future__ import annotations

GROUP = "group:"


def in_group(pattern: str, group: str) -> str:
    """Return the pattern of a member; ``ValueError`` for a name that cannot be one."""
    if not group or ":" in group:
        raise ValueError(f"a group has a name without a colon, not {group!r}")
    return f"{GROUP}{group}:{pattern}"


def split_group(pattern: str) -> tuple[str, str]:
    """Return the name of the group, empty for none, and the pattern."""
    if pattern.startswith(GROUP):
        name, colon, rest = pattern[len(GROUP) :].partition(":")
        if name and colon:
            return name, rest
    return "", pattern


def without_group(pattern: str) -> str:
    """Return what is asked for, by a member of a group as well."""
    return split_group(pattern)[1]
