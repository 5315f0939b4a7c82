"""Connections as sockets: slow readers, hang-ups, many at once, time."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from kernel.contracts.lazy_figures import LazyFigures
from plugins.engines.amqp.front_end import make_amqp_engine
from plugins.engines.amqp.options import AmqpOptions
from plugins.engines.broker.host.stream_client import UNWRITTEN_BYTES, WINDOW_BYTES
from plugins.protocols.amqp091.events import Delivered, Got
from plugins.protocols.amqp091.methods import basic, connection, queue
from tests.plugins.engines.amqp.conftest import Server
from tests.plugins.engines.amqp.fake_host import FakeHost
from tests.plugins.engines.amqp.raw_client import RawClient, frame


@pytest.mark.slow
def test_a_slow_reader_is_handed_a_window_and_no_more(server: Server) -> None:
    body = b"x" * 65536
    count = 400
    with RawClient(server.port) as slow, RawClient(server.port) as publisher:
        slow.ask(queue.Declare(queue="q"), queue.DeclareOk)
        slow.ask(basic.Consume(queue="q", no_ack=True), basic.ConsumeOk)
        for _ in range(count):
            publisher.publish(body, "q")
        publisher.ask(basic.Qos(), basic.QosOk)
        left = server.host.call(lambda: server.engine.broker.vhost("/").queues["q"].backlog.count)
        unwritten = server.host.call(lambda: max(c.unwritten for c in server.engine.clients))
        assert left > 0
        assert unwritten <= WINDOW_BYTES + 2 * len(body)
        received = 0
        while received < count:
            received += len(slow.wait_for(Delivered).batch.bodies)
        assert received == count


@pytest.mark.slow
def test_a_client_that_asks_and_never_reads_is_not_read(server: Server) -> None:
    with RawClient(server.port) as rude:
        rude.ask(queue.Declare(queue="q" * 200), queue.DeclareOk)
        declare = queue.Declare(queue="q" * 200, passive=True)
        rude._socket.settimeout(1)
        with pytest.raises(TimeoutError):
            rude.send_bytes(_frames(declare, 200_000))
        unwritten = server.host.call(lambda: max(c.unwritten for c in server.engine.clients))
        assert unwritten < 2 * UNWRITTEN_BYTES


def _frames(method: queue.Declare, count: int) -> bytes:
    return frame(1, 1, method.encode()) * count


def test_a_client_that_hangs_up_in_the_middle_gives_back_what_it_held(server: Server) -> None:
    with RawClient(server.port) as client:
        client.ask(queue.Declare(queue="q"), queue.DeclareOk)
        client.publish(b"x", "q")
        client.send(basic.Get(queue="q"))
        client.ask(basic.Qos(), basic.QosOk)
    with RawClient(server.port) as other:
        other.ask(basic.Consume(queue="q"), basic.ConsumeOk)
        delivered = other.wait_for(Delivered)
    assert (list(delivered.batch.bodies), delivered.redelivered) == ([b"x"], True)


def test_a_client_that_says_nothing_is_hung_up_on(serve: Callable[..., Server]) -> None:
    server = serve(handshake_seconds=0.05)
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as wire:
        while wire.recv(4096):
            pass
    assert server.host.call(server.engine.statistics)["connections"] == 0


def test_random_bytes_end_their_connection_only(server: Server) -> None:
    with RawClient(server.port) as witness:
        for octets in (
            b"\x00" * 100,
            b"AMQP\x00\x00\x09\x01" + b"\xff" * 100,
            b"AMQP\x00\x00\x09\x01\x01\x00",
        ):
            with socket.create_connection(("127.0.0.1", server.port), timeout=60) as wire:
                wire.sendall(octets)
                wire.shutdown(socket.SHUT_WR)
                while wire.recv(4096):
                    pass
        witness.ask(basic.Qos(), basic.QosOk)


def test_many_connections_come_and_go(server: Server) -> None:
    clients = [RawClient(server.port) for _ in range(50)]
    assert server.engine.statistics()["connections"] == 50
    for client in clients:
        client.ask(queue.Declare(queue="", exclusive=True), queue.DeclareOk)
        client.__exit__()
    with RawClient(server.port) as last:
        last.ask(basic.Qos(), basic.QosOk)
        queues = server.host.call(lambda: len(server.engine.broker.vhost("/").queues))
    assert queues == 0


def test_stopping_says_good_bye(server: Server) -> None:
    with RawClient(server.port) as client:
        server.host.call(server.engine.stop)
        assert client.refusal() == ("connection", 320, "CONNECTION_FORCED - the broker is shut down")


def test_figures_of_queues_are_read_one_by_one(server: Server) -> None:
    """To copy those of very many queues would hold up the thread of the engine that shows them."""
    queues = server.engine.statistics()["vhosts"]["/"]["queues"]
    assert isinstance(queues, LazyFigures)


def test_statistics_count_past_connections_too(server: Server) -> None:
    with RawClient(server.port) as client:
        client.ask(queue.Declare(queue="q"), queue.DeclareOk)
        client.publish(b"x", "q")
        client.ask(basic.Consume(queue="q", no_ack=True), basic.ConsumeOk)
        client.wait_for(Delivered)
        client.ask(queue.Declare(queue="asked"), queue.DeclareOk)
        client.publish(b"x", "asked")
        client.send(basic.Get(queue="asked", no_ack=True))
        client.wait_for(Got)
    with RawClient(server.port):
        statistics = server.engine.statistics()
    assert (statistics["messages_in"], statistics["messages_out"]) == (2, 2)


def test_it_listens_on_a_unix_socket(serve: Callable[..., Server], tmp_path: Path) -> None:
    path = str(tmp_path / "broker.sock")
    host = serve(address=f"amqp+unix://{path}").host
    with socket.socket(socket.AF_UNIX) as wire:
        wire.settimeout(60)
        wire.connect(path)
        wire.sendall(b"AMQP\x00\x00\x09\x01")
        assert wire.recv(4096)[:1] == b"\x01"
    assert host.failures == []


@pytest.mark.parametrize("address", ["nowhere", "amqp+udp://127.0.0.1:0", "127.0.0.1:http"])
def test_an_address_that_it_cannot_serve_is_refused(address: str) -> None:
    host = FakeHost()
    with pytest.raises(ValueError, match=re.escape(address)):
        make_amqp_engine("broker", AmqpOptions(address=address)).start(host)
    host.stop()


def test_a_port_that_is_taken_is_an_error_and_leaves_nothing(server: Server) -> None:
    host = FakeHost()
    engine = make_amqp_engine("second", AmqpOptions(address=server.address))
    with pytest.raises(OSError, match="cannot listen on"):
        engine.start(host)
    engine.stop()
    host.stop()


def test_a_client_that_closes_and_goes_on_writing_reads_the_answer(server: Server) -> None:
    """As amqplib does it: connection.close overtakes what is still to be published."""
    with RawClient(server.port) as client:
        close = frame(1, 0, connection.Close(reply_code=200, reply_text="enough").encode())
        late = frame(1, 1, queue.Declare(queue="q").encode()) * 100
        client._socket.sendall(close + late)
        received = b""
        while piece := client._socket.recv(65536):  # a reset would raise
            received += piece
            client._socket.sendall(late)  # it is read, so there is somebody to write to
        assert received.endswith(frame(1, 0, connection.CloseOk().encode()))
