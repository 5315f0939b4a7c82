"""Cut: counts what passes for each client, and says when the connection of one has to be lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from plugins.engines.broker.front_end import Client

Counted = Literal["deliveries", "acks", "publishes", "confirms"]
"""What can be counted.  ``publishes`` and ``acks`` come from the client, the others go to it."""


class Cut(msgspec.Struct, eq=False):
    """The connection of one client is lost after ``after`` messages; then the cut is over."""

    number: int
    client: str
    """A name of the client (``names_of``); empty: whoever comes first to this number."""
    of: Counted
    after: int
    counts: dict[Client, int] = {}

    def left(self, client: Client) -> int:
        """Return how many messages of this client may still pass."""
        return self.after - self.counts.get(client, 0)

    def fits(self, client: Client, of: Counted) -> bool:
        """Whether these messages of this client count."""
        return self.of == of and (not self.client or self.client in names_of(client))


def names_of(client: Client) -> set[str]:
    """Return what a test may call a client.

    Its address, its user, the ``connection_name`` of AMQP, the client identifier of MQTT.
    """
    names: set[str] = set()
    for row in client.inspect("connections"):
        # The column "client" of MQTT ends with the identifier.
        names |= {row["name"], row["user"], row["client"], row["client"].rpartition(" ")[2]}
        names.add(row.get("client_properties", {}).get("connection_name", ""))
    return names - {""}
