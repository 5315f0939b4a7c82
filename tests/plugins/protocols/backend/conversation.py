"""Conversations for tests: opened pairs, and what was received as plain values."""

from __future__ import annotations

from typing import Any

from kernel.contracts.message import Batch
from kernel.contracts.mixed_batch import EnvelopesByKey, all_divided
from plugins.protocols.backend.connection import BackendConnection
from plugins.protocols.backend.options import BackendOptions


class Questions:
    """Notes which SYNC and SYNCED frames have come, as the host of a conversation does."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []
        self.answered: list[int] = []

    def ask(self, number: int, hops: int) -> None:
        self.asked.append((number, hops))


def make(side: str = "server", questions: Questions | None = None, **options: Any) -> BackendConnection:
    """A conversation whose clock stands at 0, and whose host takes part in SYNC."""
    connection = BackendConnection(BackendOptions(**options), side)
    questions = questions or Questions()
    connection.offer_sync(questions.ask, questions.answered.append)
    connection.handle_timeout(0.0)
    return connection


def sent(connection: BackendConnection) -> bytes:
    """What is to be written."""
    return b"".join(connection.data_to_send())


def exchange(one: BackendConnection, other: BackendConnection, now: float = 0.0) -> list[Batch]:
    """Carry bytes both ways until there are no more; return what ``other`` received."""
    received: list[Batch] = []
    while True:
        there, back = sent(one), sent(other)
        if not there and not back:
            return received
        if there:
            received += other.receive_data(there, now)
        if back:
            one.receive_data(back, now)


def opened(**options: Any) -> tuple[BackendConnection, BackendConnection]:
    """A dialler and a listener that have greeted each other."""
    client, server = make("client", **options), make("server", **options)
    exchange(client, server)
    assert client.ready_to_send()
    assert server.ready_to_send()
    return client, server


def opened_to(connection: BackendConnection) -> BackendConnection:
    """Greet a listener as a kernel does; return the dialler."""
    client = make("client")
    exchange(client, connection)
    return client


def plain(batches: list[Batch]) -> list[tuple[Any, str]]:
    """Bodies and keys, run borders left out."""
    by_key = EnvelopesByKey()
    return [
        (_body(body), batch.envelope.key) for batch in all_divided(batches, by_key) for body in batch.bodies
    ]


def _body(body: Any) -> Any:
    return tuple(map(bytes, body)) if isinstance(body, tuple) else bytes(body)
