"""Whatever happens to one file of a data folder: all is served, or the broker says which file it was."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kernel.contracts.errors import KernelError
from plugins.engines.broker.host.definition_forms import (
    Definitions,
    PermissionDefinition,
    UserDefinition,
    VhostDefinition,
)
from plugins.engines.broker.host.engine import BrokerEngine
from plugins.engines.broker.host.options import BrokerOptions
from plugins.engines.broker.host.users_file import UsersFile
from plugins.engines.broker.storage.recovery import CannotOpen
from tests.folder_damage import damaged, files_of
from tests.plugins.engines.amqp.still_host import StillHost
from tests.plugins.engines.broker.client import Client, run
from tests.plugins.engines.broker.storage.durable import CODECS
from tests.plugins.engines.broker.storage.test_directory import Opened


class Served(NamedTuple):
    """What a broker says, and what it has."""

    words: list[str]
    data: dict[str, Any] | None
    """None: it has not started."""


def opened(folder: Path) -> Served:
    """Start a broker on a folder, read everything that it has, and end it."""
    host = StillHost()
    engine = BrokerEngine("broker", BrokerOptions(data_dir=str(folder)), codecs=CODECS)
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
    engine.stop()
    return Served([f"{event.what}: {event.detail}" for event in host.events], data)


def body(name: str, number: int) -> bytes:
    return b"%s %d " % (name.encode(), number) + b"x" * 300


def fill(folder: Path, name: str, killed: Path) -> None:
    """Make a folder of a broker that has done everything: compacted, paged, acknowledged, imported."""
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

    publish("plain", 0, 3)
    publish("short", 0, 60)
    for _ in range(60):
        broker.client.receiver.take_one(vhost.queues["short"], 0.0, auto_ack=True)
    broker.make_safe()
    publish("long", 0, 30)
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
    last.write_bytes(last.read_bytes()[: -(1 << 20)] + bytes(2000))  # fewer reserved zeros, to be quick
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
