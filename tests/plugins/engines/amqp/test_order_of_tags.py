"""What a client asks for while deliveries are on their way to it: tags come in their order, and none after its end."""

from __future__ import annotations

from collections.abc import Callable

from kernel.contracts.message import Envelope, batch_of
from plugins.engines.broker.host.options import QueueOptions
from plugins.protocols.amqp091.events import Delivered, Got, MethodReceived
from plugins.protocols.amqp091.methods import basic, queue
from plugins.protocols.amqp091.methods.method import Method
from tests.plugins.engines.amqp.still_host import StillClient, StillServer


def consumer_of_a(still: Callable[..., StillServer]) -> StillClient:
    """A consumer of queue ``a``; a message waits in queue ``b``."""
    client = still(queues=(QueueOptions(name="a"), QueueOptions(name="b"))).connect()
    client.connection.publish(1, batch_of([b"in b"], Envelope(key="b")))
    client.ask(basic.Consume(queue="a"), basic.ConsumeOk)
    return client


def say(client: StillClient, method: Method) -> list[str | int]:
    """Publish to ``a``, have that queue hand it out, and say something, all in the same bytes; return what came."""
    client.connection.publish(1, batch_of([b"in a"], Envelope(key="a")))
    client.connection.send_method(1, queue.Declare(queue="a", passive=True))
    client.connection.send_method(1, method)
    client.flush()
    got: list[str | int] = []
    for event in client.read_all():
        if isinstance(event, Delivered):
            got += range(event.first_delivery_tag, event.first_delivery_tag + len(event.batch))
        elif isinstance(event, Got):
            got.append(event.delivery_tag)
        elif isinstance(event, MethodReceived):
            got.append(event.method.name)
    return got


def test_a_get_is_answered_after_the_deliveries_whose_tags_are_lower(
    still: Callable[..., StillServer],
) -> None:
    """Else an acknowledgement of all up to what was got would count for deliveries that the client has not seen."""
    assert say(consumer_of_a(still), basic.Get(queue="b")) == ["queue.declare-ok", 1, 2]


def test_what_is_requeued_is_delivered_once_before_the_answer_and_once_after_it(
    still: Callable[..., StillServer],
) -> None:
    got = say(consumer_of_a(still), basic.Recover(requeue=True))
    assert got == ["queue.declare-ok", 1, "basic.recover-ok", 2]
