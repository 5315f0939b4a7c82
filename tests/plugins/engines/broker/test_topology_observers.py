"""Watchers are told how things stand, whenever that is not what they were told, and only then."""

from __future__ import annotations

from typing import Any

import pytest

from plugins.engines.broker.broker import Broker
from plugins.engines.broker.topology_observers import BindingState, TopologyObserver, TopologyObservers
from tests.plugins.engines.broker.client import Client


class World:
    """A broker, and what a watcher of it hears."""

    def __init__(self) -> None:
        self.observers = TopologyObservers()
        self.broker = Broker()
        self.vhost = self.broker.vhost("/")
        self.heard: list[Any] = []

    def watch(self, what: Any, name: str) -> TopologyObserver:
        watch = TopologyObserver(what, name, self.heard.append)
        self.observers.add(watch)
        return watch

    def open(self) -> None:
        self.observers.open(self.vhost, "here", lambda callback: callback())

    def turn(self) -> None:
        self.broker.process(0.0)
        self.observers.notify()


@pytest.fixture
def world() -> World:
    return World()


def test_a_watcher_may_come_before_the_broker_and_sees_it_go(world: World) -> None:
    world.watch("broker", "")
    assert world.heard == []
    world.open()
    world.turn()
    assert [(state.cluster_name, state.vhost) for state in world.heard] == [("here", "/")]
    world.observers.close(world.vhost)
    assert world.heard[1:] == [None]


def test_a_broker_that_takes_anothers_place_is_there_though_that_one_goes_later(world: World) -> None:
    """As where a plan that changes it has it live in another thread."""
    world.watch("exchange", "amq.topic")
    world.open()
    worlds = [world.vhost, next_one := Broker().vhost("/")]
    for each, key in zip(worlds, "ab", strict=True):
        each.bind("amq.topic", each.declare_queue("q", None, 0.0), key)
    world.turn()
    world.observers.open(next_one, "here", lambda callback: callback())
    world.observers.close(world.vhost)
    assert [{each.key for each in state.bindings} for state in world.heard] == [set(), {"a"}, {"b"}]
    world.observers.close(next_one)
    assert world.heard[3:] == [None]


def test_the_bindings_of_an_exchange_are_told_as_they_change(world: World) -> None:
    world.open()
    queues = [world.vhost.declare_queue(name, None, 0.0) for name in ("q", "r")]
    world.watch("exchange", "feed")
    assert world.heard == []
    world.vhost.declare_exchange("feed", "topic", durable=True)
    world.turn()
    assert (world.heard[-1].kind, world.heard[-1].durable, world.heard[-1].bindings) == (
        "topic",
        True,
        frozenset(),
    )
    for queue in queues:  # the same is wanted twice: told once
        world.vhost.bind("feed", queue, "a.#", {"x": 1})
        world.turn()
    assert len(world.heard) == 2
    assert world.heard[-1].bindings == {BindingState("a.#", {"x": 1})}
    world.vhost.unbind("feed", queues[0], "a.#", {"x": 1})
    world.turn()
    assert len(world.heard) == 2
    world.vhost.delete_exchange("feed")
    world.turn()
    assert world.heard[2:] == [None]


def test_nobody_is_told_what_they_know(world: World) -> None:
    world.open()
    watch = world.watch("exchange", "amq.topic")
    world.vhost.declare_queue("q", None, 0.0)
    world.vhost.declare_exchange("other")
    world.turn()
    assert len(world.heard) == 1
    world.observers.remove(watch)
    world.vhost.bind("amq.topic", world.vhost.find_queue("q", None), "k")
    world.turn()
    assert len(world.heard) == 1


def test_a_queue_wants_more_while_it_is_empty_and_a_consumer_of_its_own_has_room(world: World) -> None:
    world.open()
    client = Client(world.vhost)
    world.vhost.declare_queue("q", None, 0.0)
    world.watch("queue", "q")
    assert [state.wants_more for state in world.heard] == [False]
    _consume(world, client, "far", priority=-1)  # another broker's link
    assert len(world.heard) == 1
    _consume(world, client, "near", priority=0)
    assert [state.wants_more for state in world.heard] == [False, True]
    world.observers.close(world.vhost)
    assert world.heard[-1] is None


def test_to_look_at_a_queue_does_not_make_it_wait_for_a_window(world: World) -> None:
    world.open()
    client = Client(world.vhost)
    world.vhost.declare_queue("q", None, 0.0)
    world.watch("queue", "q")
    client.window.left = 0
    _consume(world, client, "near", priority=0)
    assert client.window.starved == {}
    client.window.refill(1000, 0.0)
    world.turn()
    assert [state.wants_more for state in world.heard] == [False, True]


def _consume(world: World, client: Client, tag: str, *, priority: int) -> None:
    client.consume(world.vhost.find_queue("q", None), tag, prefetch=1, arguments={"x-priority": priority})
    world.turn()
