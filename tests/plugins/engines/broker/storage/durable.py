"""A durable broker in a test's hand: no thread, no clock, a disk in memory."""

from __future__ import annotations

from typing import Any

from plugins.engines.broker.broker import Broker
from plugins.engines.broker.queue import Queue
from plugins.engines.broker.storage.disk_store import DiskStore
from plugins.engines.broker.storage.envelopes import Codecs
from plugins.engines.broker.storage.inventory import Inventory, open_inventory
from plugins.engines.broker.storage.opening import close, restore
from plugins.engines.broker.storage.store_options import StoreOptions
from plugins.engines.broker.virtual_host import VirtualHost
from plugins.protocols.amqp091.stored import StoredProperties
from tests.plugins.engines.broker.client import Client
from tests.plugins.engines.broker.storage.disks import MemoryDisk, StepWriter

MARKER = b"\xd7marker\xe9"
CODECS = Codecs([StoredProperties()])
CLOCK = 1_700_000_000.0


class DurableBroker:
    """A broker on a disk; a virtual host and a client of it."""

    def __init__(
        self,
        disk: MemoryDisk | None = None,
        *,
        at_once: bool = True,
        now: float = 0.0,
        codecs: Codecs | None = None,
        inventory: bool = False,
        **options: Any,
    ) -> None:
        self.disk = disk or MemoryDisk()
        self.overflow = MemoryDisk()
        self.writer = StepWriter(at_once=at_once)
        self.reports: list[tuple[str, str]] = []

        def report(what: str, detail: str) -> None:
            self.reports.append((what, detail))

        self.store = DiskStore(
            self.disk,
            self.overflow,
            self.writer,
            # Without one on its disk, files that a test takes away are not missed.
            open_inventory(self.disk, report) if inventory else Inventory(MemoryDisk(), MARKER),
            StoreOptions(**options),
            CODECS if codecs is None else codecs,
            clock_ahead=CLOCK,
            on_done=lambda: None,
            report=report,
        )
        self.broker = Broker(store=self.store, now=0.0, clock=CLOCK)
        restore(self.store, self.broker, now)
        self.vhost: VirtualHost = self.broker.vhost("/")
        self.client = Client(self.vhost)

    def declare(self, name: str = "q", *, durable: bool = True, **arguments: Any) -> Queue:
        named = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
        return self.vhost.declare_queue(name, None, 0.0, durable=durable, arguments=named)

    def queue(self, name: str = "q") -> Queue:
        return self.vhost.queues[name]

    def process(self, now: float = 0.0) -> None:
        self.broker.process(now)

    def drain(self) -> None:
        """Let the writer do all that it has."""
        self.broker.process(0.0)
        self.writer.wait()

    def take_all(self, name: str = "q", now: float = 0.0) -> list[bytes]:
        """Take and acknowledge all that a queue has, in order."""
        return [body for body, _ in self.take(name, now)]

    def take(self, name: str = "q", now: float = 0.0) -> list[tuple[bytes, bool]]:
        """The same, with whether each is redelivered."""
        bodies: list[tuple[bytes, bool]] = []
        queue = self.queue(name)
        while (taken := self.client.receiver.take_one(queue, now, auto_ack=True)) is not None:
            _, span = taken
            bodies.append((bytes(span.as_batch().bodies[0]), span.redelivered))
        return bodies

    def close(self) -> MemoryDisk:
        """End well."""
        self.client.receiver.recover()
        close(self.store, self.broker)
        return self.disk

    def reopened(self, disk: MemoryDisk | None = None, **options: Any) -> DurableBroker:
        """Return a broker that finds this one's disk as it is now (the process was killed), or another."""
        return DurableBroker(disk or self.disk.after_kill(), **options)
