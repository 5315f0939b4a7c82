"""The types of exchange that can be declared; adding one is adding a line here."""

from __future__ import annotations

from collections.abc import Callable

from plugins.engines.broker.errors import CommandInvalid
from plugins.engines.broker.matchers.direct import DirectMatcher
from plugins.engines.broker.matchers.fanout import FanoutMatcher
from plugins.engines.broker.matchers.headers import HeadersMatcher
from plugins.engines.broker.matchers.matcher import Matcher
from plugins.engines.broker.matchers.topic import TopicMatcher

EXCHANGE_TYPES: dict[str, Callable[[], Matcher]] = {
    "direct": DirectMatcher,
    "fanout": FanoutMatcher,
    "topic": TopicMatcher,
    "headers": HeadersMatcher,
}


def make_matcher(kind: str) -> Matcher:
    """Return a matcher of an exchange type, or refuse the type."""
    make = EXCHANGE_TYPES.get(kind)
    if make is None:
        raise CommandInvalid(f"unknown exchange type '{kind}'")
    return make()
