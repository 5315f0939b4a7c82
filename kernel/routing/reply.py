"""Reply: sends answers to the port that the envelope names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kernel.contracts.message import Batch
from kernel.contracts.router import Outlet


class Reply:
    """Chooses the pipe to the port with the name ``envelope.reply_to``.

    The option ``reply_name`` gives a port a second name, for one whose own name others may have.

    An answer is sent under the envelope of its request, so it goes back to where the request came from.  If
    several ports have the name, the one that joined last gets the answer.

    Answers of AMQP, STOMP and MQTT have that name as key, since a reply address is a routing key there.  So a
    message whose ``reply_to`` is no port's goes to the port with the name ``envelope.key``.
    """

    def __init__(self) -> None:
        self._outlets: dict[str, list[Outlet]] = {}
        self._names: dict[Outlet, list[str]] = {}

    def attach(self, outlet: Outlet, options: dict[str, Any]) -> None:
        """Add a pipe to a port that may send requests."""
        names = self._names[outlet] = [outlet.target]
        if "reply_name" in options:
            names.append(options["reply_name"])
        for name in names:
            self._outlets.setdefault(name, []).append(outlet)

    def detach(self, outlet: Outlet) -> None:
        """Remove a pipe.  Answers for its port are unrouted from now on, and counted."""
        for name in self._names.pop(outlet):
            namesakes = self._outlets[name]
            namesakes.remove(outlet)
            if not namesakes:
                del self._outlets[name]

    def choose(self, batch: Batch) -> Sequence[tuple[Outlet, Batch]]:
        """Give the batch to the requesting port; to nobody if it has left."""
        return [(outlet, batch) for outlet in self.peek(batch)] or ()

    def peek(self, batch: Batch) -> Iterable[Outlet]:
        """Return the pipe that ``choose`` would return."""
        envelope = batch.envelope
        # The reply address first: an answer has the key of its request, too, which may be the name of a port
        # by chance.
        namesakes = self._outlets.get(envelope.reply_to) or self._outlets.get(envelope.key)
        # Peers choose their names (``Named.peer_name``). One that reconnects may join before its old port has
        # left.
        return namesakes[-1:] if namesakes else ()

    def wants(self, batch: Batch) -> bool:
        """Whether the requesting port is still there."""
        # ``detach`` leaves no empty list, so a name that is known has a port.
        return batch.envelope.reply_to in self._outlets or batch.envelope.key in self._outlets

    def subscribe(self, outlet: Outlet, pattern: str) -> None:
        """Do nothing: subscriptions have no effect on this router."""

    def unsubscribe(self, outlet: Outlet, pattern: str) -> None:
        """Do nothing: subscriptions have no effect on this router."""
