"""A broker whose virtual hosts are in several threads: each client is served where its virtual host is."""

from __future__ import annotations

import os
import signal
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme

from kernel.contracts.errors import KernelError, PlanError
from kernel.plugins import PluginRegistry
from kernel.testing.fixtures import KernelFactory
from kernel.threads.process_thread import ProcessThread
from kernel.topology.check import plan_of_text
from kernel.topology.plan import EnginePlan, ThreadPlan
from kernel.topology.system import Kernel
from plugins.engines.broker.host.stream_client import MOST_KEPT
from plugins.protocols.amqp091.credentials import plain_response
from plugins.protocols.amqp091.events import Acknowledged, Got, MethodReceived
from plugins.protocols.amqp091.frames import METHOD, PROTOCOL_HEADER
from plugins.protocols.amqp091.methods import channel, confirm, connection, queue
from tests.events import Events
from tests.plugins.engines.amqp.raw_client import RawClient, frame
from tests.plugins.engines.amqp.test_pipelined import WELCOME, names_of
from tests.plugins.engines.mqtt.raw_client import RawClient as RawMqtt
from tests.plugins.engines.stomp.raw_client import RawStomp

LISTENERS = [{"protocol": name, "address": "127.0.0.1:0"} for name in ("amqp", "mqtt", "stomp")]
THREADS = (ThreadPlan(name="first"), ThreadPlan(name="second"))


def broker(**options: Any) -> EnginePlan:
    """A broker with the virtual host ``prices`` in the thread ``second``."""
    return EnginePlan(
        name="broker",
        kind="broker",
        thread="first",
        options={
            "listeners": LISTENERS,
            "vhosts": ["/", "prices"],
            "shards": {"prices": "second"},
            **options,
        },
    )


def ports(kernel: Kernel) -> list[int]:
    """The ports of the listeners, in their order."""
    return [int(each.rpartition(":")[2]) for each in kernel.address_of("broker").split(", ")]


def connections(kernel: Kernel) -> list[tuple[str, str, str]]:
    rows = kernel.inspect("connections").rows
    return [(row["engine"], row.get("shard", ""), row["vhost"]) for row in rows]


def declare(client: RawClient, name: str, *, durable: bool = False) -> None:
    client.send(queue.Declare(queue=name, durable=durable))
    client.wait_for(MethodReceived)


def get(client: RawClient, name: str) -> bytes:
    return bytes(client.get(name).batch.bodies[0])


def mqtt_client(port: int) -> RawMqtt:
    return RawMqtt(socket.create_connection(("127.0.0.1", port), timeout=60))


def test_a_client_of_each_protocol_is_served_where_its_virtual_host_is(kernel_factory: KernelFactory) -> None:
    events = Events()
    kernel = kernel_factory(*THREADS, broker(), on_event=events)
    amqp, mqtt, stomp = ports(kernel)
    with RawClient(amqp) as here, RawClient(amqp, virtual_host="prices") as there:
        for client, body in ((here, b"here"), (there, b"there")):
            declare(client, "q")
            client.publish(body, "q")
        assert (get(here, "q"), get(there, "q")) == (b"here", b"there")
        assert sorted(connections(kernel)) == [("broker", "", "/"), ("broker", "broker/second", "prices")]
    with mqtt_client(mqtt) as subscriber:
        subscriber.connect(user_name="prices:guest", password=b"guest")
        subscriber.subscribe("price")
        with RawStomp(stomp) as publisher:
            assert publisher.connect(host="prices").command == "CONNECTED"
            publisher.send("SEND", b"42", destination="/topic/price")
            subscriber.expect_message("price", b"42")
    with mqtt_client(mqtt) as stranger:
        assert stranger.connect(user_name="prices:guest", password=b"wrong").reason_code == 0x86
    handed_over = [event for event in events.all("disconnected", "broker") if "handed over" in event.detail]
    assert len(handed_over) == 3  # a wrong password is refused before
    assert {event.detail for event in handed_over} == {"handed over to broker/second"}


def test_a_client_that_waits_for_no_answer_gets_each_answer_once(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(*THREADS, broker())
    start_ok = connection.StartOk(
        client_properties={}, mechanism="PLAIN", response=plain_response("guest", "guest")
    )
    said = [
        (0, start_ok),
        (0, connection.TuneOk(channel_max=10, frame_max=131072, heartbeat=0)),
        (0, connection.Open(virtual_host="prices")),
        (1, channel.Open()),
        (1, queue.Declare(queue="q")),
        (0, connection.Close(reply_code=200)),
    ]
    octets = PROTOCOL_HEADER + b"".join(frame(METHOD, number, method.encode()) for number, method in said)
    for cut in (len(octets), len(octets) - 40, 200, 8):
        with socket.create_connection(("127.0.0.1", ports(kernel)[0]), timeout=60) as wire:
            wire.sendall(octets[:cut])
            if cut < len(octets):
                answered = wire.recv(65536)
                wire.sendall(octets[cut:])
            else:
                answered = b""
            while data := wire.recv(65536):
                answered += data
        assert names_of(answered) == [*WELCOME, "1 queue.declare-ok q", "0 connection.close-ok"]


@pytest.mark.parametrize("transport", ["tls", "unix"])
def test_other_transports(kernel_factory: KernelFactory, tmp_path: Path, transport: str) -> None:
    authority = trustme.CA()
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    listeners: dict[str, dict[str, Any]] = {
        "tls": {"address": "tls://127.0.0.1:0", "tls": {"certificate": str(tmp_path / "server.pem")}},
        "unix": {"address": f"unix://{tmp_path}/broker"},
    }
    kernel = kernel_factory(*THREADS, broker(listeners=[{"protocol": "amqp", **listeners[transport]}]))
    if transport == "tls":
        context = ssl.create_default_context()
        authority.configure_trust(context)
        plain = socket.create_connection(("127.0.0.1", ports(kernel)[0]), timeout=60)
        wire: socket.socket = context.wrap_socket(plain, server_hostname="localhost")
    else:
        wire = socket.socket(socket.AF_UNIX)
        wire.settimeout(60)
        wire.connect(f"{tmp_path}/broker")
    bodies = [
        bytes([number]) * 100_000 for number in range(50)
    ]  # more than all sockets on the way take at once
    with RawClient(wire=wire, virtual_host="prices") as client:
        declare(client, "q")
        for body in bodies:
            client.publish(body, "q")
        assert [get(client, "q") for _ in bodies] == bodies
        assert connections(kernel) == [("broker", "broker/second", "prices")]
        # Its end passes the first shard as well.
        client.send(connection.Close(reply_code=200), 0)
        while wire.recv(65536):
            pass


def test_what_an_operator_asks_reaches_the_shard_that_it_concerns(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(*THREADS, broker())
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    document = {
        "users": [{"name": "u", "password": "p"}],
        "vhosts": [{"name": "/"}, {"name": "prices"}, {"name": "new"}],
        "permissions": [{"user": "u", "vhost": vhost, **everything} for vhost in ("prices", "new", "none")],
        "queues": [{"name": f"in {vhost}", "vhost": vhost} for vhost in ("/", "prices", "new")],
    }
    done = kernel.operate("broker", "import-definitions", document)
    assert done["counts"] | {"exchanges": 0} == {
        **dict.fromkeys(("topic_permissions", "policies", "global_parameters", "exchanges", "bindings"), 0),
        "users": 1,
        "vhosts": 3,
        "permissions": 2,
        "queues": 3,
    }
    assert len(done["complaints"]) == 1
    assert done["complaints"][0].startswith("$.permissions[2]: ")
    assert sorted((row["engine"], row["vhost"]) for row in kernel.inspect("queues").rows) == [
        ("broker", "/"),
        ("broker", "new"),
        ("broker", "prices"),
    ]
    # Users are in every shard, and are shown once.
    assert [row["name"] for row in kernel.inspect("users").rows] == ["guest", "u"]
    assert {row["vhost"] for row in kernel.inspect("permissions").rows if row["user"] == "u"} == {
        "prices",
        "new",
    }
    place = {"user": "u", "vhost": "prices"}
    declared = kernel.operate("broker", "declare-queue", {**place, "name": "by an operator"})
    assert declared == {"name": "by an operator", "created": True}
    refused = kernel.operate("broker", "declare-queue", {"user": "u", "vhost": "/", "name": "q"})
    assert refused["refused"]["code"] == 403
    tap = kernel.operate("broker", "tap", {"queue": "in prices", "vhost": "prices"})["tap"]
    published = {**place, "envelope": {"key": "in prices"}, "body": "c2Vlbg=="}
    assert kernel.operate("broker", "publish", published) == {"routed": True}
    assert len(kernel.operate("broker", "tap-read", {"tap": tap})["messages"]) == 1
    kernel.operate("broker", "tap-end", {"tap": tap})
    with RawClient(ports(kernel)[0], virtual_host="prices", response=b"\0u\0p") as client:
        name = kernel.inspect("connections").rows[0]["name"]
        assert kernel.operate("broker", "close-connection", name) == {"closed": 1}
        with pytest.raises(AssertionError, match="closed by an operator"):
            client.wait_for(Got)
    with pytest.raises(KernelError, match="there is no connection 'nobody'"):
        kernel.operate("broker", "close-connection", "nobody")
    deleted = kernel.operate("broker", "delete-definitions", {"users": [{"name": "u"}]})
    assert (deleted["counts"]["users"], deleted["complaints"]) == (1, [])
    with pytest.raises((AssertionError, OSError)):
        RawClient(ports(kernel)[0], virtual_host="prices", response=b"\0u\0p")


def test_each_shard_has_what_options_and_store_say_of_its_virtual_hosts(
    kernel_factory: KernelFactory, tmp_path: Path
) -> None:
    plan = broker(
        data_dir=str(tmp_path / "store"),
        queues=[{"name": "here"}, {"name": "there", "vhost": "prices"}],
        policies={"short": {"pattern": "", "definition": {"max-length": 1}, "vhost": "prices"}},
        users={"guest": {"password": "guest"}, "here": {"password": "p", "vhosts": ["/"]}},
    )
    kernel = kernel_factory(*THREADS, plan)
    with RawClient(ports(kernel)[0], virtual_host="prices") as client:
        for body in (b"1", b"2"):
            client.publish(body, "there", properties={"delivery_mode": 2})
        declare(client, "also there", durable=True)
    rows = kernel.inspect("queues").rows
    assert sorted((row["vhost"], row["name"], row["policy"]) for row in rows) == [
        ("/", "here", ""),
        ("prices", "also there", "short"),
        ("prices", "there", "short"),
    ]
    with pytest.raises((AssertionError, OSError)):
        RawClient(ports(kernel)[0], virtual_host="prices", response=b"\0here\0p")
    kernel.close()
    kernel.join()
    assert (tmp_path / "store-second").is_dir()
    kernel = kernel_factory(*THREADS, plan)
    with RawClient(ports(kernel)[0], virtual_host="prices") as client:
        assert get(client, "there") == b"2"


def test_a_shard_that_is_away_takes_no_clients_and_disturbs_no_other(kernel_factory: KernelFactory) -> None:
    events = Events()
    kernel = kernel_factory(*THREADS, broker(), on_event=events)
    kernel._parts.remove_engine("broker/second", 0.0, None)
    amqp = ports(kernel)[0]
    with pytest.raises((AssertionError, OSError)):
        RawClient(amqp, virtual_host="prices")
    assert "there is no engine 'broker/second'" in events.wait("not handed over").detail
    with RawClient(amqp) as client:
        declare(client, "q")


def test_a_client_that_says_too_much_before_its_virtual_host_is_known_stays(
    kernel_factory: KernelFactory,
) -> None:
    kernel = kernel_factory(*THREADS, broker())
    with RawStomp(ports(kernel)[2]) as client:
        client.socket.sendall(b"\n" * (MOST_KEPT + 1))
        client.send("CONNECT", accept_version="1.2", login="guest", passcode="guest", host="prices")
        assert client.next().command == "ERROR"


def test_mistakes(kernel_factory: KernelFactory) -> None:
    for options, complaint in (
        ({"shards": {"none": "second"}}, "'none' is not in vhosts"),
        ({"shards": {"/": "second"}}, "'/' is the virtual host of the routes"),
        (
            {"shards": {"prices": "secund"}},
            "names thread 'secund', which does not exist; did you mean 'second'",
        ),
    ):
        with pytest.raises(PlanError, match=complaint):
            kernel_factory(*THREADS, broker(**options))


@pytest.mark.slow
def test_a_process_that_is_killed_loses_nothing_and_takes_no_other_virtual_host_away(
    kernel_factory: KernelFactory, tmp_path: Path
) -> None:
    events = Events()
    second = ThreadPlan(name="second", kind="process", options={"restart": {"first": 0.01}})
    plan = broker(data_dir=str(tmp_path / "store"))
    kernel = kernel_factory(ThreadPlan(name="first"), second, plan, on_event=events)
    port = ports(kernel)[0]
    sent = 0
    with RawClient(port) as other:
        declare(other, "q")
        for life in range(1, 4):
            with RawClient(port, virtual_host="prices") as client:
                declare(client, "q", durable=True)
                client.send(confirm.Select())
                client.wait_for(MethodReceived)
                for _ in range(100):
                    client.publish(b"%d" % sent, "q", properties={"delivery_mode": 2})
                    client.wait_for(Acknowledged)
                    sent += 1
                keeper = kernel._parts.threads["second"]
                assert isinstance(keeper, ProcessThread)
                os.kill(keeper.pid, signal.SIGKILL)
                with pytest.raises((OSError, AssertionError)):
                    client.wait_for(Got)
            events.wait("running", "broker/second", times=life + 1)
        with RawClient(port, virtual_host="prices") as client:
            assert [get(client, "q") for _ in range(sent)] == [b"%d" % number for number in range(sent)]
        other.publish(b"here all the time", "q")
        assert get(other, "q") == b"here all the time"


def test_a_plan_has_the_shards() -> None:
    text = """
        [threads.second]
        kind = "process"
        [engines.broker]
        kind = "amqp"
        vhosts = ["/", "a", "b"]
        shards = { a = "second", b = "second" }
    """
    plan = plan_of_text(text, PluginRegistry.load())
    assert [(each.name, each.thread) for each in plan.engines] == [
        ("broker", None),
        ("broker/second", "second"),
    ]
