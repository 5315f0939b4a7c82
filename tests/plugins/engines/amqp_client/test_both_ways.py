"""The client against our own broker: what routes bring is published and confirmed, what it consumes is handed on."""

from __future__ import annotations

from collections.abc import Callable

from kernel.contracts.message import Envelope, Message
from kernel.topology.system import Kernel
from plugins.protocols.amqp091.methods import queue
from tests.plugins.engines.amqp.raw_client import RawClient
from tests.plugins.engines.amqp_client.conftest import TIMEOUT, Client, receive

CONSUME = [{"queue": "q", "prefetch": 100}]


def _bodies(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


def _messages_in(broker: Kernel, name: str = "q") -> tuple[int, int]:
    """How many messages wait in a queue, and how many consumers it has."""
    with RawClient(int(broker.address_of("broker").rpartition(":")[2])) as raw:
        answer = raw.ask(queue.Declare(queue=name, passive=True), queue.DeclareOk)
    return answer.message_count, answer.consumer_count


def test_what_is_published_is_confirmed_and_comes_back(
    connect: Callable[..., Client], broker: Kernel
) -> None:
    client = connect(exchange="", key="q", consume=CONSUME, in_flight=50)
    out, into = client.kernel.open("out"), client.kernel.open("in")
    bodies = _bodies(0, 5000)
    out.send_many(bodies, timeout=TIMEOUT)
    out.wait_confirmed(TIMEOUT)
    assert receive(into, bodies) == bodies


def test_an_envelope_goes_to_its_exchange_with_its_key_and_properties(connect: Callable[..., Client]) -> None:
    client = connect(
        exchanges=[{"name": "feed", "type": "topic"}],
        queues=[{"name": "weather", "exclusive": True}],
        bindings=[{"exchange": "feed", "queue": "weather", "key": "weather.#"}],
        consume=[{"queue": "weather"}],
        persistent=True,
    )
    envelope = Envelope(exchange="feed", key="weather.wien", properties={"content_type": "text/plain"})
    client.kernel.open("out").send_message(Message(b"sunny", envelope))
    message = client.kernel.open("in").receive_message(timeout=TIMEOUT)
    assert (bytes(message), message.key, message.envelope.exchange) == (b"sunny", "weather.wien", "feed")
    assert message.envelope.persistent
    assert message.envelope.properties["content_type"] == "text/plain"


def test_a_delivery_is_acknowledged_when_the_routes_have_confirmed_and_not_before(
    connect: Callable[..., Client], broker: Kernel
) -> None:
    client = connect(exchange="", key="q", consume=[{"queue": "q", "prefetch": 10}])
    out = client.kernel.open("out")
    out.send_many(_bodies(0, 30))
    out.wait_confirmed(TIMEOUT)
    into = client.kernel.open("in", auto_confirm=False)
    assert receive(into, _bodies(0, 10)) == _bodies(0, 10)
    assert _messages_in(broker) == (20, 1)
    into.confirm()
    assert receive(into, _bodies(10, 20)) == _bodies(10, 20)
    assert _messages_in(broker) == (10, 1)


def test_a_route_that_does_not_confirm_has_deliveries_acknowledged_as_they_are_handed_over(
    connect: Callable[..., Client],
) -> None:
    client = connect(exchange="", key="q", consume=[{"queue": "q", "prefetch": 10}], confirm=False)
    client.kernel.open("out").send_many(_bodies(0, 500))
    assert receive(client.kernel.open("in"), _bodies(0, 500)) == _bodies(0, 500)
