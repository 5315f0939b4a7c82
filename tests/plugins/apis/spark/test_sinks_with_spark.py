"""Writing with Spark itself: into journals, and to a running kernel."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernel import EnginePlan, Kernel, Plan, RoutePlan
from plugins.apis.spark.bus_writer import TOKEN
from plugins.protocols.journal_format.reader import JournalReader
from tests.plugins.apis.spark.journals import Journal

pytestmark = pytest.mark.slow


def _bodies(journal: Path) -> list[bytes]:
    return [
        bytes(value.as_py())
        for batch in JournalReader(journal).record_batches(columns=["body"])
        for value in batch.column(0)
    ]


def _copy(spark: Any, source: Journal, target: Path, checkpoint: Path) -> Any:
    """Stream all that is there from one journal into another, in micro-batches of 10; return the query."""
    query = (
        spark.readStream.format("kernel")
        .option("maxOffsetsPerTrigger", 10)
        .load(str(source))
        .select("key", "body", "headers")
        .writeStream.format("kernel")
        .queryName("copy")
        .option("path", str(target))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.name == "copy"
    query.awaitTermination()
    return query


def test_a_stream_into_a_journal_is_exactly_once_also_when_spark_forgets_its_last_commit(
    spark: Any, journal: Journal, tmp_path: Path
) -> None:
    journal.numbers(25)
    target, checkpoint = tmp_path / "target", tmp_path / "checkpoint"
    progress = _copy(spark, journal, target, checkpoint).recentProgress
    assert _bodies(target) == [b"%d" % number for number in range(25)]
    behind = [json.loads(each.sources[0].latestOffset)["unread"] for each in progress if each.numInputRows]
    assert behind == [15, 5, 0]
    assert [each.sink.numOutputRows for each in progress if each.numInputRows] == [10, 10, 5]
    (checkpoint / "commits" / "2").unlink()  # killed between our commit and Spark's
    journal.numbers(5)
    _copy(spark, journal, target, checkpoint)
    assert _bodies(target) == [b"%d" % number for number in range(30)]
    assert list((target / "staged").rglob("*.arrows")) == []


def test_a_batch_write_appends_and_with_a_token_only_once(spark: Any, tmp_path: Path) -> None:
    rows = spark.range(100).repartition(3).selectExpr("cast(id as string) as body", "'n' as key")
    target = tmp_path / "target"
    for _ in range(2):
        rows.write.format("kernel").mode("append").option("token", "load 1").save(str(target))
    assert sorted(map(int, _bodies(target))) == list(range(100))
    rows.write.format("kernel").mode("append").save(str(target))
    assert len(_bodies(target)) == 200


def test_a_row_that_cannot_be_a_message_stops_the_write_by_its_number(spark: Any, tmp_path: Path) -> None:
    rows = spark.range(100).coalesce(1).selectExpr("if(id = 41, null, cast(id as string)) as body")
    with pytest.raises(Exception, match="row 41: body is null"):
        rows.write.format("kernel").mode("append").save(str(tmp_path / "target"))
    assert _bodies(tmp_path / "target") == []


@pytest.fixture
def listener() -> Iterator[tuple[str, Any]]:
    """A running kernel: the address that it listens at, and the channel where messages come out."""
    plan = Plan(
        engines=(
            EnginePlan(
                name="in", kind="stream", options={"mode": "listen", "address": "backend+tcp://127.0.0.1:0"}
            ),
            EnginePlan(name="out", kind="native"),
        ),
        routes=(RoutePlan(source="in", targets=("out",)),),
    )
    with Kernel(plan) as kernel, kernel.open("out") as channel:
        kernel.wait_running()
        yield f"backend+tcp://{kernel.address_of('in')}", channel


def test_rows_reach_a_running_kernel_once_and_each_with_its_token(
    spark: Any, listener: tuple[str, Any], tmp_path: Path
) -> None:
    address, channel = listener
    rows = (
        spark.range(50)
        .repartition(2)
        .selectExpr("cast(id as string) as body", "concat('n.', id) as key", "'{\"h\":1}' as headers")
    )
    writer = rows.write.format("kernel").mode("append").option("address", address)
    for _ in range(2):
        writer.option("token", "t").option("staging", str(tmp_path)).save()
    messages = [channel.receive_message(timeout=60) for _ in range(50)]
    assert sorted((int(bytes(m.body)), m.key) for m in messages) == [(n, f"n.{n}") for n in range(50)]
    tokens = {m.envelope.properties["headers"][TOKEN] for m in messages}
    assert len(tokens) == 50
    assert all(token.startswith("t/") for token in tokens)
    assert all(m.envelope.properties["headers"]["h"] == 1 for m in messages)
    spark.createDataFrame([("last",)], "body string").write.format("kernel").mode("append").option(
        "address", address
    ).save()
    assert channel.receive_message(timeout=60).body == b"last", "the second write has sent nothing"


def test_a_stream_to_a_running_kernel_is_not_sent_again_when_spark_forgets_its_last_commit(
    spark: Any, journal: Journal, listener: tuple[str, Any], tmp_path: Path
) -> None:
    address, channel = listener
    checkpoint = tmp_path / "checkpoint"

    def send() -> None:
        query = (
            spark.readStream.format("kernel")
            .option("maxOffsetsPerTrigger", 10)
            .option("rowsPerTask", 4)
            .schema("key string, body binary")
            .load(str(journal))
            .writeStream.format("kernel")
            .option("address", address)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    journal.numbers(25)
    send()
    (checkpoint / "commits" / "2").unlink()  # killed between our note and Spark's
    journal.numbers(5)
    send()
    bodies = [bytes(channel.receive_message(timeout=60).body) for _ in range(30)]
    # each micro-batch has a connection of its own, and the other kernel reads its connections in turn
    assert sorted(map(int, bodies)) == list(range(30))
    assert bodies[:10] == [b"%d" % number for number in range(10)]
    assert list((checkpoint / "kernel").rglob("*.arrows")) == []


def test_a_write_with_a_token_reaches_a_broker_once(spark: Any) -> None:
    listening = {"mode": "listen", "address": "backend+tcp://127.0.0.1:0"}
    plan = Plan(
        engines=(
            EnginePlan(name="in", kind="stream", options=listening),
            EnginePlan(name="broker", kind="broker"),
            EnginePlan(name="mine", kind="broker-client", options={"broker": "broker"}),
        ),
        routes=(RoutePlan(source="in", targets=("broker",), confirm=True),),
    )
    rows = spark.range(50).repartition(2).selectExpr("cast(id as string) as body", "'rows' as key")
    with Kernel(plan) as kernel, kernel.open("mine", "broker-client") as client:
        kernel.wait_running()
        client.declare_queue("rows")
        writer = rows.write.format("kernel").mode("append").option("token", "load 1")
        writer = writer.option("address", f"backend+tcp://{kernel.address_of('in')}")
        for _ in range(2):
            writer.option("deduplicate", True).save()
        assert client.declare_queue("rows").messages == 50


def test_a_kernel_that_is_not_there_is_named(spark: Any) -> None:
    rows = spark.range(1).selectExpr("cast(id as string) as body")
    writer = rows.write.format("kernel").mode("append").option("address", "backend+tcp://127.0.0.1:9")
    with pytest.raises(
        Exception, match=r"127\.0\.0\.1:9 has not confirmed all messages .* is a kernel listening there"
    ):
        writer.option("timeout", "0.5").save()
