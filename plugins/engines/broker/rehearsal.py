"""Rehearsal: a broker without listeners and files, whose queues tell what they get."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from kernel.contracts.errors import KernelError
from kernel.contracts.message import Batch
from kernel.contracts.rehearsing import Got, Rehearsal
from plugins.engines.broker.host.options import BrokerOptions

if TYPE_CHECKING:
    from kernel import EnginePlan, Kernel
    from plugins.engines.broker.local.client import BrokerClient

_TIMEOUT = 60.0
_LEFT_OUT = ("data_dir", "disk_watched")


def rehearsal_of(plan: EnginePlan) -> Rehearsal:
    """Return how a broker takes part: with its definitions and policies, and without listeners."""
    kept = set(BrokerOptions.__struct_fields__).difference(_LEFT_OUT)
    options = {name: value for name, value in plan.options.items() if name in kept}
    # Whoever is a user does not matter: the only client is the rehearsal, which may do everything.
    return Rehearsal(plan=msgspec.structs.replace(plan, kind="broker", options=options), enter=_Inside)


class _Inside:
    """A client that publishes what clients have published, and consumes from all queues."""

    def __init__(self, kernel: Kernel, name: str) -> None:
        self._kernel = kernel
        self._name = name
        self._vhost: str = _engine(kernel, name).options.get("vhost", "/")
        self._client: BrokerClient = kernel.open(
            f"clients of {name}", "broker-client", broker=name, vhost=self._vhost
        )
        self._exchanges = {row["name"] for row in self._rows("exchanges") if not row.get("internal")}
        for row in self._rows("queues"):
            # A queue with a consumer is empty, so no limit of it counts.
            self._client.consume(row["name"], tag=row["name"], prefetch=0, auto_ack=True)

    def send(self, batches: Iterable[Batch]) -> None:
        """Publish.  What was published to an exchange that this broker does not have reaches nobody."""
        for batch in batches:
            if batch.envelope.exchange and batch.envelope.exchange not in self._exchanges:
                continue
            bodies = [b"".join(parts) for parts in batch.bodies] if batch.multipart else batch.bodies
            self._client.publish_many(bodies, batch.envelope)
        self._client.wait_confirmed(_TIMEOUT)

    def got(self, *, last: bool) -> Iterator[Got]:
        """Return what the queues have delivered."""
        deadline = time.monotonic() + _TIMEOUT
        while last and (full := [row["name"] for row in self._rows("queues") if row["messages_ready"]]):
            if time.monotonic() > deadline:
                raise KernelError(f"queue {full[0]!r} of {self._name!r} does not deliver what it has")
            yield from self._delivered(0.01)
        yield from self._delivered(0.0)

    def close(self) -> None:
        """Close the client."""
        self._client.close()

    def _delivered(self, timeout: float) -> Iterator[Got]:
        for delivery in self._client.receive_many(timeout):
            yield f"queue {delivery.consumer!r}", delivery.envelope, 1

    def _rows(self, what: str) -> list[dict[str, str]]:
        rows = self._kernel.inspect(what).rows
        return [row for row in rows if row["engine"] == self._name and row["vhost"] == self._vhost]


def _engine(kernel: Kernel, name: str) -> EnginePlan:
    found = kernel.plan.engine(name)
    assert found is not None, name
    return found
