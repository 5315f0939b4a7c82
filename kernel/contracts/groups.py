"""Subscription groups: each message that matches goes to one member of the group.

The subscription of a member is the pattern with ``group:NAME:`` in front.  It is text, so it can be used
wherever a pattern can: in options, in calls, and in the subscriptions of a protocol.
"""

from __future__ import annotations

GROUP = "group:"


def in_group(pattern: str, group: str) -> str:
    """Return the subscription of a member of ``group``; ``ValueError`` if the name is not valid."""
    if not group or ":" in group:
        raise ValueError(f"a group has a name without a colon, not {group!r}")
    return f"{GROUP}{group}:{pattern}"


def split_group(pattern: str) -> tuple[str, str]:
    """Return the name of the group (empty if there is none) and the pattern."""
    if pattern.startswith(GROUP):
        name, colon, rest = pattern[len(GROUP) :].partition(":")
        # Anything else that begins with ``group:`` is an ordinary pattern. A malformed one is not an error,
        # since patterns come from peers.
        if name and colon:
            return name, rest
    return "", pattern


def without_group(pattern: str) -> str:
    """Return the pattern of a subscription, without the group if there is one."""
    # What is passed on to a source: with the group the source would choose between connections, and somebody
    # behind one of them who is in no group would bring the same message to a second member
    # (docs/decisions/0022-subscriptions-travel.md).
    return split_group(pattern)[1]
