"""Others: every pipe gets every message, but for the connection that the message came from."""

from __future__ import annotations

from collections.abc import Sequence

from kernel.contracts.message import Batch
from kernel.contracts.router import Outlet
from kernel.routing.fan_out import FanOut


# By a name in the envelope and not by the port that has sent: all messages come from the one port of the hub
# (docs/decisions/0023-hubs.md).
class Others(FanOut):
    """Chooses all pipes but those to ports with the name ``envelope.reply_to``.

    An engine of kind ``hub`` puts the name of the sender there.  Ports of the same name do not hear each
    other: which of them has sent cannot be told.
    """

    def choose(self, batch: Batch) -> Sequence[tuple[Outlet, Batch]]:
        """Give the batch to each pipe but the sender's."""
        sender = batch.envelope.reply_to
        return [(outlet, batch) for outlet in self._outlets if outlet.target != sender]

    def wants(self, batch: Batch) -> bool:
        """Whether there is anybody but the sender."""
        sender = batch.envelope.reply_to
        return any(outlet.target != sender for outlet in self._outlets)
