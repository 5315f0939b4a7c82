"""Exchange federation between brokers of ours."""

from __future__ import annotations

import threading
from collections.abc import Callable

from kernel.topology.plan import EnginePlan
from plugins.protocols.amqp091.methods import exchange, queue
from tests.plugins.engines.amqp.raw_client import RawClient
from tests.plugins.engines.amqp_client.conftest import TIMEOUT
from tests.plugins.engines.federation.conftest import FEED, Site, numbered, until

Make = Callable[..., Site]


def test_only_what_is_wanted_crosses_the_link_and_wishes_may_change(site: Make) -> None:
    up, down = site("up"), site("down")
    down.wants("a.#")
    down.follow(up.address)
    until(lambda: up.bound("down") == {"a.#"})
    up.publish(("a.1", b"a"), ("b.1", b"nobody's"))
    down.wants("b.*")
    until(lambda: up.bound("down") == {"a.#", "b.*"})
    up.publish(("b.2", b"b"))
    assert down.bodies(2) == [b"a", b"b"]
    down.wants_no_more("a.#")
    until(lambda: up.bound("down") == {"b.*"})
    up.publish(("a.3", b"nobody's"), ("b.4", b"c"))
    assert down.bodies(1) == [b"c"]
    assert down.figures()["messages_in"] == 3


def test_a_message_arrives_as_it_was_with_one_step_in_its_trace(site: Make) -> None:
    up, down = site("up"), site("down")
    down.wants("#")
    down.follow(up.address)
    until(lambda: up.bound("down") == {"#"})
    up.publish(("k", b"x"), content_type="text/plain", delivery_mode=2, headers={"own": 1})
    (event,) = down.take(1)
    envelope = event.batch.envelope
    assert (envelope.exchange, envelope.key, envelope.persistent) == ("feed", "k", True)
    assert envelope.properties["content_type"] == "text/plain"
    headers = envelope.properties["headers"]
    assert headers["own"] == 1
    assert headers["x-received-from"] == [
        {
            "uri": f"amqp://{up.address}",
            "virtual_host": "/",
            "exchange": "feed",
            "redelivered": False,
            "cluster-name": "up",
            "vhost": "/",
        }
    ]


def test_what_a_headers_exchange_asks_for_is_asked_upstream(site: Make) -> None:
    feed = {"name": "feed", "type": "headers"}
    up, down = site("up", exchanges=[feed]), site("down", exchanges=[feed])
    down.wants()
    wish = {"x-match": "all", "kind": "a"}
    down.client.ask(queue.Bind(queue="q", exchange="feed", arguments=wish), queue.BindOk)
    down.follow(up.address)
    up.wait_for_bindings_of(down, "")
    for kind in ("b", "a"):
        up.publish(("", kind.encode()), headers={"kind": kind})
    assert down.bodies(1) == [b"a"]
    assert down.figures()["messages_in"] == 1


def _chain(site: Make, max_hops: int) -> tuple[Site, Site, Site]:
    first, second, third = site("first"), site("second"), site("third")
    second.follow(first.address, max_hops=max_hops)
    third.follow(second.address, max_hops=max_hops)
    return first, second, third


def test_wishes_go_on_from_broker_to_broker(site: Make) -> None:
    first, _, third = _chain(site, 2)
    third.wants("far.#")
    until(lambda: first.bound("second") == {"far.#"})
    first.publish(("far.away", b"x"), ("near.by", b"nobody's"))
    (event,) = third.take(1)
    steps = event.batch.envelope.properties["headers"]["x-received-from"]
    assert [step["cluster-name"] for step in steps] == ["second", "first"]
    third.wants_no_more("far.#")
    until(lambda: first.bound("second") == set())


def test_a_message_goes_no_further_than_it_may(site: Make) -> None:
    first, second, third = _chain(site, 1)
    second.wants("k")
    third.wants("k")
    until(lambda: first.bound("second") == {"k"} and second.bound("third") == {"k"})
    first.publish(("k", b"1"))
    assert second.bodies(1) == [b"1"]
    second.publish(("k", b"2"))
    assert third.bodies(1) == [b"2"]
    assert third.figures()["messages_stopped"] == 1


def _everybody_gets_each_message_once(sites: list[Site]) -> None:
    expected = [b"%s %d" % (each.name.encode(), turn) for turn in range(2) for each in sites]
    for turn in range(2):  # what came twice in the first turn is there before the second is
        for each in sites:
            each.publish(("k", b"%s %d" % (each.name.encode(), turn)))
        for each in sites:
            each.wait_for_count(len(sites) * (turn + 1))
    for each in sites:
        assert sorted(each.bodies(len(expected))) == sorted(expected)
        assert each.count() == 0


def test_a_ring_of_three(site: Make) -> None:
    ring = [site(name) for name in ("one", "two", "three")]
    for each, before in zip(ring, [ring[-1], *ring[:-1]], strict=True):
        each.wants("k")
        each.follow(before.address, max_hops=5)
    for each, before in zip(ring, [ring[-1], *ring[:-1]], strict=True):
        before.wait_for_bindings_of(each, "k")
    _everybody_gets_each_message_once(ring)
    assert sum(each.figures()["messages_stopped"] for each in ring) > 0  # it would have gone round


def test_a_star_of_four(site: Make) -> None:
    hub, *leaves = star = [site(name) for name in ("hub", "one", "two", "three")]
    for leaf in leaves:
        leaf.follow(hub.address, max_hops=2)
        hub.follow(leaf.address, name=f"from {leaf.name}", max_hops=2)
    for each in star:
        each.wants("k")
    for leaf in leaves:
        hub.wait_for_bindings_of(leaf, "k")
        leaf.wait_for_bindings_of(hub, "k")
    _everybody_gets_each_message_once(star)


def test_nothing_is_lost_when_the_wire_is_cut_in_mid_stream(site: Make) -> None:
    up, down = site("up"), site("down")
    down.wants("k")
    down.follow(up.address, prefetch=50)
    until(lambda: up.bound("down") == {"k"})
    for cut in range(3):
        up.publish(*numbered(cut * 1000, cut * 1000 + 1000))
        down.cut()
        down.events.wait("connected", "link", cut + 2)
    got = [int(body) for body in down.bodies(3000)]
    while set(got) != set(range(3000)):  # what was on its way came twice
        got += [int(body) for body in down.bodies(1)]
    assert down.figures()["reconnects"] == 3


def test_the_upstream_keeps_for_a_link_what_comes_while_it_is_away(site: Make) -> None:
    up, down = site("up"), site("down")
    down.wants("k")
    down.follow(up.address)
    until(lambda: up.bound("down") == {"k"})
    down.kernel.remove_engine("link")
    until(lambda: len(up.rows("connections")) == 1)
    up.publish(*numbered(0, 100))
    down.wants_no_more("k")  # a link that comes anew does not know what it had bound
    down.wants("l")
    down.follow(up.address)
    until(lambda: up.bound("down") == {"l"})
    until(lambda: down.figures()["messages_in"] == 100)
    assert down.count() == 0


def test_who_wants_nothing_of_an_exchange_that_is_not_there(site: Make) -> None:
    up, down = site("up"), site("down", exchanges=[])
    down.follow(up.address)
    down.events.wait("connected", "link")
    assert up.bound("down") == set()
    down.client.ask(exchange.Declare(exchange="feed", type="topic", durable=True), exchange.DeclareOk)
    down.wants("k")
    until(lambda: up.bound("down") == {"k"})
    up.publish(("k", b"x"))
    assert down.bodies(1) == [b"x"]
    assert down.figures()["refusals"] == 0


def test_nothing_is_acknowledged_upstream_before_it_is_confirmed_here(site: Make) -> None:
    up, down = site("up"), site("down")
    down.kernel.add_engine(EnginePlan(name="slow", kind="native"))
    down.wants("k")
    down.follow(up.address, to="slow")
    until(lambda: up.bound("down") == {"k"})
    slow = down.kernel.open("slow", auto_confirm=False)
    up.publish(*numbered(0, 10))
    got = 0
    while got < 10:
        got += len(slow.receive_many(timeout=TIMEOUT))
    assert _unacknowledged(up) == 10
    slow.confirm()
    until(lambda: _unacknowledged(up) == 0)


def _unacknowledged(up: Site) -> int:
    (row,) = [row for row in up.rows("queues") if row["name"] == "federation: feed -> down"]
    assert row["messages_ready"] == 0
    unacknowledged: int = row["messages_unacknowledged"]
    return unacknowledged


def test_link_and_broker_may_live_in_different_threads(site: Make) -> None:
    up, down = site("up"), site("down", threads=2)
    down.follow(up.address)
    threads = {name: thread.name for thread in down.kernel.statistics().threads for name in thread.engines}
    assert threads["link"] != threads["broker"]
    for number in range(20):
        down.wants(f"k{number}")
    until(lambda: len(up.bound("down")) == 20)
    up.publish(*[(f"k{number}", b"%d" % number) for number in range(20)])
    assert down.bodies(20) == [b"%d" % number for number in range(20)]


def test_without_acknowledgements_and_with_limits_for_what_is_kept(site: Make) -> None:
    up, down = site("up"), site("down")
    down.wants("k")
    down.follow(up.address, no_ack=True, expires=60_000, message_ttl=30_000)
    up.wait_for_bindings_of(down, "k")
    up.publish(*numbered(0, 1000))
    assert down.bodies(1000) == [body for _, body in numbered(0, 1000)]
    (row,) = [row for row in up.rows("queues") if row["name"] == KEPT]
    assert (row["arguments"]["x-expires"], row["arguments"]["x-message-ttl"]) == (60_000, 30_000)
    assert row["messages_unacknowledged"] == 0


def test_a_queue_that_was_kept_with_other_limits_is_used_as_it_is(site: Make) -> None:
    up, down = site("up"), site("down")
    up.client.ask(queue.Declare(queue=KEPT, durable=True), queue.DeclareOk)
    up.client.publish(b"kept", KEPT)
    down.wants("#")
    down.follow(up.address, expires=60_000)
    assert "406" in down.events.wait("refused", "link").detail
    assert down.bodies(1) == [b"kept"]
    assert down.figures()["links"][0]["state"] == "connected"


KEPT = "federation: feed -> down"


def _names(site: Site, what: str) -> set[str]:
    return {row["name"] for row in site.rows(what)}


def test_an_exchange_that_is_deleted_leaves_nothing_upstream(site: Make) -> None:
    up, down = site("up"), site("down")
    down.wants("k")
    down.follow(up.address)
    until(lambda: up.bound("down") == {"k"})
    down.delete_feed()
    until(lambda: KEPT not in _names(up, "queues") and f"{KEPT} A" not in _names(up, "exchanges"))
    down.client.ask(exchange.Declare(exchange="feed", type="topic"), exchange.DeclareOk)
    down.wants("l")
    until(lambda: up.bound("down") == {"l"})
    up.publish(("l", b"x"))
    assert down.bodies(1) == [b"x"]


def test_an_exchange_that_is_deleted_leaves_nothing_though_something_else_is_refused(site: Make) -> None:
    up, down = site("up"), site("down")
    down.wants("k")
    down.follow(up.address, exchanges=["feed"], queues=["jobs"])
    until(lambda: up.bound("down") == {"k"})
    up.client.ask(queue.Declare(queue="jobs", exclusive=True), queue.DeclareOk)
    down.wants(name="jobs")
    assert "405" in down.events.wait("refused", "link").detail
    down.delete_feed()
    until(lambda: KEPT not in _names(up, "queues") and not up.bound("down"))
    assert not [name for name in _names(up, "exchanges") if name.startswith(KEPT)]


def test_what_is_kept_for_a_link_and_was_deleted_upstream_is_made_anew(site: Make) -> None:
    up, down = site("up"), site("down")
    down.wants("k")
    down.follow(up.address)
    until(lambda: up.bound("down") == {"k"} and len(up.rows("consumers")) == 1)
    up.client.ask(queue.Delete(queue=KEPT), queue.DeleteOk)
    until(lambda: KEPT in _names(up, "queues") and len(up.rows("consumers")) == 1)
    until(lambda: up.bound("down") == {"k"})
    up.publish(("k", b"x"))
    assert down.bodies(1) == [b"x"]
    assert down.figures()["reconnects"] == 0


def test_a_broker_that_goes_and_comes_finds_what_was_kept(site: Make) -> None:
    up, down = site("up"), site("down")
    bound = {"queues": [{"name": "q"}], "bindings": [{"exchange": "feed", "queue": "q", "key": "k"}]}
    down.wants("k")
    down.follow(up.address)
    until(lambda: up.bound("down") == {"k"})
    down.kernel.remove_engine("broker")
    until(lambda: up.rows("consumers") == ())
    up.publish(*numbered(0, 10))
    options = {"address": down.address, "cluster_name": "down", "exchanges": [FEED], **bound}
    down.kernel.add_engine(EnginePlan(name="broker", kind="amqp", options=options))
    until(lambda: down.figures()["messages_in"] == 10)
    with RawClient(int(down.address.rpartition(":")[2])) as client:
        until(lambda: client.ask(queue.Declare(queue="q", durable=True), queue.DeclareOk).message_count == 10)


def test_a_broker_that_is_replaced_in_another_thread_is_seen_though_the_old_one_goes_later(
    site: Make,
) -> None:
    up, down = site("up"), site("down", threads=2)
    down.wants("k")
    down.follow(up.address)
    until(lambda: up.bound("down") == {"k"})
    homes = {name: thread.name for thread in down.kernel.statistics().threads for name in thread.engines}
    may_go = threading.Event()
    down.kernel._parts.threads[homes["broker"]].mailbox.post(lambda: may_go.wait(TIMEOUT))
    down.kernel.remove_engine("broker")
    bound = {"queues": [{"name": "q"}], "bindings": [{"exchange": "feed", "queue": "q", "key": "l"}]}
    options = {"address": "127.0.0.1:0", "cluster_name": "down", "exchanges": [FEED], **bound}
    plan = EnginePlan(name="broker", kind="amqp", options=options, thread=homes["link"])
    down.kernel.add_engine(plan)
    until(lambda: up.bound("down") == {"l"})
    may_go.set()
    down.events.wait("disconnected", "broker")
    up.publish(("l", b"x"))
    with RawClient(int(down.kernel.address_of("broker").rpartition(":")[2])) as client:
        until(lambda: client.ask(queue.Declare(queue="q", durable=True), queue.DeclareOk).message_count == 1)


def test_what_somebody_deletes_upstream_is_made_again(site: Make) -> None:
    up, down = site("up"), site("down")
    down.wants("k")
    down.follow(up.address)
    until(lambda: bool(up.rows("consumers")))
    up.client.ask(queue.Delete(queue="federation: feed -> down"), queue.DeleteOk)
    down.events.wait("cancelled", "link")
    until(lambda: bool(up.rows("consumers")))
    up.publish(("k", b"x"))
    assert down.bodies(1) == [b"x"]
    assert down.figures()["reconnects"] == 0


def test_a_link_shows_how_it_stands(site: Make) -> None:
    up, down = site("up"), site("down")
    down.follow(up.address)
    down.events.wait("connected", "link")
    (row,) = down.figures()["links"]
    assert (row["link"], row["state"], row["peer"]) == (
        "exchanges feed",
        "connected",
        f"amqp+tcp://{up.address}",
    )
    up.kernel.remove_engine("broker")
    down.events.wait("retrying", "link", 2)
    (row,) = down.figures()["links"]
    assert row["attempts"] >= 2
    assert "cannot connect" in row["last_error"]


def test_a_broker_that_is_its_own_upstream_is_told_so(site: Make) -> None:
    alone = site("alone")
    alone.follow(alone.address)
    assert "its own upstream" in alone.events.wait("retrying", "link").detail
