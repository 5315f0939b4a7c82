"""The bridge between AMQP and ØMQ, with pika and pyzmq."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from kernel.plugins import PluginRegistry
from kernel.topology.check import load_plan
from tests.examples.test_examples import EXAMPLES, TIMEOUT, _kernel_run, spawned
from tests.interop.until import until
from tests.ports import free_port

__all__ = ["spawned"]

pytestmark = [pytest.mark.peer("pika"), pytest.mark.peer("pyzmq")]


def test_the_bridge_carries_a_feed_out_and_work_in(
    spawned: list[subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    import pika
    import zmq

    for name in ("AMQP_PORT", "ZMQ_PORT", "ZMQ_PULL_PORT"):
        monkeypatch.setenv(name, str(free_port()))
    _kernel_run(spawned, "zmq_bridge.toml")
    parameters = pika.ConnectionParameters("127.0.0.1", int(os.environ["AMQP_PORT"]))
    with (
        zmq.Context() as context,
        context.socket(zmq.SUB) as sub,
        context.socket(zmq.PUSH) as push,
        pika.BlockingConnection(parameters) as connection,
    ):
        channel = connection.channel()
        sub.rcvtimeo = int(TIMEOUT * 1000)
        push.linger = 0
        sub.subscribe("weather.")
        sub.connect(f"tcp://127.0.0.1:{os.environ['ZMQ_PORT']}")

        def arrives() -> bool:
            # A subscription takes a moment, and nothing tells a subscriber when it is in effect.
            channel.basic_publish("feed", "weather.wien", b"sunny")
            return bool(sub.poll(10))

        until(arrives)
        channel.basic_publish("feed", "traffic.wien", b"heavy")
        channel.basic_publish("feed", "weather.graz", b"windy")
        while (message := sub.recv_multipart()) == [b"weather.wien", b"sunny"]:
            pass
        assert message == [b"weather.graz", b"windy"]

        push.connect(f"tcp://127.0.0.1:{os.environ['ZMQ_PULL_PORT']}")
        push.send(b"do this")
        assert until(lambda: channel.basic_get("work", auto_ack=True)[2]) == b"do this"


def test_a_feed_comes_into_a_topic_exchange_and_a_queue_goes_out_to_workers(
    spawned: list[subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    import pika
    import zmq

    for name in ("AMQP_PORT", "ZMQ_PUB_PORT", "ZMQ_PUSH_PORT"):
        monkeypatch.setenv(name, str(free_port()))
    _kernel_run(spawned, "zmq_feed_and_workers.toml")
    parameters = pika.ConnectionParameters("127.0.0.1", int(os.environ["AMQP_PORT"]))
    with (
        zmq.Context() as context,
        context.socket(zmq.PUB) as pub,
        context.socket(zmq.PULL) as pull,
        pika.BlockingConnection(parameters) as connection,
    ):
        channel = connection.channel()
        channel.queue_declare("wien")
        channel.queue_bind("wien", "feed", "*.wien")
        pub.linger, pull.rcvtimeo = 0, int(TIMEOUT * 1000)
        pub.bind(f"tcp://127.0.0.1:{os.environ['ZMQ_PUB_PORT']}")

        def arrives() -> tuple[str, bytes] | None:
            # A PUB drops what it is given before somebody has subscribed.
            for key in (b"weather.graz", b"weather.wien"):
                pub.send_multipart([key, b"sunny"])
            method, _, body = channel.basic_get("wien", auto_ack=True)
            return method and (method.routing_key, body)

        assert until(arrives) == ("weather.wien", b"sunny")

        for number in range(300):
            channel.basic_publish("", "jobs", b"%d" % number)
        pull.connect(f"tcp://127.0.0.1:{os.environ['ZMQ_PUSH_PORT']}")
        assert [pull.recv() for _ in range(300)] == [b"%d" % number for number in range(300)]


def test_users_of_the_broker_log_in_at_a_socket(
    spawned: list[subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    import pika
    import zmq
    from zmq.utils.monitor import recv_monitor_message

    for name in ("AMQP_PORT", "ZMQ_PULL_PORT"):
        monkeypatch.setenv(name, str(free_port()))
    monkeypatch.setenv("ANNA_PASSWORD", "tea")
    _kernel_run(spawned, "zmq_logins.toml")
    place = f"tcp://127.0.0.1:{os.environ['ZMQ_PULL_PORT']}"
    credentials = pika.PlainCredentials("anna", "tea")
    parameters = pika.ConnectionParameters("127.0.0.1", int(os.environ["AMQP_PORT"]), credentials=credentials)
    with (
        zmq.Context() as context,
        context.socket(zmq.PUSH) as wrong,
        context.socket(zmq.PUSH) as right,
        wrong.get_monitor_socket(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL) as monitor,
        pika.BlockingConnection(parameters) as connection,
    ):
        channel = connection.channel()
        monitor.rcvtimeo = int(TIMEOUT * 1000)
        for socket, password in ((wrong, b"guess"), (right, b"tea")):
            socket.linger = 0
            socket.plain_username, socket.plain_password = b"anna", password
            socket.connect(place)
            socket.send(password, zmq.NOBLOCK)
        # With PLAIN libzmq 4.3 knows ERROR only as it misspells it itself.
        assert recv_monitor_message(monitor)["event"] == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
        wrong.disable_monitor()

        def arrived() -> tuple[bytes, str] | None:
            _, properties, body = channel.basic_get("work", auto_ack=True)
            return body and (body, properties.user_id)

        assert until(arrived) == (b"tea", "anna")


def test_everyone_is_heard_by_subscribers_of_zmq(
    spawned: list[subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import pika
    import zmq

    for name in ("AMQP_PORT", "MQTT_PORT", "STOMP_PORT", "WS_PORT", "ZMQ_PORT"):
        monkeypatch.setenv(name, str(free_port()))
    monkeypatch.setenv("JOURNAL_DIR", str(tmp_path / "journal"))
    _kernel_run(spawned, "everyone.toml")
    parameters = pika.ConnectionParameters("127.0.0.1", int(os.environ["AMQP_PORT"]))
    with (
        zmq.Context() as context,
        context.socket(zmq.SUB) as sub,
        pika.BlockingConnection(parameters) as connection,
    ):
        channel = connection.channel()
        sub.subscribe("weather.")
        sub.connect(f"tcp://127.0.0.1:{os.environ['ZMQ_PORT']}")

        def arrives() -> bool:
            channel.basic_publish("amq.topic", "weather.wien", b"sunny")
            return bool(sub.poll(10))

        until(arrives)
        assert sub.recv_multipart() == [b"weather.wien", b"sunny"]


def test_everyone_listens_for_zmq_only_at_a_port_that_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = PluginRegistry.load()
    monkeypatch.setenv("ZMQ_PORT", "5556")
    assert load_plan(EXAMPLES / "everyone.toml", registry).engine("zmq") is not None
    monkeypatch.delenv("ZMQ_PORT")
    plan = load_plan(EXAMPLES / "everyone.toml", registry)
    assert plan.engine("zmq") is None
    assert [route.targets for route in plan.routes] == [("journal",)]


@pytest.fixture
def requests_ports(spawned: list[subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    ports = {name: free_port() for name in ("AMQP_PORT", "ZMQ_REP_PORT", "ZMQ_REQ_PORT")}
    for name, port in ports.items():
        monkeypatch.setenv(name, str(port))
    _kernel_run(spawned, "zmq_requests.toml")
    return ports


def test_a_worker_of_amqp_answers_a_req(requests_ports: dict[str, int]) -> None:
    import pika
    import zmq

    parameters = pika.ConnectionParameters("127.0.0.1", requests_ports["AMQP_PORT"])
    with (
        zmq.Context() as context,
        context.socket(zmq.REQ) as first,
        context.socket(zmq.REQ) as second,
        pika.BlockingConnection(parameters) as connection,
    ):
        channel = connection.channel()
        for req in (first, second):
            req.linger, req.rcvtimeo = 0, int(TIMEOUT * 1000)
            req.connect(f"tcp://127.0.0.1:{requests_ports['ZMQ_REP_PORT']}")
        for turn in range(3):
            for req, text in ((first, b"one %d" % turn), (second, b"two %d" % turn)):
                req.send(text)
            for _ in range(2):
                _, asked, body = until(
                    lambda: (got := channel.basic_get("questions", auto_ack=True))[0] and got
                )
                # As in RabbitMQ's tutorial of RPC.
                answer = pika.BasicProperties(correlation_id=asked.correlation_id)
                channel.basic_publish("", asked.reply_to, b"re: " + body, answer)
            assert [req.recv() for req in (first, second)] == [b"re: one %d" % turn, b"re: two %d" % turn]


@pytest.mark.parametrize("direct", [True, False], ids=["direct reply-to", "a queue of its own"])
def test_a_rep_answers_clients_of_amqp(requests_ports: dict[str, int], direct: bool) -> None:
    import pika
    import zmq

    parameters = pika.ConnectionParameters("127.0.0.1", requests_ports["AMQP_PORT"])
    with (
        zmq.Context() as context,
        context.socket(zmq.REP) as rep,
        pika.BlockingConnection(parameters) as connection,
    ):
        channel = connection.channel()
        rep.linger, rep.rcvtimeo = 0, int(TIMEOUT * 1000)
        rep.connect(f"tcp://127.0.0.1:{requests_ports['ZMQ_REQ_PORT']}")
        address = "amq.rabbitmq.reply-to"
        if not direct:
            address = channel.queue_declare("", exclusive=True).method.queue
        answers: list[tuple[str, bytes]] = []
        channel.basic_consume(
            address, lambda *got: answers.append((got[2].correlation_id, got[3])), auto_ack=True
        )
        for number in range(5):
            asking = pika.BasicProperties(reply_to=address, correlation_id=f"n{number}")
            channel.basic_publish("service", "", b"question %d" % number, asking)
        for _ in range(5):
            rep.send(b"re: " + rep.recv())
        while len(answers) < 5:
            connection.process_data_events(time_limit=TIMEOUT)
        assert answers == [(f"n{number}", b"re: question %d" % number) for number in range(5)]
