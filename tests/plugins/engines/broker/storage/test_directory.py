"""A directory on a real disk: its lock, its marker, its thread."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from kernel.testing.leaks import open_descriptors
from plugins.engines.broker.broker import Broker
from plugins.engines.broker.storage.files import DirectoryFiles
from plugins.engines.broker.storage.inventory import open_inventory
from plugins.engines.broker.storage.opening import OpenStore
from plugins.engines.broker.storage.recovery import CannotOpen
from plugins.engines.broker.storage.store_options import StoreOptions
from tests.plugins.engines.broker.client import Client, run
from tests.plugins.engines.broker.storage.durable import CODECS
from tests.systems import linux_only


class Opened:
    """A broker on a real directory; this thread is the broker's."""

    def __init__(self, directory: Path, **options: Any) -> None:
        self.posted: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.reports: list[tuple[str, str]] = []
        self.kept = OpenStore(
            directory,
            StoreOptions(**options),
            CODECS,
            now=0.0,
            time_of_day=0.0,
            post=self.posted.put,
            on_done=lambda: None,
            report=lambda what, detail: self.reports.append((what, detail)),
        )
        self.broker = Broker(store=self.kept.store)
        self.kept.restore(self.broker, 0.0)
        self.vhost = self.broker.vhost("/")
        self.client = Client(self.vhost)

    def make_safe(self) -> None:
        self.broker.process(0.0)
        store = self.kept.store
        while store.safe < store.mark:
            self.posted.get(timeout=60)()

    def close(self) -> None:
        self.kept.close(self.broker)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., Opened]]:
    all_opened: list[Opened] = []

    def make(**options: Any) -> Opened:
        all_opened.append(Opened(tmp_path / "data", **options))
        return all_opened[-1]

    yield make
    for one in all_opened:
        one.close()


def test_a_directory_is_for_one_broker_at_a_time(opened: Callable[..., Opened], tmp_path: Path) -> None:
    first = opened()
    with pytest.raises(CannotOpen, match=r"another broker uses this directory \(process [0-9]+\)"):
        opened()
    first.close()
    opened()


def test_a_directory_that_cannot_be_opened_leaves_nothing_open(
    opened: Callable[..., Opened], tmp_path: Path
) -> None:
    in_the_way = tmp_path / "data" / ".marker.new"
    in_the_way.mkdir(parents=True)
    for _ in range(2):
        with pytest.raises(OSError, match="marker"):
            opened()
        assert not [name for name in open_descriptors().values() if name.startswith(str(tmp_path))]
    in_the_way.rmdir()
    opened()


def test_a_fault_while_a_store_is_closed_gives_its_directory_back(
    opened: Callable[..., Opened], tmp_path: Path
) -> None:
    def work() -> Callable[[], None]:
        raise ZeroDivisionError

    broker = Opened(tmp_path / "data")
    broker.kept._writer.submit(work)
    with pytest.raises(ZeroDivisionError):
        broker.close()
    opened()


def test_what_is_safe_is_in_the_file(opened: Callable[..., Opened], tmp_path: Path) -> None:
    first = opened()
    first.vhost.declare_queue("q", None, 0.0, durable=True)
    first.vhost.publish(run(b"a body", b"another", persistent=True), 0.0)
    first.make_safe()
    (path,) = (tmp_path / "data").glob("*.log")
    assert b"a bodyanother" in path.read_bytes()
    first.close()
    second = opened()
    assert second.vhost.queues["q"].backlog.count == 2


@pytest.mark.slow
def test_long_queues_go_through_the_disk(opened: Callable[..., Opened]) -> None:
    broker = opened(queue_bytes=100_000, segment_bytes=1 << 20)
    queue = broker.vhost.declare_queue("q", None, 0.0)
    for number in range(500):
        broker.vhost.publish(run(*[b"%06d" % (number * 10 + at) + bytes(994) for at in range(10)]), 0.0)
        broker.broker.process(0.0)
    broker.kept._writer.wait()
    assert queue.backlog.paged > 2_000_000
    broker.client.consume(queue, auto_ack=True)
    assert [int(body[:6]) for body in broker.client.bodies()] == list(range(5000))


def test_deleted_segments_give_their_disk_back(opened: Callable[..., Opened], tmp_path: Path) -> None:
    broker = opened(queue_bytes=0, segment_bytes=50_000)
    queue = broker.vhost.declare_queue("q", None, 0.0)
    for number in range(100):
        broker.vhost.publish(run(b"%d" % number + bytes(10_000)), 0.0)
        broker.broker.process(0.0)
        broker.kept._writer.wait()
        broker.client.receiver.take_one(queue, 0.0, auto_ack=True)
    held = [name for name in open_descriptors().values() if name.startswith(f"{tmp_path}/data/paged/")]
    assert held
    assert not [name for name in held if name.endswith(" (deleted)")]


def test_the_thread_ends_with_the_store(opened: Callable[..., Opened]) -> None:
    before = set(threading.enumerate())  # those of others may end meanwhile
    one = opened()
    (thread,) = set(threading.enumerate()) - before
    one.close()
    assert not thread.is_alive()


def test_a_damaged_marker_is_found_in_the_segments(opened: Callable[..., Opened], tmp_path: Path) -> None:
    first = opened()
    first.vhost.declare_queue("q", None, 0.0, durable=True)
    first.close()
    path = tmp_path / "data" / "marker"
    octets = bytearray(path.read_bytes())
    octets[3] ^= 8
    path.write_bytes(octets)
    assert "q" in opened().vhost.queues
    path.unlink()
    inventory = open_inventory(DirectoryFiles(tmp_path / "data"), lambda *_: None)
    assert inventory.marker != bytes(octets[:8])


def test_what_is_no_log_is_not_destroyed(opened: Callable[..., Opened], tmp_path: Path) -> None:
    opened().close()
    data = tmp_path / "data"
    (data / "000000000001.log").write_bytes(b"something else that somebody keeps here, by mistake")
    broker = opened()
    assert [what for what, _ in broker.reports] == ["set aside"]
    assert (data / "000000000001.log.unreadable").read_bytes().startswith(b"something else")
    broker.close()
    for number in (1, 2):
        (data / f"00000000000{number}.log").write_bytes(b"something else")
    with pytest.raises(CannotOpen, match="nothing was changed"):
        opened()
    assert (data / "000000000001.log").read_bytes() == b"something else"


@linux_only
def test_what_was_reserved_is_cut_off_at_the_end_or_at_the_next_start(
    opened: Callable[..., Opened], tmp_path: Path
) -> None:
    first = opened()
    first.vhost.declare_queue("q", None, 0.0, durable=True)
    first.vhost.publish(run(b"one", key="q", persistent=True), 0.0)
    first.make_safe()
    data, killed = tmp_path / "data", tmp_path / "killed"
    shutil.copytree(data, killed)
    segment = killed / "000000000001.log"
    octets = segment.read_bytes()
    assert len(octets) > 1 << 20
    assert not any(octets[-(1 << 20) :])
    again = Opened(killed)
    assert again.reports == []
    assert octets.rstrip(b"\0") == segment.read_bytes().rstrip(b"\0")
    assert segment.stat().st_size < 5000
    assert again.client.receiver.take_one(again.vhost.queues["q"], 0.0, auto_ack=True) is not None
    again.close()
    first.close()
    assert (data / segment.name).stat().st_size < 5000


def test_a_segment_with_zeros_only_has_no_say(opened: Callable[..., Opened], tmp_path: Path) -> None:
    first = opened()
    first.vhost.declare_queue("q", None, 0.0, durable=True)
    first.close()
    data = tmp_path / "data"
    (data / "marker").unlink()
    for number in (2, 3):
        (data / f"00000000000{number}.log").write_bytes(bytes(5000))
    again = opened()
    assert "q" in again.vhost.queues


def test_a_disk_that_reserves_nothing_is_written_all_the_same(
    opened: Callable[..., Opened], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", refuse, raising=False)
    first = opened()
    first.vhost.declare_queue("q", None, 0.0, durable=True)
    first.make_safe()
    assert (tmp_path / "data" / "000000000001.log").stat().st_size < 5000
    first.close()
    assert "q" in opened().vhost.queues


@pytest.fixture
def no_descriptors() -> Iterator[Callable[[], None]]:
    """Call it, and the process can open nothing any more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []

    def take_all() -> None:
        highest = max(map(int, os.listdir("/proc/self/fd")))
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
        with suppress(OSError):
            while True:
                taken.append(os.open("/", os.O_RDONLY | os.O_CLOEXEC))

    yield take_all
    for descriptor in taken:
        os.close(descriptor)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_messages_are_read_back_though_the_process_may_open_nothing_more(
    opened: Callable[..., Opened], no_descriptors: Callable[[], None]
) -> None:
    broker = opened(queue_bytes=0, segment_bytes=2000)
    queue = broker.vhost.declare_queue("q", None, 0.0, durable=True, arguments={})
    for number in range(40):
        broker.vhost.publish(run(b"%d" % number + b"x" * 300, persistent=True), 0.0)
        broker.make_safe()
    assert len(list((broker.kept.directory).glob("*.log"))) > 3
    no_descriptors()
    taken = [broker.client.receiver.take_one(queue, 0.0, auto_ack=True) for _ in range(40)]
    assert None not in taken
    assert broker.reports == []
