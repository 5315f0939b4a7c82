"""Direct replies: to a channel, without a queue of the client's own."""

from __future__ import annotations

from plugins.protocols.amqp091.events import Delivered, Got
from plugins.protocols.amqp091.methods import basic, queue
from tests.plugins.engines.amqp.conftest import Server
from tests.plugins.engines.amqp.raw_client import RawClient

REPLY_TO = "amq.rabbitmq.reply-to"


def request(client: RawClient) -> str:
    """Ask something, and return where the one who is asked would answer."""
    client.publish(b"?", "q", properties={"reply_to": REPLY_TO})
    client.send(basic.Get(queue="q", no_ack=True))
    address: str = client.wait_for(Got).batch.envelope.reply_to
    return address


def test_who_consumes_replies_again_gets_those_to_what_it_asks_then(server: Server) -> None:
    with RawClient(server.port) as client:
        client.ask(queue.Declare(queue="q"), queue.DeclareOk)
        for number in range(2):
            client.ask(basic.Consume(queue=REPLY_TO, consumer_tag="replies", no_ack=True), basic.ConsumeOk)
            client.publish(b"%d" % number, request(client))
            assert list(client.wait_for(Delivered).batch.bodies) == [b"%d" % number]
            client.ask(basic.Cancel(consumer_tag="replies"), basic.CancelOk)
        client.publish(b"?", "q", properties={"reply_to": REPLY_TO})
        refused = "PRECONDITION_FAILED - fast reply consumer does not exist"
        assert client.refusal() == ("channel", 406, refused)
