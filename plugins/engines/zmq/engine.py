"""A socket of ØMQ: its places, and a conversation with a port of its own for each peer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import trio

from kernel.contracts.engine import EngineEvent, Host, Port
from kernel.contracts.errors import KernelError
from kernel.contracts.kinds import EngineSetup
from kernel.contracts.protocol import Login, Side
from kernel.hosting.peer_patterns import PeerPatterns
from kernel.hosting.stream_host import Decide, StreamHost
from kernel.hosting.stream_statistics import StreamStatistics
from kernel.hosting.wire import Wire
from plugins.engines.zmq.bind_place import BindPlace
from plugins.engines.zmq.connect_place import ConnectPlace
from plugins.engines.zmq.options import ZmqOptions, place_of
from plugins.protocols.zmtp.connection import ZmtpConnection


class ZmqEngine:
    """Listens at its bind places, and keeps a connection up to each connect place."""

    def __init__(self, setup: EngineSetup) -> None:
        self.name = setup.name
        self.options: ZmqOptions = setup.options
        self._bound = setup.bound
        self._system = setup.system
        self._counters = StreamStatistics()
        self._conversations: set[StreamHost] = set()
        self._bind_places: list[BindPlace] = []
        self._connect_places: list[ConnectPlace] = []
        self._logins_refused = 0
        self.host: Host

    async def run(self, host: Host, *, task_status: trio.TaskStatus[str]) -> None:
        """Run until cancelled."""
        self.host = host
        try:
            bound = self._bound
            for text in self.options.bind:
                # Sockets that the application has bound are those of the first place.
                self._bind_places.append(BindPlace(self, place_of(text), bound))
                bound = None
            # Before the first attempt to connect: the ports are there when the engine is said to run.
            self._connect_places = [ConnectPlace(self, place_of(text)) for text in self.options.connect]
            for place in self._connect_places:
                host.nursery.start_soon(place.run)
            names = [place.name for place in self._bind_places]
            names += [place.name for place in self._connect_places]
            task_status.started(", ".join(names))
            await trio.sleep_forever()
        finally:
            for listening in self._bind_places:
                listening.close()
            # A copy: the end of a conversation removes it.
            for conversation in list(self._conversations):
                conversation.close("the socket is closed")

    def admits(self, under_way: int) -> bool:
        """Whether one more connection may be accepted."""
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
    ) -> StreamHost:
        """Begin a conversation."""

        def ended(conversation: StreamHost, reason: str) -> None:
            self._conversations.discard(conversation)
            on_end(reason)

        def opened() -> None:
            self.report("connected", peer)
            on_open()

        conversation = StreamHost(
            self.host,
            wire,
            ZmtpConnection(self.options, side),
            peer=peer,
            counters=self._counters,
            open_port=open_port,
            on_open=opened,
            on_end=ended,
            on_refused=lambda why: self.report("refused", peer, why),
            patterns=patterns,
            on_login=self._on_login,
        )
        # Before ``start``, which may end the conversation at once.
        self._conversations.add(conversation)
        conversation.start()
        return conversation

    def report(self, what: str, peer: str, detail: str = "", next_try: float | None = None) -> None:
        """Tell an operator something."""
        self.host.report(
            EngineEvent(engine=self.name, what=what, peer=peer, detail=detail, next_try=next_try)
        )

    def pending(self) -> bool:
        """Whether a conversation has something to write.  Any thread."""
        return any(conversation.pending() for conversation in list(self._conversations))

    def statistics(self) -> dict[str, Any]:
        """Sums over all conversations so far.  Any thread."""
        return {
            **self._counters.as_dict(),
            "connections": len(self._conversations),
            "accepted": sum(place.accepted for place in self._bind_places),
            "refused": self._logins_refused + sum(place.refused for place in self._bind_places),
            "reconnects": sum(place.reconnects for place in self._connect_places),
        }

    def inspect(self, what: str) -> list[dict[str, Any]]:
        """Return a row for each conversation."""
        return [each.inspect() for each in self._conversations] if what == "connections" else []

    def _on_login(self, login: Login, decide: Decide) -> None:
        """Ask the engine that decides on logins; until it has answered the peer waits."""
        if self._system is None:
            decide("this socket has no kernel that could decide on logins")
            return

        def done(_: Any, failure: KernelError | None) -> None:
            if failure is not None:
                self._logins_refused += 1
                self.report("refused", login.peer, f"login of {login.user!r}: {failure}")
            # The peer is not told why.  The operator is, in the report.
            decide(None if failure is None else "login refused")

        self._system.operate(
            self.options.authenticator, "authenticate", msgspec.structs.asdict(login), self.host, done
        )
