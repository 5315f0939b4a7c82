"""Reply stamp: a port that puts its own name into ``reply_to`` of each message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from kernel.contracts.engine import Port
from kernel.contracts.message import Batch, Envelope


class ReplyStamp:
    """Wraps a port; only ``send`` is different."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self._last: Envelope | None = None
        self._stamped: Envelope | None = None

    def send(self, batches: Sequence[Batch]) -> bool:
        """Route batches, each with this port's name in its envelope."""
        return self._port.send([self._stamp(batch) for batch in batches])

    def _stamp(self, batch: Batch) -> Batch:
        # Batches of one flow share their envelope object.  So they share the stamped one, too, and everything
        # behind this can compare by identity.
        if batch.envelope is not self._last:
            self._last = batch.envelope
            self._stamped = msgspec.structs.replace(batch.envelope, reply_to=self._port.name)
        assert self._stamped is not None
        return batch.under(self._stamped)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)
