"""Two client engines and a route are a shovel: from a queue of one broker to an exchange or queue of another."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kernel.testing.fixtures import KernelFactory
from kernel.topology.plan import EnginePlan, RoutePlan
from kernel.topology.system import Kernel
from plugins.engines.amqp_client.options import ConsumeOptions
from plugins.protocols.amqp091.events import Delivered
from plugins.protocols.amqp091.methods import basic, queue
from tests.events import Events
from tests.interop.until import until
from tests.plugins.engines.amqp.raw_client import RawClient
from tests.plugins.engines.amqp_client import in_memory
from tests.plugins.engines.amqp_client.conftest import FAST, broker_plan
from tests.plugins.engines.amqp_client.in_memory import InMemory


def _raw(broker: Kernel) -> RawClient:
    return RawClient(int(broker.address_of("broker").rpartition(":")[2]))


class Ends:
    """Two brokers with a queue ``q`` each, and a client of each."""

    def __init__(self, make: KernelFactory) -> None:
        self.make = make
        self.brokers = [make(broker_plan(queues=[{"name": "q"}])) for _ in range(2)]
        self.addresses = [broker.address_of("broker") for broker in self.brokers]
        self.events = Events()

    def shovel(self, *, confirm: bool = True, to: dict[str, Any], **consume: Any) -> Kernel:
        source, destination = ([address] for address in self.addresses)
        consume = {"queue": "q", **consume}
        return self.make(
            EnginePlan(
                name="source",
                kind="amqp-client",
                options={"addresses": source, "consume": [consume], "reconnect": FAST},
            ),
            EnginePlan(
                name="destination",
                kind="amqp-client",
                options={"addresses": destination, "reconnect": FAST, **to},
            ),
            RoutePlan(source="source", targets=("destination",), confirm=confirm),
            on_event=self.events,
        )

    def put(self, count: int, **properties: Any) -> None:
        with _raw(self.brokers[0]) as raw:
            for number in range(count):
                raw.publish(b"%d" % number, "q", "", {"headers": {"n": number}, **properties})
            raw.ask(basic.Qos(), basic.QosOk)

    def take(self, count: int) -> list[Delivered]:
        with _raw(self.brokers[1]) as raw:
            raw.send(basic.Consume(queue="q", no_ack=True))
            got: list[Delivered] = []
            while sum(len(event.batch) for event in got) < count:
                got.append(raw.wait_for(Delivered))
        return got

    def left(self) -> int:
        with _raw(self.brokers[0]) as raw:
            return raw.ask(queue.Declare(queue="q", passive=True), queue.DeclareOk).message_count


@pytest.fixture
def ends(kernel_factory: KernelFactory) -> Ends:
    return Ends(kernel_factory)


TO_QUEUE = {"exchange": "", "key": "q"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "mode", [{"confirm": True}, {"confirm": False}, {"confirm": False, "no_ack": True}], ids=str
)
def test_each_way_of_acknowledging_moves_everything(ends: Ends, mode: dict[str, bool]) -> None:
    ends.put(500)
    ends.shovel(to=TO_QUEUE, prefetch=50, **mode)
    events = ends.take(500)
    assert [bytes(body) for event in events for body in event.batch.bodies] == [b"%d" % n for n in range(500)]
    assert events[0].batch.envelope.properties["headers"] == {"n": 0}


def test_to_an_exchange_keys_are_kept_or_changed(ends: Ends) -> None:
    ends.put(3, content_type="text/plain")
    bound = {"bindings": [{"exchange": "amq.topic", "queue": "q", "key": "#"}]}
    ends.shovel(to={"exchange": "amq.topic", "key": "moved.on", **bound})
    envelope = ends.take(3)[0].batch.envelope
    assert (envelope.exchange, envelope.key) == ("amq.topic", "moved.on")
    assert envelope.properties["content_type"] == "text/plain"


@pytest.mark.parametrize("limit,moved", [(100, 100), ("queue-length", 150)])
def test_it_stops_after_so_many(ends: Ends, limit: int | str, moved: int) -> None:
    ends.put(150)
    shovel = ends.shovel(to=TO_QUEUE, prefetch=70, stop_after=limit)
    ends.events.wait("finished", "source")
    ends.put(10)
    assert len([body for event in ends.take(moved) for body in event.batch.bodies]) == moved
    until(lambda: ends.left() == 160 - moved)  # what it had in hand goes back when it has finished
    (figures,) = [each.counters for each in shovel.statistics().engines if each.name == "source"]
    assert (figures["finished"], figures["messages_in"]) == (1, moved)


def test_an_empty_queue_is_finished_at_once(ends: Ends) -> None:
    ends.shovel(to=TO_QUEUE, stop_after="queue-length")
    assert "0 messages" in ends.events.wait("finished", "source").detail


@pytest.mark.parametrize("side", [0, 1])
def test_either_broker_may_go_and_come(ends: Ends, side: int) -> None:
    ends.put(200)
    broker = ends.brokers[side]
    broker.remove_engine("broker")
    ends.shovel(to=TO_QUEUE, prefetch=50)
    ends.events.wait("retrying", ["source", "destination"][side])
    broker.add_engine(broker_plan(ends.addresses[side], queues=[{"name": "q"}]))
    ends.events.wait("connected", ["source", "destination"][side])
    if side == 0:  # what was in its queue went with it
        ends.put(200)
    assert sum(len(event.batch) for event in ends.take(200)) == 200


def test_what_is_lost_with_a_connection_counts_once() -> None:
    world = InMemory(consume=({"queue": "q", "stop_after": 5},))
    world.port.confirms = True
    world.deliver(1, b"0", b"1", b"2", b"3", b"4", b"5", b"6")
    assert world.port.count() == 5
    world.client.on_confirmed(3)
    world.host.run()
    assert "finished" not in world.what()
    world.close(3, 541)
    world.host.run(until=10.0)
    world.deliver(1, b"3", b"4", b"5")
    assert world.port.count() == 7
    world.client.on_confirmed(7)
    world.host.run()
    assert world.acknowledged == [(3, 3, True), (3, 2, True)]
    assert world.what()[-1] == "finished"


def test_what_came_before_the_server_cancelled_counts_once() -> None:
    world = InMemory(consume=({"queue": "q", "stop_after": 5},))
    world.deliver(1, b"0", b"1", b"2")
    world.say(3, basic.Cancel(consumer_tag="client", nowait=True))
    world.host.run(until=10.0)
    world.deliver(4, b"3")  # the channel is the same, and its tags go on
    assert "finished" not in world.what()
    world.deliver(5, b"4", b"5")
    assert world.port.count() == 5
    assert world.acknowledged[-1] == (3, 5, True)
    assert world.what()[-1] == "finished"


def test_a_limit_without_acknowledgements_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="stop_after needs acknowledgements"):
        msgspec.convert({"queue": "q", "no_ack": True, "stop_after": 3}, ConsumeOptions)


def test_a_consumer_that_finishes_while_it_waits_to_begin_again_has_finished_once() -> None:
    world = InMemory(consume=({"queue": "q", "stop_after": 2},))
    world.port.confirms = True
    world.deliver(1, b"0", b"1")
    world.say(3, basic.Cancel(consumer_tag="client", nowait=True))
    world.client.on_confirmed(2)
    world.host.run(until=10.0)
    assert world.what() == ["connected", "cancelled", "finished"]


def test_a_consumer_that_finishes_while_it_is_declared_again_has_finished_once() -> None:
    world = InMemory(consume=({"queue": "q", "stop_after": 2},), queues=({"name": "q"},))
    world.port.confirms = True
    world.deliver(1, b"0", b"1")
    world.say(3, basic.Cancel(consumer_tag="client", nowait=True))
    world.deaf()
    world.host.run(until=10.0)
    world.client.on_confirmed(2)
    world.say(1, queue.DeclareOk(queue="q", message_count=0, consumer_count=0))
    assert world.what() == ["connected", "cancelled", "finished"]


def test_a_consumer_that_has_nothing_left_to_do_is_not_called_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = {kind: answer for kind, answer in in_memory.ANSWERS.items() if kind is not queue.Declare}
    monkeypatch.setattr(in_memory, "ANSWERS", answers)
    world = InMemory(consume=({"queue": "q", "stop_after": "queue-length"},))
    world.close(3, 404)
    assert world.link.state == "refused"
    world.host.run(until=10.0)
    world.say(3, queue.DeclareOk(queue="q", message_count=0, consumer_count=0))
    assert world.what()[-1] == "finished"
    assert world.link.state == "connected"
