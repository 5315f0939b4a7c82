"""``df.write`` and ``df.writeStream`` to a running kernel: each task sends its rows and waits until they are confirmed.

At least once: a task that is tried again sends again, with the same tokens.  The token of a message is its header
``x-deduplication-header``, under which RabbitMQ's plug-in looks for it, too.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from kernel.contracts.errors import TimedOut
from kernel.contracts.message import Envelope, Run
from kernel.topology.plan import EnginePlan, Plan, RoutePlan
from kernel.topology.system import Kernel
from plugins.apis.spark.errors import NotTaken
from plugins.apis.spark.journal_writer import task_context
from plugins.apis.spark.messages import prepare
from plugins.apis.spark.options import WriteOptions
from plugins.protocols.journal_format.envelopes import fields_of

TOKEN = "x-deduplication-header"


@dataclass
class Sent(WriterCommitMessage):
    """What a task tells the driver."""

    messages: int


class BusStreamWriter(DataSourceStreamArrowWriter):
    """Nothing is left for the driver to do: what a task has sent is sent."""

    def __init__(self, options: WriteOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[Any]) -> Sent:
        task = task_context()
        query, epoch = (
            task.getLocalProperty(name) for name in ("sql.streaming.queryId", "streaming.sql.batchId")
        )
        return send(self.options, f"{query}/{epoch}", task.partitionId(), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Have nothing to publish."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Take nothing back: messages cannot be."""


class BusBatchWriter(DataSourceArrowWriter):
    """The same for a batch write, whose tokens begin with the user's token or with chance."""

    def __init__(self, options: WriteOptions) -> None:
        self.options = options
        self.producer = options.token or uuid.uuid4().hex

    def write(self, iterator: Iterator[Any]) -> Sent:
        return send(self.options, self.producer, task_context().partitionId(), iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Have nothing to publish."""

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Take nothing back: messages cannot be."""


def send(options: WriteOptions, producer: str, partition: int, batches: Iterator[Any]) -> Sent:
    """Send rows and wait until the other kernel has confirmed them.  ``NotTaken`` if it does not in time."""
    first = next(batches, None)
    if first is None:
        return Sent(0)
    plan = Plan(
        engines=(
            EnginePlan(name="rows", kind="native"),
            EnginePlan(name="link", kind="stream", options={"address": options.address}),
        ),
        routes=(RoutePlan(source="rows", targets=("link",), confirm=True),),
    )
    rows = 0
    with Kernel(plan) as kernel, kernel.open("rows") as channel:
        try:
            for batch in _all(first, batches):
                place = f"{producer}, partition {partition}"
                runs = runs_of(prepare(batch, place, rows), f"{producer}/{partition}", rows)
                channel.send_runs(runs, timeout=options.patience)
                rows += batch.num_rows
            channel.wait_confirmed(timeout=options.patience)
        except TimedOut as error:
            raise NotTaken(
                f"{options.address} has not confirmed all of {rows} messages within {options.patience:g} seconds: is a kernel "
                "listening there, and does what its routes lead to take messages?"
            ) from error
    return Sent(rows)


def runs_of(prepared: Any, token: str, first: int) -> Iterator[Run]:
    """Yield the messages of a prepared batch, each with its token: ``TOKEN/ROW``."""
    column = prepared.column("envelope")
    envelopes = [Envelope(**fields_of(row)) for row in column.dictionary.to_pylist()]
    bodies = prepared.column("body").to_pylist()
    for row, (number, body) in enumerate(zip(column.indices.to_pylist(), bodies, strict=True), first):
        yield Run([body], len(body), _with_token(envelopes[number], f"{token}/{row}"))


def _with_token(envelope: Envelope, token: str) -> Envelope:
    headers = {**envelope.properties.get("headers", {}), TOKEN: token}
    return msgspec.structs.replace(envelope, properties={**envelope.properties, "headers": headers})


def _all(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from rest
