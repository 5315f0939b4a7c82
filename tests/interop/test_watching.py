"""Looking at a running broker with ``kernel peek``, ``explain`` and ``tap`` while pika and paho use it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernel.topology.control import ControlServer
from kernel.topology.plan import EnginePlan, Plan, RoutePlan
from kernel.topology.system import Kernel
from tests.kernel.cli.test_commands import Command, kernel
from tests.peers import optional

__all__ = ["kernel"]

pika = optional("pika")
mqtt = optional("paho.mqtt.client")
pytestmark = [pytest.mark.peer("pika"), pytest.mark.peer("paho-mqtt")]
TIMEOUT = 60.0

BROKER = EnginePlan(
    name="broker",
    kind="broker",
    options={
        "listeners": [
            {"protocol": "amqp", "address": "127.0.0.1:0"},
            {"protocol": "mqtt", "address": "127.0.0.1:0"},
        ],
        "users": {"guest": {"password": "guest"}, "reader": {"password": "r", "write": "^nothing$"}},
    },
)


class Watched:
    """A running broker with an AMQP and an MQTT listener."""

    def __init__(self, system: Kernel, control: Path) -> None:
        self.system = system
        self.control = control
        amqp, mqtt_address = system.address_of("broker").split(", ")
        self.amqp_port = int(amqp.rpartition(":")[2])
        self.mqtt_port = int(mqtt_address.rpartition(":")[2])


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    app = EnginePlan(name="app", kind="native")
    routes = (
        RoutePlan(source="broker", targets=("app",), match=("routed.#",)),
        RoutePlan(source="app", targets=("broker",)),
    )
    with Kernel(Plan(engines=(BROKER, app), routes=routes)) as system:
        system.wait_running()
        # Opened, because a route whose destination was never there stops its source.
        with system.open("app"), ControlServer(system, tmp_path / "control.sock") as server:
            yield Watched(system, Path(server.path))


@pytest.fixture
def channel(watched: Watched) -> Iterator[Any]:
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", watched.amqp_port)) as connection:
        yield connection.channel()


@pytest.fixture
def sensor(watched: Watched) -> Iterator[Any]:
    """A client of paho that has subscribed to two filters."""
    from threading import Event

    subscribed = Event()
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id="sensor")
    client.username_pw_set("guest", "guest")
    client.on_connect = lambda *_: client.subscribe([("home/+", 0), ("garden/#", 0)])
    client.on_subscribe = lambda *_: subscribed.set()
    client.connect("127.0.0.1", watched.mqtt_port)
    client.loop_start()
    assert subscribed.wait(TIMEOUT)
    yield client
    client.disconnect()
    client.loop_stop()


def test_peek_shows_what_pika_has_published_and_leaves_it(
    kernel: Command, watched: Watched, channel: Any
) -> None:
    channel.queue_declare("orders")
    channel.confirm_delivery()
    properties = pika.BasicProperties(content_type="text/plain", headers={"tenant": "a"}, delivery_mode=2)
    channel.basic_publish("", "orders", b"the first", properties)
    channel.basic_publish("", "orders", b"\x1b[31m\xff")
    status, shown, errors = kernel("peek", "orders", "--control", watched.control)
    assert (status, errors) == (0, "")
    assert "the first" in shown
    assert "headers: {'tenant': 'a'}" in shown
    assert "<1b 5b 33 31 6d ff>" in shown
    assert "2 shown of 2 ready; 0 unacknowledged" in shown
    rows = [
        json.loads(line)
        for line in kernel("peek", "orders", "--json", "--control", watched.control)[1].splitlines()
    ]
    assert [(row["body"], row["persistent"]) for row in rows] == [("the first", True), ("G1szMW3/", False)]
    method, _, body = channel.basic_get("orders")
    assert (body, method.redelivered, method.message_count) == (b"the first", False, 1)


def test_peek_says_what_to_do_about_a_queue_that_is_not_there(
    kernel: Command, watched: Watched, channel: Any
) -> None:
    channel.queue_declare("orders")
    status, _, errors = kernel("peek", "oders", "--control", watched.control)
    assert status == 1
    assert "there is no queue 'oders' in virtual host '/'; did you mean 'orders'?" in errors
    status, _, errors = kernel("peek", "orders", "--engine", "app", "--control", watched.control)
    assert (status, "engine 'app' cannot peek; engines that can: broker" in errors) == (1, True)
    assert (
        "there is no virtual host 'x'; there are: /"
        in kernel("peek", "q", "--vhost", "x", "--control", watched.control)[2]
    )


def test_explain_finds_queues_routes_and_subscribers_of_all_protocols(
    kernel: Command, watched: Watched, channel: Any, sensor: Any
) -> None:
    channel.queue_declare("temperatures")
    channel.queue_bind("temperatures", "amq.topic", "home.*")
    channel.queue_declare("other")
    channel.queue_bind("other", "amq.topic", "home.a.b")
    channel.basic_consume("temperatures", lambda *_: None, consumer_tag="reader-1")
    status, shown, errors = kernel("explain", "--topic", "home/kitchen", "--control", watched.control)
    assert (status, errors) == (0, "")
    lines = [line.strip() for line in shown.splitlines()]
    assert "+ queue temperatures: topic pattern 'home.*' matches 'home.kitchen'" in lines
    assert any(line.startswith("+ consumer reader-1: ") for line in lines)
    assert "+ subscription sensor: filter 'home/+' matches topic 'home/kitchen'" in lines
    assert "- subscription sensor: filter 'garden/#' does not match topic 'home/kitchen'" in lines
    assert (
        "- queue other: topic pattern 'home.a.b' does not match 'home.kitchen': word 2 is 'kitchen', not 'a'"
        in lines
    )
    assert "- route broker -> app [routed.#]: 'routed.#' does not match key 'home.kitchen'" in lines
    assert "users who may not publish to it: reader" in lines


def test_a_retained_message_is_for_later_subscribers(kernel: Command, watched: Watched, sensor: Any) -> None:
    sensor.publish("garden/tap", b"open", qos=1, retain=True).wait_for_publish(TIMEOUT)
    shown = kernel("explain", "--topic", "garden/tap", "--control", watched.control)[1]
    assert "- retained garden/tap: 4 bytes are retained; who subscribes later gets them at once" in shown


def test_explain_follows_routes_out_of_and_into_the_broker(
    kernel: Command, watched: Watched, channel: Any
) -> None:
    asked = ("explain", "--control", watched.control, "--json")
    out = json.loads(kernel(*asked, "--exchange", "amq.topic", "--key", "routed.eu")[1])
    route = next(row for row in out["rows"] if row["what"] == "route")
    assert (route["gets"], route["why"]) == (True, "pattern 'routed.#' matches key 'routed.eu'")
    assert [each["name"] for each in route["next"]] == ["app"]
    channel.queue_declare("from-app")
    channel.queue_bind("from-app", "amq.topic", "app.#")
    into = json.loads(kernel(*asked, "--from", "app", "--exchange", "amq.topic", "--key", "app.1")[1])
    (broker,) = into["rows"][0]["next"]
    assert broker["next"][0]["next"][0]["name"] == "from-app"


def test_explain_says_whether_a_user_may(kernel: Command, watched: Watched) -> None:
    asked = ("explain", "--exchange", "amq.topic", "--key", "a", "--control", watched.control, "--user")
    assert (
        "access to exchange 'amq.topic' in vhost '/' refused for user 'reader'" in kernel(*asked, "reader")[1]
    )
    assert "refused for user" not in kernel(*asked, "guest")[1]
    status, _, errors = kernel(*asked, "gest")
    assert (status, "there is no user 'gest'; did you mean 'guest'?" in errors) == (1, True)


def test_tap_shows_what_pika_and_paho_publish(
    kernel: Command, watched: Watched, channel: Any, sensor: Any
) -> None:
    from threading import Thread

    from kernel.topology.control import watch

    channel.queue_declare("kitchen")
    channel.queue_bind("kitchen", "amq.topic", "home.*")
    argument = {"watch": {"asked": {"queue": "kitchen"}, "contains": "warm"}, "limit": 2, "seconds": TIMEOUT}
    lines = watch(watched.control, argument)
    assert next(lines) == {"watching": True}
    channel.basic_publish("amq.topic", "home.a", b"cold")
    channel.basic_publish("amq.topic", "home.a", b"warm", pika.BasicProperties(headers={"unit": "C"}))
    first = next(lines)["message"]
    sensor.publish("home/b", b"warm, too", qos=1).wait_for_publish(TIMEOUT)
    second, end = next(lines)["message"], next(lines)
    assert (first["key"], first["properties"]["headers"]) == ("home.a", {"unit": "C"})
    assert (second["key"], second["body"]) == ("home.b", "warm, too")
    assert (end["shown"], end["dropped"]) == (2, 0)
    # The command prints what the function yields.
    shown: list[tuple[int, str, str]] = []
    asked = ("tap", "--exchange", "amq.topic", "-n", "1", "--seconds", "60", "--control", watched.control)
    thread = Thread(target=lambda: shown.append(kernel(*asked)))
    thread.start()
    while thread.is_alive():
        channel.basic_publish("amq.topic", "home.a", b"again")
        thread.join(0.01)
    ((status, output, errors),) = shown
    assert status == 0
    assert "exchange 'amq.topic', key 'home.a', 5 bytes\n  again\n" in output
    assert "1 shown" in errors


def test_a_tap_does_not_make_a_mandatory_message_wanted(watched: Watched, channel: Any) -> None:
    from kernel.topology.control import watch

    lines = watch(
        watched.control, {"watch": {"asked": {"exchange": "amq.topic"}}, "limit": 1, "seconds": TIMEOUT}
    )
    assert next(lines) == {"watching": True}
    channel.confirm_delivery()
    with pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish("amq.topic", "nobody", b"1", mandatory=True)
    assert next(lines)["message"]["key"] == "nobody"


@pytest.mark.parametrize(
    "arguments, said",
    [
        ((), "say what to watch"),
        (("--queue", "none"), "there is no queue 'none' in virtual host '/'; `kernel queues` lists them"),
        (
            ("--exchange", "amq.topc"),
            "there is no exchange 'amq.topc' in virtual host '/'; did you mean 'amq.topic'?",
        ),
        (("--from", "app", "--header", "x"), "--header 'x' has to be NAME=VALUE"),
        (("--to", "ap"), "no route begins or ends at 'ap'; did you mean 'app'?"),
    ],
)
def test_tap_says_what_is_wrong(
    kernel: Command, watched: Watched, arguments: tuple[str, ...], said: str
) -> None:
    status, _, errors = kernel("tap", *arguments, "--control", watched.control)
    assert status != 0
    assert said in errors


@pytest.mark.parametrize(
    "arguments, said",
    [
        ((), "say which message"),
        (("--topic", "a", "--key", "b"), "--topic stands for an exchange and a key"),
        (("--topic", "a", "--exchange", ""), "--topic stands for an exchange and a key"),
        (("--user", "guest"), "say which message the user may publish"),
        (("--key", "a", "--header", "x"), "--header 'x' has to be NAME=VALUE"),
        (("--from", "brokr", "--key", "a"), "there is no engine 'brokr'; did you mean 'broker'?"),
        (
            ("--from", "app", "--topic", "a"),
            "engine 'app' cannot explain with --topic; engines that can: broker",
        ),
    ],
)
def test_explain_says_what_is_wrong_with_the_question(
    kernel: Command, watched: Watched, arguments: tuple[str, ...], said: str
) -> None:
    status, _, errors = kernel("explain", *arguments, "--control", watched.control)
    assert status != 0
    assert said in errors
