"""Disk store: the broker's store in a directory.

There are two logs.  The durable log has what must survive a restart, and is synced group by group.  The
overflow log has messages that need not survive and for which there is no room in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from kernel.contracts.message import Envelope
from plugins.engines.broker.errors import PreconditionFailed
from plugins.engines.broker.exchange import Exchange
from plugins.engines.broker.paged import Paged
from plugins.engines.broker.span import Span
from plugins.engines.broker.storage.definition_records import (
    BindingDefinition,
    Definition,
    ExchangeDefinition,
    QueueDefinition,
    SetDefinition,
    encode_definition,
    encode_number,
    encode_ranges,
)
from plugins.engines.broker.storage.envelopes import Codecs
from plugins.engines.broker.storage.files import Files
from plugins.engines.broker.storage.framing import Kind
from plugins.engines.broker.storage.inventory import Inventory
from plugins.engines.broker.storage.log import Log
from plugins.engines.broker.storage.page import Page
from plugins.engines.broker.storage.paging import look, page_out, read_kept, read_page, weigh, will_read
from plugins.engines.broker.storage.sharing import share_memory
from plugins.engines.broker.storage.store_options import StoreOptions
from plugins.engines.broker.storage.stored_queue import StoredQueue
from plugins.engines.broker.storage.values import CannotStore, encode_value
from plugins.engines.broker.storage.writer import Writer

if TYPE_CHECKING:
    from plugins.engines.broker.arguments import QueuePolicy
    from plugins.engines.broker.binding import Binding
    from plugins.engines.broker.queue import Queue
    from plugins.engines.broker.stored_set import KeptMessage, StoredSet

Report = Callable[[str, str], None]


class DiskStore:
    """The store of one directory; see ``Store`` for the contract.  Called by the broker's thread."""

    def __init__(
        self,
        files: Files,
        overflow_files: Files,
        writer: Writer,
        inventory: Inventory,
        options: StoreOptions,
        codecs: Codecs,
        *,
        clock_ahead: float,
        on_done: Callable[[], None],
        report: Report,
    ) -> None:
        """``on_done`` is called after each group, after the callbacks of ``when_safe``."""
        self.options = options
        self._codecs = codecs
        self.definition_version = 0
        self.clock_ahead = clock_ahead
        self.report = report
        self._on_done = on_done
        self._writer = writer
        self._definitions: dict[int, Definition] = {}
        # By exchange, queue, set, or identity of a binding: the number of its definition.  Numbers are never
        # used again, because a DROP record counts for all records of its number, wherever they are.
        self._numbers: dict[object, int] = {}
        self.queues: dict[int, Queue] = {}
        """Durable queues by number."""
        self._sets: dict[int, StoredSet] = {}
        self._next_number = 1
        # A dictionary and not a list: the same session may wait for several groups, and is called once.
        self._waiting: dict[Callable[[], None], None] = {}
        self._over: dict[Queue, None] = {}
        self._page_out_due = False
        self._excess = 0
        self._restoring: int | None = None
        self.log = self._make_log(files, inventory, clock_ahead, sync=options.fsync, durable=True)
        self.overflow = self._make_log(overflow_files, inventory, clock_ahead, sync=False, durable=False)

    def _make_log(
        self, files: Files, inventory: Inventory, clock_ahead: float, *, sync: bool, durable: bool
    ) -> Log:
        return Log(
            files,
            self._writer,
            inventory.marker,
            self._codecs,
            inventory=inventory if durable else None,
            sync=sync,
            segment_bytes=self.options.segment_bytes,
            clock_ahead=clock_ahead,
            preamble=self._preamble if durable else tuple,
            on_done=self._on_safe if durable else self._on_overflow_written,
            report=self.report,
        )

    # Definitions

    def check_arguments(self, arguments: Mapping[str, Any]) -> None:
        try:
            encode_value(arguments)
        except CannotStore as problem:
            raise PreconditionFailed(f"arguments cannot be stored: {problem}") from None

    def keep_exchange(self, vhost: str, exchange: Exchange) -> None:
        number = self._number_of(exchange)
        self._define(
            ExchangeDefinition(
                number,
                vhost,
                exchange.name,
                exchange.kind,
                exchange.auto_delete,
                exchange.internal,
                exchange.arguments,
            )
        )

    def drop_exchange(self, exchange: Exchange) -> None:
        self._drop(exchange)

    def keep_queue(self, queue: Queue) -> None:
        number = self._number_of(queue)
        # During a restore, recovery has opened it already, with the messages that it found.
        queue.stored = self.log.stored.get(number) or self.log.open_queue(number)
        self.queues[number] = queue
        self._define(self._definition_of(queue, number))

    def drop_queue(self, queue: Queue) -> None:
        if queue.overflow is not None:
            self.overflow.close_queue(queue.overflow)
            self.overflow.forget_dead()  # nothing is written now, so no group would do this later
            queue.overflow = None
        if queue.stored is not None:
            self.queues.pop(queue.stored.number, None)
            self.log.close_queue(queue.stored)
            queue.stored = None
            # The DROP record says that all messages of the queue are gone, so they are not
            # acknowledged one by one.
            self._drop(queue)

    def number_of(self, queue: Queue) -> int:
        return 0 if queue.stored is None else int(queue.stored.number)

    def keep_binding(self, vhost: str, binding: Binding) -> None:
        to = binding.destination
        to_exchange = isinstance(to, Exchange)
        # A binding to a transient queue ends with that queue.
        if not to_exchange and to not in self._numbers:
            return
        number = self._number_of(binding.identity)
        source, key, arguments = binding.source.name, binding.key, binding.arguments
        self._define(BindingDefinition(number, vhost, source, to.name, to_exchange, key, arguments))

    def drop_binding(self, binding: Binding) -> None:
        self._drop(binding.identity)

    def keep_set(self, stored_set: StoredSet) -> None:
        number = self._number_of(stored_set)
        # As for a queue: recovery may have opened it.
        stored_set.stored = self.log.stored.get(number) or self.log.open_queue(number)
        self._sets[number] = stored_set
        self._define(_definition_of_set(stored_set, number))

    def drop_set(self, stored_set: StoredSet) -> None:
        del self._sets[stored_set.stored.number]
        self.log.close_queue(stored_set.stored)
        stored_set.stored = None
        self._drop(stored_set)

    @contextmanager
    def restoring(self, number: int) -> Iterator[None]:
        """While this lasts, definitions get this number.

        They are on disk already and are not written again.
        """
        self._restoring = number
        try:
            yield
        finally:
            self._restoring = None

    def remember(self, definition: Definition) -> None:
        """Keep a definition that could not be restored, so that it is written into new segments."""
        self._definitions[definition.number] = definition

    def begin_numbers(self, after: int) -> None:
        """Number new definitions from ``after`` + 1 on: no record has these numbers."""
        self._next_number = max(self._next_number, after + 1)

    def _number_of(self, thing: object) -> int:
        if self._restoring is not None:
            number = self._restoring
        else:
            number = self._next_number
            self._next_number += 1
        self._numbers[thing] = number
        return number

    def _define(self, definition: Definition) -> None:
        self._definitions[definition.number] = definition
        if self._restoring is None:
            self.definition_version += 1
            self.log.note(Kind.DEFINITION, encode_definition(definition))

    def _drop(self, thing: object) -> None:
        number = self._numbers.pop(thing, None)
        if number is not None and self._definitions.pop(number, None) is not None:
            self.definition_version += 1
            self.log.note(Kind.DROP, encode_number(number))

    def _definition_of(self, queue: Queue, number: int) -> QueueDefinition:
        vhost, position = queue.vhost.name, queue.next_position
        return QueueDefinition(number, vhost, queue.name, queue.auto_delete, position, queue.arguments)

    def _preamble(self) -> Iterator[tuple[Kind, bytes]]:
        for number, definition in self._definitions.items():
            if number in self.queues:
                # With the present ``next_position``: when the segments with the last messages are deleted,
                # only this says which positions were used.  A position that was used twice would be
                # acknowledged from the beginning.
                definition = self._definition_of(self.queues[number], number)
            elif number in self._sets:
                definition = _definition_of_set(self._sets[number], number)
            yield Kind.DEFINITION, encode_definition(definition)

    # Messages

    def check_envelope(self, envelope: Envelope) -> None:
        try:
            self.log.envelopes.check(envelope)
        except CannotStore as problem:
            raise PreconditionFailed(
                f"a message with key {envelope.key!r:.80} cannot be stored: {problem}"
            ) from None

    def keep_messages(self, queue: Queue, span: Span) -> None:
        if queue.stored is not None:
            self.log.keep(queue.stored, span)

    def drop_messages(self, queue: Queue, item: Span | Paged) -> None:
        if isinstance(item, Page):
            item.detach()
            log = self._log_of(item.stored)
            for first, stop in item.ranges:
                log.acknowledge(item.stored, first, stop)
        elif isinstance(item, Span) and item.location is not None:
            # The queue may have been deleted, and its log with it.
            stored = queue.stored if item.location.durable else queue.overflow
            if stored is not None:
                self._log_of(stored).acknowledge(stored, item.base + item.start, item.base + item.stop)

    def keep_in_set(self, stored_set: StoredSet, span: Span) -> None:
        if stored_set.stored is not None:
            self.log.keep_whole(stored_set.stored, span)

    def drop_from_set(self, stored_set: StoredSet, first: int, stop: int) -> None:
        stored = stored_set.stored
        if stored is not None:
            # What is live, and not all from ``first`` to ``stop``: a number that has no message yet must not
            # be acknowledged.
            for low, high in stored.live.within(first, stop):
                self.log.acknowledge(stored, low, high)

    def numbers_of_set(self, stored_set: StoredSet) -> list[tuple[int, int]]:
        return stored_set.stored.live.ranges() if stored_set.stored is not None else []

    def read_set(self, page: Paged) -> list[KeptMessage]:
        assert isinstance(page, Page), "what a set has on disk was restored by this store"
        return read_kept(self.log, page)

    def most_resident(self, policy: QueuePolicy) -> int:
        return self.options.lazy_bytes if policy.lazy else self.options.queue_bytes

    def weigh(self, queue: Queue) -> None:
        backlog = queue.backlog
        for level in backlog.levels:
            for item in level:
                # Recovery reads no bodies, so the size of what it has found is an estimate.
                if isinstance(item, Page) and item.stored.durable:
                    difference = weigh(self.log, item) - item.size
                    item.size += difference
                    backlog.size += difference
                    backlog.paged += difference

    def page_out(self, queue: Queue) -> None:
        # Only noted here: the broker calls this in the middle of a publish.  The tail is written at the end
        # of the turn, in ``flush``, for all that the turn has brought.
        if queue not in self._over:
            self._over[queue] = None
            self._page_out_due = True

    def share_memory(self, queues: Collection[Queue]) -> None:
        if self.options.all_queues_bytes:
            share_memory(queues, self.options.all_queues_bytes, self)

    def read(self, page: Paged, following: Span | Paged | None) -> list[Span]:
        assert isinstance(page, Page), "what is paged out was paged out by this store"
        if isinstance(following, Page):
            will_read(self._log_of(following.stored), following)
        return read_page(self._log_of(page.stored), page)

    def look(self, page: Paged) -> list[Span]:
        assert isinstance(page, Page), "what is paged out was paged out by this store"
        return look(self._log_of(page.stored), page)

    def _log_of(self, stored: StoredQueue) -> Log:
        return self.log if stored.durable else self.overflow

    def _page_out(self) -> None:
        self._page_out_due = False
        for queue in list(self._over):
            # It stays in ``_over`` while its tail waits for a write.  Pages can replace the tail only when
            # the log knows where it is.
            if queue.deleted or not page_out(queue, partial(self._write, queue)):
                del self._over[queue]
        self._look_at_memory()

    def _look_at_memory(self) -> None:
        """Add up the octets by which queues exceed their limits.  They are being written to disk."""
        self._excess = sum(
            max(0, queue.backlog.size - queue.backlog.paged - queue.most_resident) for queue in self._over
        )

    def _write(self, queue: Queue, span: Span) -> None:
        if span.location is not None:
            stored = queue.stored if span.location.durable else queue.overflow
            # The compactor has moved the messages while a client had them, and the span does not know where
            # to.  The message is stored a second time; the last copy counts.
            self._log_of(stored).keep(stored, span)
            return
        if queue.overflow is None:
            # Transient messages, and those of transient queues.  Most queues never need it.
            queue.overflow = self.overflow.open_queue(self._next_number)
            self._next_number += 1
        self.overflow.keep(queue.overflow, span)

    # Time

    @property
    def safe(self) -> int:
        return self.log.safe

    @property
    def mark(self) -> int:
        return self.log.mark

    def demand(self) -> int:
        return self.log.demand()

    @property
    def full(self) -> bool:
        # The larger of the two, and not the sum: the messages of a tail that is being written count in both.
        waiting = max(self.log.waiting_bytes + self.overflow.waiting_bytes, self._excess)
        return waiting > self.options.most_waiting_bytes

    def when_safe(self, callback: Callable[[], None]) -> None:
        self._waiting[callback] = None

    def flush(self) -> None:
        # Before the logs' ``flush``, so that the tails go with the same group.
        if self._page_out_due:
            self._page_out()
        elif self._over:
            self._look_at_memory()
        self.log.flush()
        self.overflow.flush()

    def _on_safe(self) -> None:
        # A callback may call ``when_safe`` again, for the next group.
        waiting, self._waiting = self._waiting, {}
        for callback in waiting:
            callback()
        self._on_overflow_written()

    def _on_overflow_written(self) -> None:
        if self._over:
            self._page_out()
            self.overflow.flush()
        self._on_done()

    # The end

    def close(self, delivered: Iterable[tuple[int, int, int]]) -> None:
        """Write what is left, and which messages had been delivered.

        ``delivered`` has (queue, first, stop).
        """
        # The broker has ended; its callbacks must not run while the last groups are written.
        self._on_done = _nothing
        self._waiting.clear()
        self._over.clear()
        self.log.close(encode_ranges(delivered))
        self.overflow.close(None)

    def statistics(self) -> dict[str, Any]:
        """Return the present counters.  Called from any thread."""
        log, overflow = self.log, self.overflow
        return {
            "bytes": log.bytes_on_disk(),
            "segments": len(log.segments),
            "waiting_bytes": log.waiting_bytes,
            "groups": log.safe,
            "fsyncs": log.counters.syncs,
            "last_fsync_seconds": round(log.counters.last_sync_seconds, 6),
            "cleaned_segments": log.compactor.compacted,
            "damaged_records": len(log.counters.damaged) + len(overflow.counters.damaged),
            "lost_messages": log.counters.lost_messages + overflow.counters.lost_messages,
            "write_failures": log.counters.write_failures + overflow.counters.write_failures,
            "last_error": log.counters.last_error or overflow.counters.last_error,
            "scratch_bytes": overflow.bytes_on_disk(),
        }


def _nothing() -> None:
    """After ``close`` nobody is called."""


def _definition_of_set(stored_set: StoredSet, number: int) -> SetDefinition:
    return SetDefinition(number, stored_set.vhost.name, stored_set.name, stored_set.noted)


def delivered_ranges(stored: StoredQueue, items: Iterable[Span | Paged]) -> Iterator[tuple[int, int, int]]:
    """Return (queue, first, stop) for the messages of a backlog that were delivered before."""
    for item in items:
        # ``redelivered`` on a waiting message says that a client has had it.
        if not item.redelivered:
            continue
        if isinstance(item, Page):
            if item.stored is stored:
                yield from ((stored.number, first, stop) for first, stop in item.ranges)
        elif isinstance(item, Span) and item.location is not None and item.location.durable is stored.durable:
            yield stored.number, item.first, item.base + item.stop
