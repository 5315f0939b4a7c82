"""The types of exchange that can be declared: the built-in ones, and those of plugins."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from plugins.engines.broker.contract import Matcher
from plugins.engines.broker.errors import CommandInvalid
from plugins.engines.broker.matchers.direct import DirectMatcher
from plugins.engines.broker.matchers.fanout import FanoutMatcher
from plugins.engines.broker.matchers.headers import HeadersMatcher
from plugins.engines.broker.matchers.topic import TopicMatcher

EXCHANGE_TYPES: dict[str, Callable[[], Matcher]] = {
    "direct": DirectMatcher,
    "fanout": FanoutMatcher,
    "topic": TopicMatcher,
    "headers": HeadersMatcher,
}


ExchangeTypes: TypeAlias = Mapping[str, Callable[[Mapping[str, Any]], Matcher]]
"""The types of plugins: for each, what makes a matcher from the arguments of an exchange's declaration."""


def make_matcher(kind: str, arguments: Mapping[str, Any], others: ExchangeTypes) -> Matcher:
    """Return a matcher of an exchange type, or refuse the type.  ``others``: the types of plugins."""
    # First the built-in types: no plugin can replace them.
    ours = EXCHANGE_TYPES.get(kind)
    if ours is not None:
        return ours()
    make = others.get(kind)
    if make is None:
        raise CommandInvalid(f"unknown exchange type '{kind}'")
    return make(arguments)
