"""A socket of ØMQ: its places, and a conversation with a port of its own for each peer."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import trio

from kernel.contracts.engine import EngineEvent, Host, Port
from kernel.contracts.errors import KernelError, RemoteProtocolError
from kernel.contracts.kinds import BoundSockets, EngineSetup
from kernel.contracts.protocol import Side
from kernel.hosting.peer_patterns import PeerPatterns
from kernel.hosting.stream_host import StreamHost
from kernel.hosting.stream_statistics import StreamStatistics
from kernel.hosting.wire import Wire
from plugins.engines.zmq.admission import Admission
from plugins.engines.zmq.bind_place import BindPlace
from plugins.engines.zmq.certificates import with_certificate
from plugins.engines.zmq.connect_place import ConnectPlace
from plugins.engines.zmq.inproc_places import InprocBindPlace, InprocConnectPlace, InprocPeer
from plugins.engines.zmq.logins import Logins
from plugins.engines.zmq.notifications import Notifications
from plugins.engines.zmq.options import ZmqOptions, place_of
from plugins.engines.zmq.relay import Relay
from plugins.protocols.zmtp.addressing import Naming
from plugins.protocols.zmtp.connection import ZmtpConnection, connection_of
from plugins.protocols.zmtp.options import IDENTITY_LIMIT
from plugins.protocols.zmtp.raw import RawConnection
from plugins.protocols.zmtp.socket_types import SOCKET_TYPES
from plugins.protocols.zmtp.zap import MEANINGS
from plugins.protocols.zmtp.zws import web_connection_of

_MADE_UP = b"\0"
"""The first byte of identities that are made up here.  No peer may choose such a one."""
_CHOOSING = ("ROUTER", "REP", "STREAM")
"""Types that may choose the identity of a peer."""


class ZmqEngine:
    """Listens at its bind places, and keeps a connection up to each connect place."""

    def __init__(self, setup: EngineSetup) -> None:
        self.name = setup.name
        self.options: ZmqOptions = with_certificate(setup.options)
        self._bound = setup.bound
        self._counters = StreamStatistics()
        self._conversations: set[StreamHost | InprocPeer] = set()
        self._admissions: dict[StreamHost | InprocPeer, Admission] = {}
        """Of conversations; peers of ``inproc`` have none."""
        self._bind_places: list[BindPlace | InprocBindPlace] = []
        self._connect_places: list[ConnectPlace | InprocConnectPlace] = []
        self._logins = Logins(setup, self.report)
        self.port_per_peer = self.options.immediate or SOCKET_TYPES[self.options.type].names_peers
        """Whether also the peer of a connect place has a port only while it is there."""
        # Where it begins is left to chance, so that a peer of an earlier run is not taken for one of this
        # run.
        self._last_made_up = int.from_bytes(os.urandom(4), "big")
        self._by_identity: dict[bytes, StreamHost | InprocPeer] = {}
        self._identities: dict[StreamHost | InprocPeer, bytes] = {}
        self._chosen: set[bytes] = set()
        """Identities of connect places, whose peers have them by our choice."""
        self._next_peer: bytes | None = None
        """The identity of the peer of the next connect place, if the application has chosen it."""
        self._relay: Relay | None = None
        """What routes for an application that publishes, if it wants that."""
        self.host: Host

    async def run(self, host: Host, *, task_status: trio.TaskStatus[str]) -> None:
        """Run until cancelled."""
        self.host = host
        try:
            bound = self._bound
            for text in self.options.bind:
                # Sockets that the application has bound are those of the first place.
                self._bind(text, bound)
                bound = None
            # Before the first attempt to connect: the ports are there when the engine is said to run.
            for text in self.options.connect:
                self._connect(text)
            names = [place.name for place in self._bind_places]
            names += [place.name for place in self._connect_places]
            task_status.started(", ".join(names))
            await trio.sleep_forever()
        finally:
            for listening in self._bind_places:
                listening.close()
            for place in self._connect_places:
                # A ``ConnectPlace`` need not be closed: the nursery of the host cancels its task, and its
                # conversation is among those below. One of ``inproc`` is in the rendezvous of the kernel,
                # which outlives this engine, and a ``bind`` would call it.
                if isinstance(place, InprocConnectPlace):
                    place.close()
            # A copy: the end of a conversation removes it.
            for conversation in list(self._conversations):
                conversation.close("the socket is closed")

    # ------------------------------------------------------------------ places

    def _bind(self, text: str, bound: BoundSockets | None = None) -> str:
        address = place_of(text)
        self.options.check_place(address, listens=True)
        place: BindPlace | InprocBindPlace
        if address.transport == "inproc":
            place = InprocBindPlace(self, address)
        else:
            place = BindPlace(self, address, bound)
        self._bind_places.append(place)
        return place.name

    def _connect(self, text: str) -> str:
        address = place_of(text)
        self.options.check_place(address, listens=False)
        # After the checks: a place that is refused leaves the chosen identity to the next ``connect``.
        chosen, self._next_peer = self._next_peer, None
        # A peer of STREAM tells no identity, and the application has to be able to send to it before it is
        # connected. So it has one in any case.
        if chosen is None and SOCKET_TYPES[self.options.type].raw:
            chosen = self._make_up()
        kind = InprocConnectPlace if address.transport == "inproc" else ConnectPlace
        place = kind(self, address, chosen)
        if chosen is not None:
            self._chosen.add(chosen)
        self._connect_places.append(place)
        self.host.nursery.start_soon(place.run)
        return place.name

    def operate(self, what: str, argument: Any) -> Any:
        """Add or remove a place while the socket runs.

        ``bind`` and ``connect`` return the place by which ``unbind`` and ``disconnect`` find it: ``bind`` has
        the port that the system chose.  Connections that ``unbind`` leaves behind go on.  ``name_peer``
        chooses the identity of the peer of the next ``connect``, a character for each octet, and returns it;
        empty: one is made up.  Messages for it wait in its port from then on.

        ``relay`` opens a port with a name of its own, which routes to the peers what comes to it, and returns
        it (``Relay``); the argument is whom to tell of subscriptions, and how many messages at a time.
        """
        if what == "relay":
            self._relay = Relay(self.host, f"{self.name}.relay", *argument)
            return self._relay
        try:
            if what == "bind":
                return self._bind(argument)
            if what == "connect":
                return self._connect(argument)
            if what == "name_peer":
                return self._name_next(argument.encode("latin-1"))
        except (OSError, ValueError) as error:
            raise KernelError(f"{what}: {error}") from error
        places: dict[str, list[Any]] = {"unbind": self._bind_places, "disconnect": self._connect_places}
        if what not in places:
            raise KernelError(
                f"no operation {what!r}; there are bind, connect, unbind, disconnect, name_peer and relay"
            )
        # All of them, as libzmq: it may have been connected to more than once.
        ending = [place for place in places[what] if place.name == argument]
        for place in ending:
            places[what].remove(place)
            self._chosen.discard(getattr(place, "chosen", None) or b"")
            place.close()
        if ending:
            return argument
        known = ", ".join(place.name for place in places[what]) or "none"
        raise KernelError(f"{what}: there is no place {argument!r}; there are: {known}")

    def drop(self, place: ConnectPlace | InprocConnectPlace) -> None:
        """Remove a place whose connection is not made again."""
        if place in self._connect_places:
            self._connect_places.remove(place)
            self._chosen.discard(place.chosen or b"")
            place.close()

    def _name_next(self, identity: bytes) -> str:
        if self.options.type not in _CHOOSING:
            raise ValueError(f"{self.options.type} does not name its peers; ROUTER and STREAM do")
        if identity.startswith(_MADE_UP) or len(identity) > IDENTITY_LIMIT:
            raise ValueError(
                f"{identity!r}: an identity has 1 to {IDENTITY_LIMIT} bytes and does not begin with a zero byte"
            )
        if identity in self._chosen or identity in self._by_identity:
            raise ValueError(f"another peer has the identity {identity!r}")
        self._next_peer = identity or self._make_up()
        return self._next_peer.decode("latin-1")

    def _make_up(self) -> bytes:
        # 0 is nobody's routing id (41/CLIENTSERVER).
        self._last_made_up = (self._last_made_up + 1) % (1 << 32) or 1
        return _MADE_UP + self._last_made_up.to_bytes(4, "big")

    # ------------------------------------------------------------------ conversations

    def admits(self, under_way: int) -> bool:
        """Whether one more connection may be accepted."""
        # 31/EXPAIR: a PAIR has one peer. Connections whose handshake of TLS or WebSocket is not over count,
        # or two peers that come at the same time would both be let in.
        most = 1 if self.options.type == "PAIR" else self.options.max_connections
        return len(self._conversations) + under_way < most

    def converse(
        self,
        wire: Wire,
        peer: str,
        side: Side,
        *,
        open_port: Callable[[StreamHost], Port],
        on_open: Callable[[], Any],
        on_end: Callable[[str], Any],
        patterns: PeerPatterns | None = None,
        chosen: bytes | None = None,
    ) -> StreamHost:
        """Begin a conversation.  ``chosen``: the identity of the peer, whatever it tells."""

        def name_peer(told: bytes) -> Naming:
            name = self.name_of_peer(told, conversation) if chosen is None else chosen.decode("latin-1")
            return Naming(name, f"{self.name}/{name}")

        admission = Admission(self.options, self._logins, self.host, wire)

        def ended(conversation: StreamHost, reason: str) -> None:
            admission.end()
            told = zmtp.refused_with
            if told is not None:
                # What a peer calls a reason is no name of ours, unless ZAP has it.
                self.report("refused", peer, reason, code=told if told in MEANINGS else "")
            elif zmtp.fault is not None:
                self.report("refused", peer, reason, code=zmtp.fault)
            self._admissions.pop(conversation, None)
            self.left(conversation)
            notifications.gone()
            on_end(reason)

        def stamped_port(conversation: StreamHost) -> Port:
            if self.options.describe_peers:
                admission.describe(zmtp.peer_metadata)
            port = admission.stamped(open_port(conversation))
            notifications.come(port)
            return port

        def opened() -> None:
            self.report("connected", peer)
            on_open()

        def closed_here() -> None:
            # In a turn of its own: the conversation is still sending.
            self.host.soon(lambda: self._close_peer(conversation))

        zmtp = self._protocol_of(wire, side, name_peer, closed_here)
        notifications = Notifications(zmtp, wanted=self.options.notify)
        conversation = StreamHost(
            self.host,
            wire,
            zmtp,
            peer=peer,
            counters=self._counters,
            open_port=stamped_port,
            on_open=opened,
            on_end=ended,
            on_refused=lambda why: self.report("refused", peer, why),
            patterns=patterns,
            on_login=admission.ask,
        )
        self._admissions[conversation] = admission
        # Before ``start``, which may end the conversation at once.
        self.joined(conversation)
        conversation.start()
        return conversation

    def _close_peer(self, conversation: StreamHost) -> None:
        """The application of STREAM has closed a connection: it is not made again."""
        for place in self._connect_places:
            if isinstance(place, ConnectPlace) and place.conversation is conversation:
                self.drop(place)
                return
        conversation.close("closed by the application")

    def _protocol_of(
        self,
        wire: Wire,
        side: Side,
        name_peer: Callable[[bytes], Naming],
        on_closed: Callable[[], Any],
    ) -> ZmtpConnection | RawConnection:
        if SOCKET_TYPES[self.options.type].raw:
            return RawConnection(name_peer, on_closed)
        # Other types name nobody, and need no reference back to the conversation, which is freed at its end
        # then.
        naming = name_peer if SOCKET_TYPES[self.options.type].names_peers else None
        # Only wires of WebSocket have agreed on one.
        subprotocol = getattr(wire, "subprotocol", None)
        if subprotocol is None:
            return connection_of(self.options, side, naming)
        return web_connection_of(self.options, side, naming, subprotocol)

    def joined(self, conversation: StreamHost | InprocPeer) -> None:
        """Take notice of a conversation."""
        self._conversations.add(conversation)

    def left(self, conversation: StreamHost | InprocPeer) -> None:
        """Forget a conversation that has ended."""
        self._conversations.discard(conversation)
        identity = self._identities.pop(conversation, None)
        if identity is not None and self._by_identity.get(identity) is conversation:
            del self._by_identity[identity]

    def name_of_peer(self, told: bytes, conversation: StreamHost | InprocPeer) -> str:
        """Return the name of a peer: its identity, made up if it has told none.

        Raises ``RemoteProtocolError``.
        """
        # 37/ZMTP reserves identities that begin with a zero octet for the implementation. A peer that could
        # choose one would get the messages of another peer.
        if told.startswith(_MADE_UP):
            raise RemoteProtocolError("an identity that begins with a zero byte")
        # A REP answers along the connection, so that identities of its peers need not differ.
        if not told or self.options.type != "ROUTER":
            told = self._make_up()
        if told in self._chosen:
            raise RemoteProtocolError(f"the peer of a connect place has the identity {told!r}")
        other = self._by_identity.get(told)
        if other is not None:
            if not self.options.handover:
                raise RemoteProtocolError(f"another peer has the identity {told!r} (see handover)")
            # Before the new one is entered: ``close`` calls ``left`` at once, which removes the identity of
            # the old conversation.
            other.close("a peer with the same identity has taken over")
        self._by_identity[told] = conversation
        self._identities[conversation] = told
        # A character for each octet, so that the name can be turned back.
        return told.decode("latin-1")

    def report(
        self, what: str, peer: str, detail: str = "", next_try: float | None = None, code: str = ""
    ) -> None:
        """Tell an operator something."""
        self.host.report(
            EngineEvent(engine=self.name, what=what, peer=peer, detail=detail, next_try=next_try, code=code)
        )

    def pending(self) -> bool:
        """Whether a conversation has something to write.  Any thread."""
        waiting = self._relay is not None and self._relay.pending()
        # Copies: another thread asks while conversations come and go.
        waiting = waiting or any(conversation.pending() for conversation in list(self._conversations))
        return waiting or any(place.pending() for place in list(self._connect_places))

    def statistics(self) -> dict[str, Any]:
        """Sums over all conversations so far.  Any thread."""
        return {
            **self._counters.as_dict(),
            "connections": len(self._conversations),
            "accepted": sum(place.accepted for place in self._bind_places),
            "refused": self._logins.refused + sum(place.refused for place in self._bind_places),
            "reconnects": sum(place.reconnects for place in self._connect_places),
        }

    def inspect(self, what: str) -> list[dict[str, Any]]:
        """Return a row for each conversation."""
        if what != "connections":
            return []
        return [{**each.inspect(), "user": self._user_of(each)} for each in self._conversations]

    def _user_of(self, conversation: StreamHost | InprocPeer) -> str:
        admission = self._admissions.get(conversation)
        return "" if admission is None else admission.user
