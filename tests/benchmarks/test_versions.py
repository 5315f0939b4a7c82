"""Rows beside another version of RabbitMQ do not take the place of those that there are."""

from __future__ import annotations

from benchmarks.results import Result, merge, of_rabbitmq


def _row(name: str, peer: str) -> Result:
    return Result(
        name=name,
        ours=2.0,
        peer=1.0,
        peer_name=peer,
        unit="msg/s",
        ratio=2.0,
        bar=">= 1.0",
        runs=[],
        scenario="amqp",
        also={"aio-pika on RabbitMQ": 0.5},
        remarks=["RabbitMQ was busy"],
    )


def test_they_have_names_of_their_own() -> None:
    rows = [_row("a", "pika on RabbitMQ"), _row("b", "the aim: 3")]
    (made,) = of_rabbitmq("4.0.5", rows)
    assert (made.name, made.scenario) == ("a_rabbitmq_4_0_5", "amqp_rabbitmq_4_0_5")
    assert made.peer_name == "pika on RabbitMQ 4.0.5"
    assert made.also == {"aio-pika on RabbitMQ 4.0.5": 0.5}
    assert made.remarks == ["RabbitMQ 4.0.5 was busy"]
    both = merge(merge([], rows, ["a", "b"]), [made], ["a", "b"])
    assert [row["name"] for row in both] == ["a", "b", "a_rabbitmq_4_0_5"]
