"""The dialling side.

Its ports live as long as the engine: their pipes keep what arrives while there is no association.
"""

from __future__ import annotations

from typing import Any

import trio

from kernel.contracts.engine import EngineEvent, Host, Port, PortGroup
from kernel.contracts.kinds import EngineSetup
from kernel.hosting.backoff import Backoff
from kernel.hosting.lease import Lease
from plugins.engines.sctp.any_association import AnyAssociation
from plugins.engines.sctp.conversation import Conversation, Role
from plugins.engines.sctp.conversation_host import ConversationHost
from plugins.engines.sctp.location import parse_sctp_address
from plugins.engines.sctp.opening import open_endpoint, resolved, shut_down
from plugins.engines.sctp.sctp_stream import SctpStream
from plugins.engines.sctp.totals import Totals
from plugins.engines.sctp.transport import packed


class SctpDialler(Role):
    """Connects to a peer, and reconnects with back-off."""

    dials = True

    def __init__(self, setup: EngineSetup) -> None:
        self._name = setup.name
        self._options = setup.options
        self._address, self._location = parse_sctp_address(setup.options.address)
        self._backoff = Backoff(setup.options.reconnect)
        self._endpoint: ConversationHost[Any] | None = None
        self._conversation: Conversation | None = None
        self._stream_ports: list[_StreamPort] = []
        self._totals = Totals()
        self._reconnects = 0
        self._over = trio.Event()
        self._reason = ""
        self._opened_at: float | None = None

    async def run(self, host: Host, *, task_status: trio.TaskStatus[str]) -> None:
        """Keep an association up until cancelled, then shut it down."""
        self._host = host
        hosts = self._options.addresses or await self._any_of_its_families()
        endpoint = self._endpoint = open_endpoint(
            host, self._name, self._options, hosts, None, self._location.udp_port, self._converse
        )
        try:
            # Made once and not for each association: the routes keep their ports, and the pipes keep the
            # messages.
            of = self._options.streams
            self._stream_ports = [_StreamPort() for _ in range(of)]
            for index, stream_port in enumerate(self._stream_ports):
                # One destination to the routes, which spread their sources over its members.
                port_group = PortGroup(whole=self._name, index=index, of=of)
                # A single stream needs no number in the port's name.
                name = self._name if of == 1 else f"{self._name}/{index}"
                stream_port.port = host.port(name, stream_port, {"port_group": port_group})
            task_status.started(str(self._address))
            while True:
                await self._one_association(endpoint)
        finally:
            await shut_down(host, endpoint)

    async def _any_of_its_families(self) -> tuple[str, ...]:
        """Return the wildcard addresses for the peer's address families.

        A peer whose name cannot be resolved yet may have both.
        """
        try:
            peers = await resolved(self._location.hosts)
        # The name may exist later: this is no reason to fail at the start.
        except OSError:
            return ("",)
        return tuple(dict.fromkeys("::" if ":" in peer else "" for peer in peers))

    def pending(self) -> bool:
        """Whether a connected peer lacks something."""
        return self._conversation is not None and self._conversation.pending()

    def statistics(self) -> dict[str, Any]:
        """Return sums over all associations so far."""
        conversation, endpoint = self._conversation, self._endpoint
        return {
            **self._totals.with_those([conversation] if conversation is not None else []),
            **(endpoint.statistics() if endpoint is not None else {}),
            "connections": int(conversation is not None and bool(conversation.streams)),
            "reconnects": self._reconnects,
            "attempts": self._backoff.attempts,
        }

    async def _one_association(self, endpoint: ConversationHost[Any]) -> None:
        peer = str(self._address)
        # A new event for each attempt; ``on_end`` sets it.
        self._over = trio.Event()
        try:
            # Resolved for each attempt: the name may lead elsewhere by now.
            addresses = [packed(address) for address in await resolved(self._location.hosts)]
        except OSError as error:
            self._reason = f"cannot connect to {peer}: {error}"
        else:
            self._conversation = endpoint.connect(addresses, self._location.port)
            await self._over.wait()
            self._conversation = None
            # Otherwise it ended during the handshake.
            if self._opened_at is not None:
                self._backoff.lasted(self._host.now() - self._opened_at)
                self._opened_at = None
                self._reconnects += 1
                self._report("disconnected")
        wait = self._backoff.next_wait()
        self._report("retrying", wait)
        await trio.sleep(wait)

    def _report(self, what: str, next_try: float | None = None) -> None:
        peer = str(self._address)
        self._host.report(
            EngineEvent(engine=self._name, what=what, peer=peer, detail=self._reason, next_try=next_try)
        )

    def _converse(self, endpoint: ConversationHost[Any], association: AnyAssociation) -> Conversation:
        return endpoint.conversation(association, self, plain=self._address.protocol == "plain")

    # ------------------------------------------------------------------ the role

    def open_port(self, conversation: Conversation, index: int) -> Port:
        """Lend a port to a stream of the new conversation."""
        stream_port = self._stream_ports[index]
        stream_port.stream = conversation.streams[index]
        assert stream_port.port is not None
        return stream_port.port

    def on_open(self, conversation: Conversation) -> None:
        """Report the connection."""
        self._opened_at = self._host.now()
        self._host.report(EngineEvent(engine=self._name, what="connected", peer=str(self._address)))

    def on_end(self, conversation: Conversation, reason: str) -> None:
        """Keep the ports, and connect again."""
        self._totals.add(conversation)
        for stream_port in self._stream_ports:
            # The port stays, and its pipes fill: this is the back-pressure while there is no association.
            stream_port.stream = None
        self._reason = reason
        self._over.set()


class _StreamPort:
    """Owns a port for the life of the engine, and forwards its calls to the current stream, if any."""

    def __init__(self) -> None:
        self.port: Port | None = None
        self.stream: SctpStream | None = None

    def on_output(self) -> None:
        if self.stream is not None:
            self.stream.on_output()

    def on_writable(self) -> None:
        if self.stream is not None:
            self.stream.on_writable()

    def on_confirmed(self, position: int) -> None:
        if self.stream is not None:
            self.stream.on_confirmed(position)

    def on_lease_asked(self, lease: Lease) -> None:
        if self.stream is not None:
            self.stream.on_lease_asked(lease)
