"""Whatever happens to one file of a data folder: all is served, or the broker says which file it was."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kernel.contracts.errors import KernelError
from kernel.contracts.message import Envelope
from plugins.engines.broker.host.definition_forms import (
    Definitions,
    PermissionDefinition,
    UserDefinition,
    VhostDefinition,
)
from plugins.engines.broker.host.engine import BrokerEngine
from plugins.engines.broker.host.options import BrokerOptions
from plugins.engines.broker.host.users_file import UsersFile
from plugins.engines.broker.public import FrontEnd, VirtualHost
from plugins.engines.broker.publishing_ids import PublishingId
from plugins.engines.broker.storage.recovery import CannotOpen
from plugins.engines.mqtt.durable import DescribedSubscription, Description, Descriptions, Received
from plugins.engines.mqtt.front_end import MqttFrontEnd, make_front_end
from plugins.engines.mqtt.options import MqttListenerOptions
from plugins.engines.mqtt.retained import RetainedMessages
from tests.folder_damage import damaged, files_of
from tests.plugins.engines.amqp.still_host import StillHost
from tests.plugins.engines.broker.client import Client, run
from tests.plugins.engines.broker.storage.durable import CODECS
from tests.plugins.engines.broker.storage.test_directory import Opened

NUMBERED = 12
"""The highest publishing id."""
IDS = [3, 4, 9]
"""Packet identifiers that an MQTT client has not released."""
TOPICS = ["a/b", "a/c"]
"""They have retained messages."""


class Served(NamedTuple):
    """What a broker says, and what it has."""

    words: list[str]
    data: dict[str, Any] | None
    """None: it has not started."""


def opened(folder: Path) -> Served:
    """Start a broker on a folder, read everything that it has, and end it."""
    host = StillHost()
    engine = BrokerEngine("broker", BrokerOptions(data_dir=str(folder)), (mqtt,), codecs=lambda: CODECS)
    try:
        engine.start(host)
    except (KernelError, CannotOpen) as refused:
        engine.stop()
        return Served([str(refused)], None)
    data: dict[str, Any] = {"users": sorted(engine.users.accounts)}
    for vhost in engine.broker.vhosts.values():
        client = Client(vhost)
        for name, queue in sorted(vhost.queues.items()):
            bodies = []
            while (taken := client.receiver.take_one(queue, 0.0, auto_ack=False)) is not None:
                bodies.append(bytes(taken[1].as_batch().bodies[0]))
            data[f"{vhost.name}:{name}"] = bodies
        client.receiver.recover()
        data[f"{vhost.name} exchanges"] = sorted(vhost.exchanges)
        data[f"{vhost.name} publishing id"] = last_number(vhost)
        data[f"{vhost.name} mqtt"] = mqtt_data(engine, vhost)
    engine.stop()
    host.process()
    host.release()
    return Served([f"{event.what}: {event.detail}" for event in host.events], data)


def mqtt(engine: BrokerEngine) -> FrontEnd:
    """Return a listener, whose sessions are restored from the folder."""
    return make_front_end(engine, MqttListenerOptions(address="127.0.0.1:0"))


def last_number(vhost: VirtualHost) -> int:
    """Return the highest publishing id that would be taken for a repeated one."""
    known = [
        number
        for number in range(2 * NUMBERED)
        if not vhost.publishing_ids.is_new(PublishingId("numbering", number))
    ]
    return max(known, default=-1)


def mqtt_data(engine: BrokerEngine, vhost: VirtualHost) -> Any:
    """Return the session's subscriptions and packet identifiers, and the retained messages."""
    (front_end,) = engine.front_ends
    assert isinstance(front_end, MqttFrontEnd)
    session = front_end.sessions.find(vhost.name, "lasting")
    found = [front_end.sessions.retained(vhost).find(topic, 0.0) for topic in TOPICS]
    retained = [bytes(each.batch.bodies[0]) for every in found for each in every if each is not None]
    if session is None:
        return None, retained
    return sorted(session.subscriptions), [one for one in IDS if one in session.received], retained


def body(name: str, number: int) -> bytes:
    return b"%s %d " % (name.encode(), number) + b"x" * 300


class MqttClient:
    """What the MQTT front end writes for one client, some of it early and some late, in several segments."""

    def __init__(self, broker: Opened, name: str) -> None:
        self._broker = broker
        self._name = name
        self._descriptions = Descriptions(broker.vhost)
        self._retained = RetainedMessages(broker.vhost, 100)
        self._received = Received(broker.vhost, "lasting", durable=True)
        queue = broker.vhost.declare_queue("mqtt.session.lasting", None, 0.0, durable=True)
        broker.vhost.bind("amq.topic", queue, "a.#")

    def begin(self) -> None:
        """A session without subscriptions, messages of QoS 2, and retained messages."""
        self._describe(100)
        for topic in TOPICS:
            self._retain(topic, b"old " + self._name.encode())
        self._receive(8, *IDS[:2])

    def go_on(self) -> None:
        """A subscription, a message more, one that is released, one that is retained in place of another."""
        wanted = DescribedSubscription(
            "a/#", "a/#", "", 2, no_local=False, retain_as_published=False, identifier=0
        )
        self._describe(0xFFFFFFFF, wanted)
        self._retain(TOPICS[0], body(self._name, 1))
        self._received.discard([8])
        self._receive(*IDS[2:])

    def _describe(self, expiry: int, *subscriptions: DescribedSubscription) -> None:
        self._descriptions.keep(Description("lasting", "amq.topic", expiry, 0.0, subscriptions))

    def _retain(self, topic: str, payload: bytes) -> None:
        envelope = Envelope(key=topic.replace("/", "."), exchange="amq.topic", persistent=True)
        self._retained.keep(topic, payload, envelope, 0.0)

    def _receive(self, *ids: int) -> None:
        for one in ids:
            message = run(body(self._name, one), exchange="amq.topic", key="a.x", persistent=True)
            self._broker.vhost.publish(message, 0.0)
            self._received.add([one], message)
        self._broker.make_safe()


def publish_numbered(broker: Opened, first: int, stop: int) -> None:
    for number in range(first, stop):
        headers = {"x-publisher": "numbering", "x-publishing-id": number}
        message = run(b"%d" % number, exchange="news", key="plain.n", persistent=True, headers=headers)
        broker.vhost.publish(message, 0.0)
        broker.make_safe()


def fill(folder: Path, name: str, killed: Path) -> None:
    """Make a folder of a broker that has done everything: compacted, paged, acknowledged, imported, numbered, MQTT."""
    broker = Opened(folder, segment_bytes=4000, queue_bytes=0)
    vhost = broker.vhost
    vhost.declare_exchange("news", "topic", durable=True)
    for queue in ("plain", "long", "short"):
        vhost.bind("news", vhost.declare_queue(queue, None, 0.0, durable=True), f"{queue}.#")
    paged = vhost.declare_queue("paged", None, 0.0)

    def publish(queue: str, first: int, stop: int) -> None:
        for number in range(first, stop):
            vhost.publish(
                run(body(name + queue, number), exchange="news", key=f"{queue}.a", persistent=True), 0.0
            )
            broker.make_safe()

    mqtt_client = MqttClient(broker, name)
    mqtt_client.begin()
    publish_numbered(broker, 0, 5)
    publish("plain", 0, 3)
    publish("short", 0, 60)
    for _ in range(60):
        broker.client.receiver.take_one(vhost.queues["short"], 0.0, auto_ack=True)
    broker.make_safe()
    publish("long", 0, 30)
    mqtt_client.go_on()
    publish_numbered(broker, 5, NUMBERED + 1)
    publish("short", 60, 140)
    for _ in range(79):
        broker.client.receiver.take_one(vhost.queues["short"], 0.0, auto_ack=True)
    for number in range(20):
        vhost.publish(run(body(name, number), key="paged"), 0.0)
        broker.make_safe()
    broker.kept._writer.wait()
    publish("plain", 3, 110)
    assert broker.kept.store.log.compactor.compacted, "some segments were compacted"
    assert paged.backlog.paged
    UsersFile(folder).add(
        Definitions(
            users=[UserDefinition(f"{name}-user")],
            vhosts=[VhostDefinition("/")],
            permissions=[PermissionDefinition(f"{name}-user", "/", "", "", "")],
        )
    )
    shutil.copytree(folder, killed)
    last = max(killed.glob("*.log"))
    written = last.read_bytes().rstrip(b"\0")
    last.write_bytes(written + bytes(2000))  # fewer reserved zeros, to be quick
    broker.close()


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folders = tmp_path_factory.mktemp("folders")
    for name in ("ours", "theirs"):
        fill(folders / name, name, folders / f"{name} killed")
    return folders


@pytest.mark.slow
@pytest.mark.parametrize("end", ["", " killed"], ids=["closed", "killed"])
def test_nothing_is_lost_silently(folders: Path, tmp_path: Path, end: str) -> None:
    ours, theirs = folders / f"ours{end}", folders / f"theirs{end}"
    assert len([name for name in files_of(ours) if name.endswith(".log")]) >= 6
    whole = opened(Path(shutil.copytree(ours, tmp_path / "whole")))
    assert whole.words == []
    assert whole.data is not None
    assert len(whole.data["/:long"]) == 30
    assert len(whole.data["/:mqtt.session.lasting"]) == 1 + len(IDS)
    assert whole.data["/ publishing id"] == NUMBERED
    assert whole.data["/ mqtt"] == (["a/#"], IDS, [body("ours", 1), b"old ours"])
    silent = []
    for damage in damaged(ours, theirs, tmp_path):
        found = opened(damage.folder)
        if found.data != whole.data and not damage.is_told_in(found.words):
            silent.append(f"{damage}: {found.words}")
        if found.data is None:  # what refuses to start has changed nothing
            for name in files_of(ours):
                if Path(name).name in damage.files:
                    shutil.copy(ours / name, damage.folder / name)
            if opened(damage.folder).data != whole.data:
                silent.append(f"{damage}: mended, it has other things")
        elif opened(damage.folder).data != found.data:
            silent.append(f"{damage}: and the second start finds other things")
    assert not silent, "\n".join(silent)
