"""The listening side: one endpoint, and a set of ports for each association."""

from __future__ import annotations

from typing import Any

import trio

from kernel.contracts.engine import EngineEvent, Host, Port, PortGroup
from kernel.contracts.kinds import EngineSetup
from plugins.engines.sctp.any_association import AnyAssociation
from plugins.engines.sctp.conversation import Conversation, Role
from plugins.engines.sctp.conversation_host import ConversationHost
from plugins.engines.sctp.location import Location, parse_sctp_address
from plugins.engines.sctp.opening import open_endpoint, resolved, shut_down
from plugins.engines.sctp.totals import Totals


class SctpListener(Role):
    """Accepts associations."""

    dials = False

    def __init__(self, setup: EngineSetup) -> None:
        self._name = setup.name
        self._options = setup.options
        self._address, self._location = parse_sctp_address(setup.options.address)
        self._endpoint: ConversationHost[Any] | None = None
        self._totals = Totals()
        self._accepted = self._refused = 0

    async def run(self, host: Host, *, task_status: trio.TaskStatus[str]) -> None:
        """Listen until cancelled, then shut all associations down."""
        self._host = host
        hosts = await resolved(self._location.hosts, here=True)
        endpoint = self._endpoint = open_endpoint(
            host,
            self._name,
            self._options,
            hosts,
            self._location.port,
            self._location.udp_port,
            self._converse,
        )
        try:
            location = Location(self._location.hosts, endpoint.port, endpoint.udp_port)
            task_status.started(str(location))
            await trio.sleep_forever()
        finally:
            await shut_down(host, endpoint)

    def pending(self) -> bool:
        """Whether any peer lacks something."""
        endpoint = self._endpoint
        return endpoint is not None and any(each.pending() for each in list(endpoint.conversations.values()))

    def statistics(self) -> dict[str, Any]:
        """Return sums over all associations, past ones included."""
        endpoint = self._endpoint
        conversations = list(endpoint.conversations.values()) if endpoint is not None else []
        return {
            **self._totals.with_those(conversations),
            **(endpoint.statistics() if endpoint is not None else {}),
            "connections": sum(bool(each.streams) for each in conversations),
            "accepted": self._accepted,
            "refused": self._refused,
        }

    def _converse(self, endpoint: ConversationHost[Any], association: AnyAssociation) -> Conversation | None:
        if len(endpoint.conversations) >= self._options.max_associations:
            self._refused += 1
            return None
        return endpoint.conversation(association, self, plain=self._address.protocol == "plain")

    # ------------------------------------------------------------------ the role

    def open_port(self, conversation: Conversation, index: int) -> Port:
        """Make a port for a stream."""
        name = f"{self._name}/{conversation.peer}"
        streams = conversation.streams
        port_group = PortGroup(whole=name, index=index, of=len(streams))
        return self._host.port(f"{name}/{index}", streams[index], {"port_group": port_group})

    def on_open(self, conversation: Conversation) -> None:
        """Report the connection."""
        self._accepted += 1
        self._host.report(EngineEvent(engine=self._name, what="connected", peer=conversation.peer))

    def on_end(self, conversation: Conversation, reason: str) -> None:
        """Close the ports. What they left unconfirmed is handed over to other ports."""
        self._totals.add(conversation)
        # A listener's port belongs to one association. What it has not confirmed goes to other ports of the
        # engine.
        for port in conversation.ports:
            port.close()
        what = "disconnected" if conversation.streams else "refused"
        self._host.report(EngineEvent(engine=self._name, what=what, peer=conversation.peer, detail=reason))
