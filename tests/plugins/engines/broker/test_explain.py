"""Explain: what it says of a message is what the broker then does with it, and it says why."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from kernel.contracts.explaining import Row
from kernel.contracts.message import Envelope
from plugins.engines.broker import explain as explain_module
from plugins.engines.broker.explain import Explainer
from plugins.engines.broker.virtual_host import VirtualHost
from tests.plugins.engines.broker.client import Client, make_vhost, run
from tests.seeds import many


def explained(vhost: VirtualHost, exchange: str, key: str, headers: dict[str, Any] | None = None) -> Row:
    envelope = Envelope(exchange=exchange, key=key, properties={"headers": headers} if headers else {})
    return Explainer(vhost, envelope).exchange(exchange)


def every(row: Row) -> Iterator[Row]:
    yield row
    for each in row["next"]:
        yield from every(each)


def queues(row: Row) -> set[str]:
    """Return the queues that would get it, without those of dead letters."""
    own = {row["name"]} if row["what"] == "queue" and row["gets"] else set()
    return own.union(*(queues(each) for each in row["next"] if each["what"] != "dead letters"))


def said_of(row: Row, name: str) -> str:
    return str(next(each["why"] for each in every(row) if each["name"] == name))


@pytest.fixture
def vhost() -> VirtualHost:
    return make_vhost()


def bound(vhost: VirtualHost, exchange: str, *keys: str, **arguments: Any) -> None:
    for key in keys:
        vhost.bind(exchange, vhost.declare_queue(f"q:{key}", None, 0.0), key, arguments)


@pytest.mark.parametrize(
    "pattern, why",
    [
        ("a.b.c", "topic pattern 'a.b.c' matches 'a.b.c'"),
        ("a.#", "topic pattern 'a.#' matches 'a.b.c'"),
        ("a.*", "topic pattern 'a.*' does not match 'a.b.c': it has 2 words, and the key 3 words"),
        ("a.x.*", "topic pattern 'a.x.*' does not match 'a.b.c': word 2 is 'b', not 'x'"),
        ("#.x", "topic pattern '#.x' does not match 'a.b.c'"),
    ],
)
def test_a_topic_pattern_says_why(vhost: VirtualHost, pattern: str, why: str) -> None:
    bound(vhost, "amq.topic", pattern)
    made = explained(vhost, "amq.topic", "a.b.c")
    assert said_of(made, f"q:{pattern}") == why
    assert queues(made) == ({f"q:{pattern}"} if "does not" not in why else set())


def test_a_direct_exchange_says_which_key_it_wants(vhost: VirtualHost) -> None:
    bound(vhost, "amq.direct", "x", "y")
    made = explained(vhost, "amq.direct", "x")
    assert queues(made) == {"q:x"}
    assert said_of(made, "q:y") == "key 'x' is not 'y'"


def test_headers_that_are_missing_are_named(vhost: VirtualHost) -> None:
    queue = vhost.declare_queue("q", None, 0.0)
    vhost.bind("amq.headers", queue, "", {"x-match": "all", "tenant": "a", "size": 3})
    assert said_of(explained(vhost, "amq.headers", "", {"tenant": "b"}), "q") == (
        "all: header 'tenant' is 'b', not 'a', header 'size' is missing"
    )
    assert queues(explained(vhost, "amq.headers", "", {"tenant": "a", "size": 3})) == {"q"}


def test_the_default_exchange_leads_to_the_queue_of_the_key(vhost: VirtualHost) -> None:
    vhost.declare_queue("q", None, 0.0)
    assert queues(explained(vhost, "", "q")) == {"q"}
    assert explained(vhost, "", "other")["gets"] is False


def test_exchanges_behind_each_other_are_followed_and_circles_end(vhost: VirtualHost) -> None:
    one, other = vhost.declare_exchange("one", "fanout"), vhost.declare_exchange("other", "topic")
    vhost.bind("one", other, "")
    vhost.bind("other", one, "#")
    bound(vhost, "other", "a.*")
    made = explained(vhost, "one", "a.b")
    assert queues(made) == {"q:a.*"}
    assert "shown above" in str(made)


def test_an_alternate_exchange_gets_what_nothing_matches(vhost: VirtualHost) -> None:
    vhost.declare_exchange("main", "direct", arguments={"alternate-exchange": "rest"})
    bound(vhost, "main", "x")
    assert "'rest' does not exist" in str(explained(vhost, "main", "y")["notes"])
    vhost.declare_exchange("rest", "fanout")
    bound(vhost, "rest", "all")
    assert queues(explained(vhost, "main", "y")) == {"q:all"}
    assert queues(explained(vhost, "main", "x")) == {"q:x"}


def test_what_nobody_gets_says_so(vhost: VirtualHost) -> None:
    made = explained(vhost, "amq.topic", "a")
    assert made["gets"] is False
    assert "dropped" in made["notes"][0]
    assert explained(vhost, "none", "a")["gets"] is False


def test_dead_letters_are_followed_and_do_not_count_as_getting_it(vhost: VirtualHost) -> None:
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead", "x-message-ttl": 5000}
    vhost.declare_queue("q", None, 0.0, arguments=arguments)
    vhost.declare_queue("dead", None, 0.0)
    made = explained(vhost, "", "q")
    assert queues(made) == {"q"}
    letters = next(each for each in every(made) if each["what"] == "dead letters")
    assert "not consumed within 5 s" in letters["why"]
    assert queues(letters["next"][0]) == {"dead"}


def test_queues_that_dead_letter_into_each_other_end(vhost: VirtualHost) -> None:
    for name, other in (("a", "b"), ("b", "a")):
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": other}
        vhost.declare_queue(name, None, 0.0, arguments=arguments)
    assert len(list(every(explained(vhost, "", "a")))) < 100


def test_a_full_queue_that_refuses_does_not_get_it(vhost: VirtualHost) -> None:
    limits = {"x-max-length": 1, "x-overflow": "reject-publish"}
    vhost.declare_queue("q", None, 0.0, arguments=limits)
    assert queues(explained(vhost, "", "q")) == {"q"}
    vhost.publish(run(b"1"), 0.0)
    assert queues(explained(vhost, "", "q")) == set()


def test_consumers_are_named_and_a_queue_without_says_so(vhost: VirtualHost) -> None:
    queue = vhost.declare_queue("q", None, 0.0)
    assert "nobody consumes it" in str(explained(vhost, "", "q"))
    Client(vhost).consume(queue, "me", prefetch=7)
    made = explained(vhost, "", "q")
    assert said_of(made, "me") == "0 unacknowledged, prefetch 7"


def test_of_very_many_bindings_those_that_match_are_shown_and_a_few_others(
    vhost: VirtualHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explain_module, "MOST_UNMATCHED", 3)
    bound(vhost, "amq.direct", *map(str, range(100)))
    made = explained(vhost, "amq.direct", "99")
    assert queues(made) == {"q:99"}
    assert len(made["next"]) == 5
    assert made["next"][-1]["name"] == "96 more"


def test_nothing_is_published(vhost: VirtualHost) -> None:
    bound(vhost, "amq.topic", "#")
    explained(vhost, "amq.topic", "a")
    assert (vhost.messages_in, vhost.queues["q:#"].backlog.count) == (0, 0)


KEYS = ("a", "b", "a.b", "a.c", "a.b.c", "", "b.a")
PATTERNS = (*KEYS, "#", "*", "a.#", "*.b", "#.c", "a.*.c")


@pytest.mark.parametrize("seed", many(0, 20))
def test_it_says_what_the_routes_do(seed: int) -> None:
    """Random exchanges, bindings between them and alternates: the same queues as those that get the message."""
    chance = Random(seed)
    vhost = make_vhost()
    names = [f"x{number}" for number in range(5)]
    for name in names:
        arguments = {"alternate-exchange": chance.choice(names)} if chance.random() < 0.4 else {}
        vhost.declare_exchange(
            name, chance.choice(("direct", "fanout", "topic", "headers")), arguments=arguments
        )
    ends = [vhost.declare_queue(f"q{number}", None, 0.0) for number in range(5)]
    for _ in range(20):
        source = chance.choice(names)
        to: Any = chance.choice((chance.choice(ends), vhost.exchanges[chance.choice(names)]))
        matching = {"x-match": chance.choice(("all", "any")), chance.choice("hi"): chance.choice(("1", "2"))}
        is_headers = vhost.exchanges[source].kind == "headers"
        vhost.bind(source, to, chance.choice(PATTERNS), matching if is_headers else {})
    for _ in range(30):
        headers = {chance.choice("hi"): chance.choice(("1", "2"))}
        exchange, key = chance.choice(names), chance.choice(KEYS)
        envelope = Envelope(exchange=exchange, key=key, properties={"headers": headers})
        got = {queue.name for queue in vhost.routes.find(envelope).queues}
        assert queues(explained(vhost, exchange, key, headers)) == got
