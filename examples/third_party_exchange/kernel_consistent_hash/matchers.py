"""Matchers of the exchange type: weighted rendezvous hashing.

Each destination draws a number in (0, 1) from a hash of its name and the message's subject; the largest
``weight / -ln(number)`` wins.  Destinations win in proportion to their weights.  Each draws independently, so
one that comes or goes changes the winner only of the messages that it wins (Thaler and Ravishankar 1998;
Schindelhauer and Schomaker 2005 for the weights).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any, ClassVar

from plugins.engines.broker.contract import Binding, Destination, LooksAt, Matcher, PreconditionFailed

PROPERTIES = ("message_id", "correlation_id", "timestamp")


def make_matcher(arguments: Mapping[str, Any]) -> Matcher:
    """Return the matcher that the arguments of a declaration ask for, or refuse them as RabbitMQ does."""
    header, name = arguments.get("hash-header"), arguments.get("hash-property")
    if header is not None and name is not None:
        raise PreconditionFailed("hash-header and hash-property are mutually exclusive")
    if header is not None:
        return HeaderHash(str(header))
    if name is None:
        return KeyHash()
    if name not in PROPERTIES:
        raise PreconditionFailed(f"Unsupported property: {name}")
    return PropertyHash(name)


class KeyHash:
    """By routing key."""

    looks_at: ClassVar[LooksAt] = "key"

    def __init__(self) -> None:
        self._bindings: dict[Destination, dict[Binding, int]] = {}

    def check(self, key: str, arguments: Mapping[str, Any]) -> None:
        """Refuse what is no weight."""
        if not re.fullmatch(r"[+-]?[0-9]+", key, re.ASCII):
            raise PreconditionFailed(f'The binding key must be an integer: <<"{key}">>')
        if int(key) < 1:
            raise PreconditionFailed("The binding key must be greater than 0")

    def add(self, binding: Binding) -> None:
        """Add a binding.  A destination that is bound several times has the weight of its first binding."""
        self._bindings.setdefault(binding.destination, {})[binding] = int(binding.key)

    def remove(self, binding: Binding) -> None:
        """Forget a binding."""
        bindings = self._bindings[binding.destination]
        del bindings[binding]
        if not bindings:
            del self._bindings[binding.destination]

    def match(self, key: str, headers: Mapping[str, Any]) -> Iterable[Destination]:
        """Return the one destination that wins; none if nothing is bound."""
        if not self._bindings:
            return ()
        subject = self.subject(key, headers).encode("utf-8", "surrogateescape")
        return (max(self._bindings, key=lambda destination: self._score(destination, subject)),)

    def subject(self, key: str, properties: Mapping[str, Any]) -> str:
        """Return what decides."""
        return key

    def _score(self, destination: Destination, subject: bytes) -> float:
        weight = next(iter(self._bindings[destination].values()))
        name = f"{type(destination).__name__} {destination.name}".encode("utf-8", "surrogateescape")
        drawn = int.from_bytes(blake2b(name + b"\0" + subject, digest_size=6).digest(), "big")
        return -weight / math.log((drawn + 1) / (2**48 + 1))


class HeaderHash(KeyHash):
    """By a header."""

    looks_at: ClassVar[LooksAt] = "properties"

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def subject(self, key: str, properties: Mapping[str, Any]) -> str:
        """Return what decides."""
        headers = properties.get("headers") or {}
        return repr(headers.get(self._name))


class PropertyHash(HeaderHash):
    """By a property."""

    def subject(self, key: str, properties: Mapping[str, Any]) -> str:
        """Return what decides."""
        return repr(properties.get(self._name))
