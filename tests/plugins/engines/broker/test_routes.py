"""Routes: what is remembered of them is always what a walk would find."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kernel.contracts.message import Envelope
from plugins.engines.broker.binding import Destination
from plugins.engines.broker.broker import Broker
from plugins.engines.broker.disposal import PIECE
from plugins.engines.broker.routes import Routes
from plugins.engines.broker.virtual_host import VirtualHost
from tests.seeds import examples

_EXCHANGES = {"t": "topic", "u": "topic", "d": "direct", "f": "fanout", "h": "headers", "other": "fanout"}
_KEYS = ["", "a", "a.b", "a.b.c", "ab.c", "b"]
_PATTERNS = [*_KEYS, "#", "*", "a.#", "a.*", "a.*.c", "#.c", "*.b"]
_QUEUES = ["p", "q"]

_LEADS_TO = st.one_of(st.sampled_from(_QUEUES), st.sampled_from(sorted(_EXCHANGES)))
_CHANGES = st.tuples(
    st.booleans(), st.sampled_from(sorted(_EXCHANGES)), _LEADS_TO, st.sampled_from(_PATTERNS)
)


def _vhost() -> VirtualHost:
    vhost = Broker().vhost("/")
    for name, kind in _EXCHANGES.items():
        arguments = {"alternate-exchange": "other"} if name in "td" else {}
        vhost.declare_exchange(name, kind, arguments=arguments)
    for name in _QUEUES:
        vhost.declare_queue(name, None, 0.0)
    return vhost


def _found(vhost: VirtualHost, routes: Routes) -> dict[tuple[str, str], set[str]]:
    return {
        (exchange, key): {queue.name for queue in routes.find(Envelope(exchange=exchange, key=key)).queues}
        for exchange in _EXCHANGES
        for key in _KEYS
    }


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(_CHANGES, max_size=12))
def test_a_change_of_bindings_forgets_all_that_it_made_wrong(
    changes: list[tuple[bool, str, str, str]],
) -> None:
    vhost = _vhost()
    for adds, source, to, key in changes:
        destination = vhost.queues.get(to) or vhost.exchanges[to]
        if adds:
            vhost.bind(source, destination, key)
        else:
            vhost.unbind(source, destination, key)
        fresh = Routes("/", vhost.exchanges, vhost.queues, lambda _: None)
        assert _found(vhost, vhost.routes) == _found(vhost, fresh)


def test_what_a_binding_does_not_fit_is_remembered() -> None:
    vhost = _vhost()
    queue = vhost.queues["q"]
    vhost.bind("t", queue, "#")
    looked_up: list[str] = []
    matcher = vhost.exchanges["t"].matcher
    match = matcher.match

    def counted(key: str, headers: Mapping[str, Any]) -> Iterable[Destination]:
        looked_up.append(key)
        return match(key, headers)

    matcher.match = counted  # type: ignore[method-assign]

    def look() -> list[str]:
        looked_up.clear()
        for key in _KEYS:
            vhost.routes.find(Envelope(exchange="t", key=key))
        return looked_up

    assert look() == _KEYS
    vhost.bind("u", queue, "#")
    assert look() == [], "another exchange, from which nothing leads here"
    vhost.bind("t", queue, "b")
    assert look() == ["b"]
    vhost.bind("t", queue, "a.b.*")
    assert look() == ["a.b", "a.b.c"]


def test_a_key_of_a_headers_exchange_is_searched_by_its_headers_each_time() -> None:
    vhost = _vhost()
    vhost.bind("h", vhost.queues["p"], "", {"x-match": "all", "kind": "p"})
    vhost.bind("h", vhost.queues["q"], "", {"x-match": "all", "kind": "q"})

    def found(kind: str) -> list[str]:
        envelope = Envelope(exchange="h", key="a", properties={"headers": {"kind": kind}})
        return [queue.name for queue in vhost.routes.find(envelope).queues]

    assert [found(kind) for kind in "pqpr"] == [["p"], ["q"], ["p"], []]


def test_keys_that_match_the_same_queues_have_one_route() -> None:
    vhost = _vhost()
    vhost.bind("t", vhost.queues["p"], "#")
    vhost.bind("u", vhost.queues["p"], "a.*")
    route = vhost.routes.find(Envelope(exchange="t", key="a"))
    assert vhost.routes.find(Envelope(exchange="t", key="b")) is route
    assert vhost.routes.find(Envelope(exchange="u", key="a.b")) is route


def test_a_match_that_leads_to_an_exchange_is_followed_for_each_key() -> None:
    vhost = _vhost()
    for source in "tu":
        vhost.bind(source, vhost.exchanges["t"], "#")
        vhost.bind(source, vhost.queues["p"], "#")
    vhost.bind("t", vhost.queues["q"], "a")

    def found(exchange: str, key: str) -> set[str]:
        return {queue.name for queue in vhost.routes.find(Envelope(exchange=exchange, key=key)).queues}

    assert found("t", "b") == {"p"}, "it is bound to itself"
    assert found("u", "a") == {"p", "q"}


class _Key(str):
    """A key that counts how many of its kind are gone."""

    __slots__ = ()
    gone = 0

    def __del__(self) -> None:
        _Key.gone += 1


def test_a_large_cache_is_freed_in_pieces() -> None:
    broker = Broker()
    vhost = broker.vhost("/")
    queue = vhost.declare_queue("q", None, 0.0)
    count = 5 * PIECE
    _Key.gone = 0
    for number in range(count):
        vhost.routes.find(Envelope(exchange="amq.topic", key=_Key(f"key.{number}")))
    vhost.bind("amq.topic", queue, "#")
    most, now = _Key.gone, 0.0
    while (when := broker.next_deadline()) is not None:
        before, now = _Key.gone, max(now, when)
        broker.handle_timeout(now)
        most = max(most, _Key.gone - before)
    assert _Key.gone == count
    assert most <= PIECE
    assert [each.name for each in vhost.routes.find(Envelope(exchange="amq.topic", key="key.0")).queues] == [
        "q"
    ]
