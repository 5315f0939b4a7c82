"""Opening: opens a directory, restores a broker from it, and closes it.

The broker that uses the directory has locked ``lock``.  ``marker`` has the octets with which each record
begins, and says which segments there are (``inventory.py``).  ``000000000001.log`` and its successors are the
durable log.  ``paged/`` has the overflow log.  ``clock`` has the time by which messages expire
(``disk_clock.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from kernel.hosting.disk import FileLock, Locked
from plugins.engines.broker.errors import BrokerError
from plugins.engines.broker.storage.definition_records import (
    BindingDefinition,
    Definition,
    ExchangeDefinition,
    QueueDefinition,
    SetDefinition,
)
from plugins.engines.broker.storage.disk_clock import DiskClock
from plugins.engines.broker.storage.disk_store import DiskStore, Report, delivered_ranges
from plugins.engines.broker.storage.envelopes import Codecs
from plugins.engines.broker.storage.files import DirectoryFiles
from plugins.engines.broker.storage.inventory import open_inventory
from plugins.engines.broker.storage.paging import weigh
from plugins.engines.broker.storage.recovery import CannotOpen, Recovery
from plugins.engines.broker.storage.store_options import StoreOptions
from plugins.engines.broker.storage.writer import WriterThread

if TYPE_CHECKING:
    from kernel.hosting.appending import Disk
    from plugins.engines.broker.broker import Broker
    from plugins.engines.broker.virtual_host import VirtualHost


class OpenStore:
    """An open directory: its lock, the writer's thread and the store."""

    def __init__(
        self,
        directory: Path,
        options: StoreOptions,
        codecs: Codecs,
        *,
        now: float,
        time_of_day: float,
        post: Callable[[Callable[[], None]], None],
        on_done: Callable[[], None],
        report: Report,
        disk: Disk | None = None,
    ) -> None:
        """Raises ``CannotOpen`` or ``OSError``.

        ``now``: the time of the broker.  ``disk``: the system calls to write with; None: the usual ones.
        """
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self._closed = False
        # First of all: two brokers that append to the same segment would destroy each other's records.
        lock = _lock(directory)
        # Released in the reverse order: the thread ends before the files are closed that it may use, and the
        # lock comes last, since the next broker may open the directory from then on.
        with ExitStack() as resources:
            resources.callback(lock.release)
            files = DirectoryFiles(directory, disk)
            resources.callback(files.close)
            overflow_files = DirectoryFiles(directory / "paged", disk)
            resources.callback(overflow_files.close)
            inventory = open_inventory(files, report)
            # What was paged out there was transient, and its queues are gone.
            for name in overflow_files.names():
                overflow_files.remove(name)
            self._writer = WriterThread(f"store {directory.name}", post)
            resources.callback(self._writer.close)
            self.clock = DiskClock(directory / "clock", self._writer, now, time_of_day, report, disk)
            self.store = DiskStore(
                files,
                overflow_files,
                self._writer,
                inventory,
                options,
                codecs,
                clock_ahead=self.clock.ahead,
                on_done=on_done,
                report=report,
            )
            self._resources = resources.pop_all()

    def restore(self, broker: Broker, now: float) -> None:
        """Restore a broker from the directory.

        If that fails, the directory is closed and nothing is written to it.
        """
        try:
            restore(self.store, broker, now)
        except BaseException:
            self._release()
            raise

    def close(self, broker: Broker) -> None:
        """Write what is left, and unlock the directory."""
        if not self._closed:
            try:
                broker.finish_clearances()
                close(self.store, broker)
            finally:
                self._release()

    def _release(self) -> None:
        self._closed = True
        self._resources.close()


def restore(store: DiskStore, broker: Broker, now: float) -> None:
    """Read a store's log, and declare in the broker what it has."""
    recovery = Recovery(store.log, store.report)
    recovery.read()
    found = recovery.found
    # Dropped numbers and those of queues without a definition count, too: their records are still in the log,
    # and a new thing with such a number would get them.
    store.begin_numbers(after=max([0, *found.definitions, *found.dropped, *store.log.stored]))
    # In the order of numbers, and so of declaration: bindings come behind the exchanges and queues that they
    # refer to.
    for number, definition in sorted(found.definitions.items()):
        if number in found.dropped:
            continue
        try:
            with store.restoring(number):
                _define(broker.add_vhost(definition.vhost), definition, recovery, now)
        except BrokerError as refusal:
            # For example, the plugin with an exchange type is missing.  It is tried again at the next start,
            # so the definition stays, and so do the messages of a queue.
            store.report("not restored", f"{definition.vhost}: {refusal.text}")
            store.remember(definition)
            if number in store.log.stored:
                # This sets ``live``, without which the messages would be deleted with the first dead
                # segments.
                recovery.backlog_of(store.log.stored[number])
    # What is left: messages of queues whose definition is damaged or was dropped.  Without a queue nobody can
    # ever read them.
    for number in set(store.log.stored) - set(found.definitions) | set(store.log.stored) & found.dropped:
        if number not in found.dropped:
            store.report(
                "lost", f"the definition of queue or set number {number}, and therefore its messages"
            )
        store.log.close_queue(store.log.stored[number])


def close(store: DiskStore, broker: Broker) -> None:
    """Close a store, and note which messages of the broker were delivered before."""
    queues = [queue for vhost in broker.vhosts.values() for queue in vhost.queues.values()]
    store.close(
        one
        for queue in queues
        if queue.stored is not None
        for level in queue.backlog.levels
        for one in delivered_ranges(queue.stored, level)
    )


def _define(vhost: VirtualHost, definition: Definition, recovery: Recovery, now: float) -> None:
    if isinstance(definition, ExchangeDefinition):
        vhost.declare_exchange(
            definition.name,
            definition.type,
            durable=True,
            auto_delete=definition.auto_delete,
            internal=definition.internal,
            arguments=definition.arguments,
        )
    elif isinstance(definition, QueueDefinition):
        _define_queue(vhost, definition, recovery, now)
    elif isinstance(definition, BindingDefinition):
        name = definition.destination
        to = vhost.find_exchange(name) if definition.to_exchange else vhost.find_queue(name, None)
        vhost.bind(definition.source, to, definition.key, definition.arguments)
    elif isinstance(definition, SetDefinition):
        stored_set = vhost.stored_set(definition.name)
        pages, next_number = recovery.backlog_of(stored_set.stored)
        stored_set.restore([page for _, page in pages], max(next_number, definition.next_number))


def _define_queue(vhost: VirtualHost, definition: QueueDefinition, recovery: Recovery, now: float) -> None:
    queue = vhost.make_queue(
        definition.name,
        now,
        durable=True,
        auto_delete=definition.auto_delete,
        arguments=definition.arguments,
    )
    assert queue.stored is not None, "a restored queue is durable"
    pages, next_position = recovery.backlog_of(queue.stored)
    if queue.policy.max_length_bytes is not None:
        # With an estimated size, the queue could drop or refuse messages that are within its limit.
        for _, page in pages:
            page.size = weigh(recovery.log, page)
    queue.restore(pages, max(next_position, definition.next_position))


def _lock(directory: Path) -> FileLock:
    try:
        return FileLock(directory / "lock")
    except Locked as holder:
        raise CannotOpen(
            f"{directory}: another broker uses this directory ({holder}); "
            "stop that one, or give this one a data_dir of its own"
        ) from None
