"""Which bindings match, type by type; topics against a naive model."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.engines.broker.binding import Binding
from plugins.engines.broker.errors import PreconditionFailed
from plugins.engines.broker.matchers.headers import HeadersMatcher
from plugins.engines.broker.matchers.topic import TopicMatcher, words_of
from plugins.engines.broker.queue import Queue
from plugins.engines.broker.virtual_host import VirtualHost
from tests.notes import for_each
from tests.plugins.engines.broker.client import make_vhost, ready, run


def _binding(
    vhost: VirtualHost, name: str, key: str = "", arguments: dict[str, Any] | None = None
) -> Binding:
    destination = vhost.queues.get(name) or vhost.declare_queue(name, None, 0.0)
    source = vhost.exchanges["amq.topic"]
    return Binding(source=source, destination=destination, key=key, arguments=arguments or {})


@for_each(
    "pattern, key, fits",
    [
        ("a.b", "a.b", True),
        ("a.b", "a.b.c", False),
        ("a.*", "a.b", True),
        ("a.*", "a", False),
        ("a.*", "a.b.c", False),
        ("*", "a", True),
        ("*", "", False),
        ("#", "", True),
        ("#", "a.b.c", True),
        ("a.#", "a", True),
        ("a.#", "a.b.c", True),
        ("a.#", "b", False),
        ("#.c", "c", True),
        ("#.c", "a.b.c", True),
        ("#.c", "c.d", False),
        ("a.#.c", "a.c", True),
        ("a.#.c", "a.b.b.c", True),
        ("a.#.c", "a.c.c", True),
        ("#.#", "", True),
        ("#.*", "", False),
        ("#.*", "a", True),
        ("*.#", "a.b", True),
        ("", "", True),
        ("", "a", False),
        ("a..b", "a..b", True),
        ("a.*.b", "a..b", True),
        ("a*", "ab", False),
    ],
)
def test_a_topic_pattern_fits(pattern: str, key: str, fits: bool) -> None:
    vhost = make_vhost()
    matcher = TopicMatcher()
    matcher.add(_binding(vhost, "q", pattern))
    assert bool(matcher.match(key, {})) is fits


def _fits(words: list[str], key: list[str]) -> bool:
    """The specification's sentence, word by word."""
    if not words:
        return not key
    if words[0] == "#":
        return any(_fits(words[1:], key[start:]) for start in range(len(key) + 1))
    return bool(key) and words[0] in ("*", key[0]) and _fits(words[1:], key[1:])


_PATTERNS = st.lists(st.sampled_from(["a", "b", "*", "#"]), max_size=5).map(".".join)
_KEYS = st.lists(st.sampled_from(["a", "b", "c"]), max_size=6).map(".".join)


@given(st.lists(_PATTERNS, max_size=12, unique=True), st.lists(_KEYS, min_size=1), st.data())
def test_topics_agree_with_the_naive_model(patterns: list[str], keys: list[str], data: st.DataObject) -> None:
    vhost = make_vhost()
    matcher = TopicMatcher()
    bindings = {pattern: _binding(vhost, f"q{number}", pattern) for number, pattern in enumerate(patterns)}
    for binding in bindings.values():
        matcher.add(binding)
    gone = data.draw(st.sets(st.sampled_from(patterns))) if patterns else set()
    for pattern in gone:
        matcher.remove(bindings.pop(pattern))
    for key in keys:
        expected = {p for p in bindings if _fits(words_of(p), words_of(key))}
        found = [d for d in matcher.match(key, {}) if isinstance(d, Queue)]
        assert sorted(queue.name for queue in found) == sorted(f"q{patterns.index(p)}" for p in expected)


@given(st.lists(_PATTERNS, max_size=12, unique=True))
def test_a_topic_trie_is_empty_again_when_all_is_unbound(patterns: list[str]) -> None:
    vhost = make_vhost()
    matcher = TopicMatcher()
    bindings = [_binding(vhost, "q", pattern) for pattern in patterns]
    for binding in bindings:
        matcher.add(binding)
    for binding in bindings:
        matcher.remove(binding)
    assert not matcher._trie


@for_each(
    "wanted, headers, fits",
    [
        ({"x-match": "all", "a": 1, "b": 2}, {"a": 1, "b": 2, "c": 3}, True),
        ({"x-match": "all", "a": 1, "b": 2}, {"a": 1}, False),
        ({"a": 1}, {"a": 1}, True),
        ({"x-match": "any", "a": 1, "b": 2}, {"b": 2}, True),
        ({"x-match": "any", "a": 1}, {"a": 2}, False),
        ({"x-match": "all"}, {"a": 1}, True),
        ({"x-match": "any"}, {"a": 1}, False),
        ({}, {}, True),
        ({"a": None}, {"a": "whatever"}, True),
        ({"a": None}, {}, False),
        ({"a": True}, {"a": 1}, False),
        ({"x-match": "all", "x-a": 1, "b": 2}, {"b": 2}, True),
        ({"x-match": "all-with-x", "x-a": 1, "b": 2}, {"b": 2}, False),
        ({"x-match": "all-with-x", "x-a": 1, "b": 2}, {"x-a": 1, "b": 2}, True),
        ({"x-match": "any", "x-a": 1}, {"x-a": 1}, False),
        ({"x-match": "any-with-x", "x-a": 1}, {"x-a": 1}, True),
    ],
)
def test_headers_fit(wanted: dict[str, Any], headers: dict[str, Any], fits: bool) -> None:
    matcher = HeadersMatcher()
    matcher.add(_binding(make_vhost(), "q", arguments=wanted))
    assert bool(matcher.match("", headers)) is fits


def test_an_unknown_form_of_headers_is_refused() -> None:
    with pytest.raises(PreconditionFailed, match=re.escape('Invalid x-match field value <<"zz">>')):
        HeadersMatcher().check("", {"x-match": "zz"})


def test_routes_are_found_anew_after_a_binding_changed() -> None:
    vhost = make_vhost()
    first, second = (vhost.declare_queue(name, None, 0.0) for name in ("a", "b"))
    message = run(b"x", key="k", exchange="amq.topic")
    vhost.bind("amq.topic", first, "k")
    vhost.publish(message, 0.0)
    vhost.bind("amq.topic", second, "#")
    vhost.publish(message, 0.0)
    vhost.unbind("amq.topic", first, "k")
    vhost.publish(message, 0.0)
    assert (len(ready(first)), len(ready(second))) == (2, 2)


def test_a_circle_of_exchanges_ends() -> None:
    vhost = make_vhost()
    queue = vhost.declare_queue("q", None, 0.0)
    left, right = (vhost.declare_exchange(name, "fanout") for name in ("left", "right"))
    vhost.bind("left", right)
    vhost.bind("right", left)
    vhost.bind("right", queue)
    vhost.bind("left", queue)
    vhost.publish(run(b"x", exchange="left"), 0.0)
    assert ready(queue) == [b"x"]


def test_two_bindings_that_match_deliver_once() -> None:
    vhost = make_vhost()
    queue = vhost.declare_queue("q", None, 0.0)
    vhost.bind("amq.topic", queue, "a.#")
    vhost.bind("amq.topic", queue, "#.b")
    vhost.publish(run(b"x", exchange="amq.topic", key="a.b"), 0.0)
    assert ready(queue) == [b"x"]
