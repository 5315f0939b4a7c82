"""Deleting a virtual host takes as many turns as it needs, and leaves nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from plugins.engines.broker.host.importing import PIECE
from plugins.protocols.amqp091.events import ConnectionClosed
from plugins.protocols.amqp091.methods import queue
from tests.plugins.engines.amqp.still_host import StillServer

BIG = {"user": "guest", "vhost": "big", "name": "big"}


def filled(server: StillServer) -> None:
    """Declare a virtual host with many queues, and one exchange with many bindings in each direction."""
    exchanges = [
        {"name": name, "vhost": "big", "type": "topic", "durable": True, "auto_delete": name == "auto"}
        for name in ("hub", "fed", "auto")
    ]
    queues = [{"name": f"q{number}", "vhost": "big", "durable": True} for number in range(3 * PIECE)]
    many = [(source, to) for source, to in (("hub", "q0"), ("amq.topic", "q1")) for _ in range(2 * PIECE)]
    bindings = [
        {
            "source": source,
            "vhost": "big",
            "destination": to,
            "destination_type": "queue",
            "routing_key": str(n),
        }
        for n, (source, to) in enumerate([*many, ("auto", "q2")])
    ]
    bindings += [
        {
            "source": source,
            "vhost": "big",
            "destination": "fed",
            "destination_type": "exchange",
            "routing_key": str(n),
        }
        for n in range(2 * PIECE)
        for source in ("hub", "amq.topic")
    ]
    document = {
        "vhosts": [{"name": "big"}],
        "permissions": [{"user": "guest", "vhost": "big", "configure": ".*", "write": ".*", "read": ".*"}],
        "exchanges": exchanges,
        "queues": queues,
        "bindings": bindings,
    }
    assert finish(server.engine.operate("import-definitions", document))["complaints"] == []


def finish(steps: Any) -> Any:
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value


def test_others_are_served_meanwhile(still: Callable[..., StillServer]) -> None:
    server = still()
    filled(server)
    engine, other, inside = server.engine, server.connect(), server.connect(virtual_host="big")
    vhost = engine.broker.vhost("big")
    inside.ask(queue.Declare(queue="own", exclusive=True), queue.DeclareOk)
    bindings = [each for exchange in vhost.exchanges.values() for each in exchange.bindings.values()]
    assert len(bindings) == 8 * PIECE + 1

    def left() -> int:
        exchanges = vhost.exchanges.values()
        return len(vhost.queues) + len(exchanges) + sum(len(each.bindings) for each in exchanges)

    steps = engine.operate("delete-vhost", BIG)
    removed = []
    while True:
        before = left()
        try:
            next(steps)
        except StopIteration as done:
            answer = done.value
            break
        removed.append(before - left())
        other.ask(queue.Declare(queue="somewhere"), queue.DeclareOk)
        # Nobody finds it any more, and nobody gets a half of it by its name.
        assert "big" not in engine.broker.vhosts
        again = engine.operate("import-definitions", {"vhosts": [{"name": "big"}]})
        assert again["complaints"] == ["$.vhosts[0]: NOT_ALLOWED - vhost big is being deleted"]
        assert engine.operate("delete-vhost", BIG)["refused"]["name"] == "NOT_FOUND"
    assert answer == {}
    # A last binding takes its auto-delete exchange with it.
    assert max(removed) <= PIECE + 1
    assert len(removed) > 8
    assert not vhost.queues
    assert [name for name in vhost.exchanges if name and not name.startswith("amq.")] == []
    server.host.process()
    assert inside.wait_for(ConnectionClosed).reply_text.endswith("vhost 'big' is deleted")
    assert engine.operate("import-definitions", {"vhosts": [{"name": "big"}]})["complaints"] == []
    assert not engine.broker.vhost("big").queues


def test_nothing_of_it_comes_back(still: Callable[..., StillServer], tmp_path: Path) -> None:
    server = still(data_dir=str(tmp_path))
    filled(server)
    finish(server.engine.operate("delete-vhost", BIG))
    server.close()
    again = still(data_dir=str(tmp_path))
    assert list(again.engine.broker.vhosts) == ["/"]


def test_what_is_left_of_one_that_was_not_finished_comes_back_and_can_be_deleted(
    still: Callable[..., StillServer], tmp_path: Path
) -> None:
    server = still(data_dir=str(tmp_path))
    filled(server)
    steps = server.engine.operate("delete-vhost", BIG)
    for _ in range(4):
        next(steps)
    server.engine.stop()
    steps.close()
    again = still(data_dir=str(tmp_path))
    assert 0 < len(again.engine.broker.vhost("big").queues) < 3 * PIECE
    finish(again.engine.operate("delete-vhost", BIG))
    again.close()
    assert list(still(data_dir=str(tmp_path)).engine.broker.vhosts) == ["/"]
