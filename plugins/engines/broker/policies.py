"""Policies: arguments that an operator gives to all queues or exchanges whose names match.

They may change at any time.  As in RabbitMQ, one policy applies to a queue or an exchange: of those that
match, the one of the highest priority.  Where the queue has the argument itself, the lesser of two numbers
applies, and otherwise its own value; so does the exchange's own.  Two policies of one priority: RabbitMQ
leaves open which one applies; here it is the first by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from plugins.engines.broker.arguments import QUEUE_ARGUMENTS, Unacceptable, not_negative

_NUMBERS = ("expires", "message-ttl", "max-length", "max-length-bytes", "delivery-limit")
"""Of these the lesser value applies."""
_OTHERS = ("dead-letter-exchange", "dead-letter-routing-key", "overflow", "queue-mode")
ALTERNATE = "alternate-exchange"
"""The key for exchanges."""


def _is_name(value: object) -> object:
    if not isinstance(value, str):
        raise Unacceptable("it is no text")
    return value


_QUEUE_KEYS: Mapping[str, Callable[[object], Any]] = {
    key: QUEUE_ARGUMENTS.get(f"x-{key}", not_negative) for key in (*_NUMBERS, *_OTHERS)
}
_KEYS: Mapping[str, Callable[[object], Any]] = {**_QUEUE_KEYS, ALTERNATE: _is_name}
"""What a definition may have, and what checks its value."""
APPLY_TO = ("all", "queues", "exchanges")
"""To what policies may apply, as RabbitMQ names it."""


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """One policy of a virtual host."""

    name: str
    vhost: str
    pattern: str
    """A regular expression, searched in the names of queues and exchanges."""
    definition: Mapping[str, Any]
    """Keys of ``_KEYS``; others are ignored."""
    priority: int = 0
    apply_to: str = "all"


def check_policy(policy: Policy) -> None:
    """Raise ``ValueError`` for a pattern or a value that is not acceptable."""
    try:
        re.compile(policy.pattern)
    except re.error as error:
        raise ValueError(f"pattern = {policy.pattern!r} is no regular expression: {error}") from None
    for key, value in policy.definition.items():
        try:
            # Keys without an effect here are no error: definitions of a newer RabbitMQ may have them.
            _KEYS.get(key, _anything)(value)
        except Unacceptable as problem:
            raise ValueError(f"{key} = {value!r}: {problem}") from None


def known_keys() -> list[str]:
    """Return the keys that have an effect here."""
    return list(_KEYS)


def unknown_keys(definition: Mapping[str, Any]) -> list[str]:
    """Return the keys that have no effect here."""
    return [key for key in definition if key not in _KEYS]


class Policies:
    """The policies of a broker: those of its options, and those that were imported, which count first."""

    def __init__(self) -> None:
        self._of_options: dict[tuple[str, str], Policy] = {}
        self._imported: dict[tuple[str, str], Policy] = {}
        # In the order in which they are looked at: the first that matches applies.
        self._sorted: list[tuple[Policy, re.Pattern[str]]] = []

    def __iter__(self) -> Iterator[Policy]:
        return iter([policy for policy, _ in self._sorted])

    def take_options(self, policies: Iterable[Policy]) -> None:
        """Replace those of the options."""
        self._of_options = {(policy.vhost, policy.name): policy for policy in policies}
        self._sort()

    def add_imported(self, policy: Policy) -> None:
        """Add one, or replace one of the same name."""
        self._imported[policy.vhost, policy.name] = policy
        self._sort()

    def remove_imported(self, vhost: str, name: str) -> None:
        """Remove an imported one: that of the options with this name counts again, if there is one.

        Raises ``ValueError`` if it was not imported.
        """
        if (vhost, name) not in self._imported:
            if (vhost, name) in self._of_options:
                raise ValueError(f"policy {name!r} is in the topology file: remove it there, and send SIGHUP")
            raise ValueError(f"there is no policy {name!r} in vhost {vhost!r}")
        del self._imported[vhost, name]
        self._sort()

    def of_queue(self, vhost: str, name: str) -> Policy | None:
        """Return the policy of a queue."""
        return self._first(vhost, name, "queues")

    def of_exchange(self, vhost: str, name: str) -> Policy | None:
        """Return the policy of an exchange."""
        return self._first(vhost, name, "exchanges")

    def _first(self, vhost: str, name: str, what: str) -> Policy | None:
        for policy, pattern in self._sorted:
            if policy.vhost == vhost and policy.apply_to in ("all", what) and pattern.search(name):
                return policy
        return None

    def _sort(self) -> None:
        # Sorted once for each change of a policy, because queues are declared far more often. An imported one
        # stands for that of the options with its name.
        policies = sorted(
            (self._of_options | self._imported).values(), key=lambda each: (-each.priority, each.name)
        )
        self._sorted = [
            (policy, re.compile(policy.pattern)) for policy in policies if policy.apply_to in APPLY_TO
        ]


def under_policy(arguments: Mapping[str, Any], policy: Policy | None) -> Mapping[str, Any]:
    """Return the arguments that apply to a queue with these of its own."""
    if policy is None:
        return arguments
    merged = dict(arguments)
    for key, value in policy.definition.items():
        argument = f"x-{key}"
        own = arguments.get(argument)
        if key in _NUMBERS and isinstance(own, int):
            merged[argument] = min(own, value)
        elif key in _QUEUE_KEYS and argument not in arguments:
            merged[argument] = value
    # Of a declaration this would be an error.
    if "x-dead-letter-exchange" not in merged:
        merged.pop("x-dead-letter-routing-key", None)
    return merged


def _anything(value: object) -> object:
    return value
