"""Short reads that are ready together are one turn: its end is put off, and never forgotten."""

from __future__ import annotations

from kernel.contracts.message import Envelope, batch_of
from plugins.engines.broker.host.engine import READS_A_TURN
from plugins.engines.broker.host.stream_client import SHORT_READ
from plugins.protocols.amqp091.events import Delivered
from plugins.protocols.amqp091.methods import basic, queue
from tests.plugins.engines.amqp.still_host import StillClient, StillServer


def _clients(server: StillServer, count: int) -> list[StillClient]:
    clients = [server.connect() for _ in range(count)]
    server.host.process()
    return clients


def _declare_all(clients: list[StillClient], name: str = "q") -> None:
    for client in clients:
        client.send(queue.Declare(queue=name))


def _answered(client: StillClient) -> bool:
    return bool(client.read())


def test_reads_that_are_ready_together_are_one_turn(ends: list[float]) -> None:
    server = StillServer()
    clients = _clients(server, 5)
    _declare_all(clients)
    ends.clear()
    server.host.turn()
    assert len(ends) == 1
    assert all(map(_answered, clients))
    # What was posted in case that nobody had ended the turn has nothing to do any more.
    server.host.turn()
    assert len(ends) == 1
    server.close()


def test_one_alone_is_a_turn_at_once(ends: list[float]) -> None:
    server = StillServer()
    clients = _clients(server, 2)
    _declare_all(clients[:1])
    ends.clear()
    server.host.turn()
    assert len(ends) == 1
    assert _answered(clients[0])
    server.close()


def test_the_turn_ends_also_if_the_last_one_ready_is_nobody_of_the_broker(ends: list[float]) -> None:
    server = StillServer()
    (client,) = _clients(server, 1)
    _declare_all([client])
    ends.clear()
    server.host.more = True
    server.engine.finish_read(0.0)
    assert not ends
    server.host.more = False
    server.host.turn()
    assert ends
    assert _answered(client)
    server.close()


def test_a_turn_has_a_bounded_number_of_reads(ends: list[float]) -> None:
    server = StillServer()
    clients = _clients(server, 2 * READS_A_TURN + 2)
    _declare_all(clients)
    ends.clear()
    server.host.turn()
    assert len(ends) == 2
    assert all(map(_answered, clients))
    server.close()


def test_a_long_read_is_a_turn_of_its_own(ends: list[float]) -> None:
    server = StillServer()
    clients = _clients(server, 3)
    for client in clients:
        for _ in range(SHORT_READ // 10):
            client.connection.send_method(1, queue.Declare(queue="q"))
        client.write()
    ends.clear()
    server.host.turn()
    assert len(ends) == 3
    server.close()


def test_workers_that_acknowledge_together_are_each_given_the_next(ends: list[float]) -> None:
    server = StillServer()
    crew = _clients(server, 12)
    _declare_all(crew)
    for worker in crew:
        worker.send(basic.Qos(prefetch_count=1))
        worker.send(basic.Consume(queue="q", consumer_tag="w"))
    server.host.process()
    crew[0].connection.publish(1, batch_of([b"%d" % number for number in range(36)], Envelope(key="q")))
    crew[0].flush()
    bodies: list[bytes] = []
    for tag in range(1, 4):
        for worker in crew:
            bodies += [
                body for event in worker.read() if isinstance(event, Delivered) for body in event.batch.bodies
            ]
            worker.send(basic.Ack(delivery_tag=tag))
        assert len(bodies) == 12 * tag
        ends.clear()
        server.host.turn()
        # The last acknowledgements make nothing ready, so there is nothing to do for them.
        assert len(ends) == (1 if tag < 3 else 0)
    assert sorted(map(int, bodies)) == list(range(36))
    server.close()


def test_a_client_that_hangs_up_in_a_turn_of_several_holds_up_nobody(ends: list[float]) -> None:
    server = StillServer()
    clients = _clients(server, 4)
    _declare_all(clients)
    clients[1].wire.close()
    server.host.process()
    assert all(_answered(client) for at, client in enumerate(clients) if at != 1)
    assert len(server.engine.clients) == 3
    server.close()
