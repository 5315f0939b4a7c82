"""Phase two of writing to a running kernel: the driver sends the staged rows and waits for confirmations.

Delivery is at least once.  If a driver is killed between the first message and the record of the epoch, Spark
repeats the epoch, and the messages are sent again with the same tokens.  A confirmed epoch is recorded and
not sent again.  The token of a message is its header ``x-deduplication-header``; RabbitMQ's plug-in for
deduplication uses the same header.

Exactly once needs the other kernel's help.  With the option ``deduplicate`` messages also have the two
headers by which a broker drops repeated ones: the producer's name, and a number of epoch and row.  An epoch
is then recorded before it is sent, too, with its files: what Spark makes of a repeated epoch may have its
rows in another order, and so under other numbers.  A journal has no such help to give
(docs/decisions/0016-sparks-sink-to-a-kernel.md).

The driver sends over one connection, in the order of the tasks.  So the order of an epoch's rows is kept.
Each epoch has a kernel and a connection of its own, and a kernel reads its connections in turn, so that the
order between two epochs is not promised.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from kernel import EnginePlan, Kernel, Plan, RoutePlan
from kernel.contracts.engine import EngineEvent
from kernel.contracts.errors import TimedOut
from kernel.contracts.message import Batch, Envelope, batch_of_one
from plugins.apis.spark.errors import NotTaken
from plugins.apis.spark.options import WriteOptions
from plugins.apis.spark.producers import Epoch, last_epoch, note
from plugins.apis.spark.staging import forget_epochs, partition_of, staged
from plugins.protocols.journal_format.envelopes import fields_of

TOKEN = "x-deduplication-header"
PUBLISHER = "x-publisher"
PUBLISHING_ID = "x-publishing-id"
"""The headers by which a broker recognises a repeated message (``engines/broker/publishing_ids.py``)."""
_ROWS = 1 << 32
"""The number of a message is that of its epoch times this, plus that of its row."""


def send_epoch(options: WriteOptions, folder: Path, producer: str, epoch: int, files: Sequence[str]) -> bool:
    """Send the rows of staged files; return False if this epoch, or a later one, has already been confirmed.

    Raises ``NotTaken`` if the other kernel does not confirm them in time, or refuses a message as too large.
    """
    last = last_epoch(folder, producer)
    # Without ``deduplicate`` every record is ``done``.
    if last is not None and not last.done:
        _send(options, _batches(folder, producer, last.epoch, last.files, numbered=True))
        note(folder, producer, Epoch(last.epoch, done=True))
    fresh = last is None or last.epoch < epoch
    if fresh and files:
        if options.deduplicate:
            note(folder, producer, Epoch(epoch, tuple(files)))
        # Recorded when all is confirmed, not before: a lost epoch would be worse than one that comes twice.
        _send(options, _batches(folder, producer, epoch, files, numbered=options.deduplicate))
        note(folder, producer, Epoch(epoch, done=True))
    # After the record: without it the files are needed again.
    forget_epochs(folder, producer, epoch)
    return fresh


def _send(options: WriteOptions, chunks: Iterator[Iterator[Batch]]) -> None:
    plan = Plan(
        engines=(
            EnginePlan(name="rows", kind="native"),
            EnginePlan(name="link", kind="stream", options={"address": options.address}),
        ),
        routes=(RoutePlan(source="rows", targets=("link",), confirm=True),),
    )
    refused: list[str] = []

    # Called by the thread of the link.  An append to a list is atomic.
    def note_refused(event: EngineEvent) -> None:
        if event.what == "refused":
            refused.append(event.detail)

    with Kernel(plan) as kernel, kernel.open("rows") as channel:
        kernel.events.append(note_refused)
        # The time limit is for each batch and for the end, not for the whole: a large epoch may take longer,
        # as long as the other kernel takes messages.
        try:
            for batches in chunks:
                channel.send_batches(batches, timeout=options.timeout)
            channel.wait_confirmed(timeout=options.timeout)
        except TimedOut as error:
            raise NotTaken(
                f"{options.address} has not confirmed all messages within {options.timeout:g} seconds: is a "
                "kernel listening there, and do its routes lead to engines that take messages? The option "
                "timeout sets the limit"
            ) from error
        # A refused message counts as confirmed, so that ``wait_confirmed`` does not report it.
        if refused:
            # With ``deduplicate`` the staged rows are sent again, whatever the query makes
            # of it the next time.
            instead = "begin with another checkpoint" if options.deduplicate else "leave these rows out"
            raise NotTaken(
                f"{options.address} does not accept all messages: {refused[0]}; make that kernel accept them, "
                f"or {instead}"
            )


def _batches(
    folder: Path, producer: str, epoch: int, files: Sequence[str], *, numbered: bool
) -> Iterator[Iterator[Batch]]:
    """Yield the messages of each staged batch.  Tokens are equal whenever Spark repeats the epoch.

    A token has the partition's number, not the file's name, which is another one for each attempt.
    ``numbered``: messages have publishing ids.
    """
    number = epoch * _ROWS
    for name in files:
        row = 0
        for chunk in staged(folder, producer, name):
            batches = batches_of(chunk, f"{producer}/{epoch}/{partition_of(name)}", row)
            yield _numbered(batches, producer, number) if numbered else batches
            row += chunk.num_rows
            number += chunk.num_rows


def _numbered(batches: Iterator[Batch], publisher: str, first: int) -> Iterator[Batch]:
    """Add publishing ids to messages; each is a batch, with headers of its own."""
    for number, batch in enumerate(batches, first):
        batch.envelope.properties["headers"].update({PUBLISHER: publisher, PUBLISHING_ID: number})
        yield batch


def batches_of(prepared: Any, token: str, first: int) -> Iterator[Batch]:
    """Yield the messages of a prepared batch, each with its token: ``TOKEN/ROW``."""
    # Fields are converted once for each different envelope.  But every message needs an envelope object of
    # its own in the end, as each has another token, so that messages of this sink are never batched.
    column = prepared.column("envelope")
    envelopes = [Envelope(**fields_of(row)) for row in column.dictionary.to_pylist()]
    bodies = prepared.column("body").to_pylist()
    for row, (number, body) in enumerate(zip(column.indices.to_pylist(), bodies, strict=True), first):
        yield batch_of_one(body, _with_token(envelopes[number], f"{token}/{row}"))


def _with_token(envelope: Envelope, token: str) -> Envelope:
    # Copies of both dictionaries: other rows have the same envelope.
    headers = {**envelope.properties.get("headers", {}), TOKEN: token}
    return msgspec.structs.replace(envelope, properties={**envelope.properties, "headers": headers})
