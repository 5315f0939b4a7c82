"""The in-process transport: two engines of one kernel, back to back.  No socket, no bytes, no copy of any body.

The protocol of the address is not spoken, since there is no wire: runs pass from port to port as they are.  Who
listens under which name is written in the host's ``rendezvous``, which belongs to one kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

from kernel.contracts.engine import EngineEvent, Host, Port
from kernel.contracts.kinds import EngineSetup
from kernel.contracts.message import Run
from kernel.hosting.address import parse_address
from kernel.hosting.backoff import Backoff
from kernel.pipes.pipe import Pipe
from kernel.pipes.water_marks import WaterMarks

_AT_ONCE = 4096
_MARKS = WaterMarks(high=4 * _AT_ONCE)


class InprocEnd:
    """One end of a connection: moves runs between its port and the pipes to and from the other end."""

    def __init__(self, host: Host, peer: str) -> None:
        self.peer = peer
        self.port: Port | None = None
        self.messages_in = self.messages_out = 0
        self._host = host
        self._incoming: Pipe | None = None
        self._outgoing: Pipe | None = None
        self._going = True
        self._sent_before = 0
        self._peer_confirmed = 0
        self._waiting_for_room = False

    def plug(self, incoming: Pipe, outgoing: Pipe, port: Port) -> None:
        """Begin.  In the thread of this end."""
        self.port, self._incoming, self._outgoing = port, incoming, outgoing
        self._sent_before = port.sent()
        incoming.on_ready = self._on_incoming  # the pipes post to hosts, which call in their thread
        outgoing.on_writable = self._on_room
        outgoing.on_confirmed = self._on_peer_confirmed
        self._peer_confirmed = 0
        self._waiting_for_room = False
        again = port.rewind() if port.must_confirm else []
        self._write(again)
        self._on_incoming()
        self.on_output()

    def unplug(self) -> None:
        """Stop; the other end reads what is on its way and then sees the end."""
        if self._outgoing is not None:
            self._outgoing.end()
        self._incoming = self._outgoing = None

    def on_output(self) -> None:
        """The port has something for the other end."""
        while self.port is not None and self._outgoing is not None and not self._waiting_for_room:
            runs = self.port.take(_AT_ONCE)
            if not runs:
                return
            self._write(runs)

    def _write(self, runs: list[Run]) -> None:
        assert self._outgoing is not None
        for run in runs:
            self.messages_out += len(run)
            self._waiting_for_room |= not self._outgoing.write(run)

    def _on_room(self) -> None:
        self._waiting_for_room = False
        self.on_output()

    def _on_incoming(self) -> None:
        incoming, port = self._incoming, self.port
        while incoming is not None and port is not None and self._going and incoming.more():
            runs = incoming.take(_AT_ONCE)
            count = sum(map(len, runs))
            self.messages_in += count
            self._going = port.send(runs)
            if not port.confirms:
                incoming.confirm(count)
        if incoming is not None and incoming.ended and not incoming.more():
            self.on_end()

    def on_end(self) -> None:
        """The other end has gone; set by the engine."""

    def on_writable(self) -> None:
        """The pipes beyond the port have room again."""
        self._going = True
        self._on_incoming()

    def on_confirmed(self, count: int) -> None:
        """Every destination has confirmed."""
        if self._incoming is not None and count > self._sent_before:
            news = count - self._sent_before - self._incoming.confirmed
            if news > 0:
                self._incoming.confirm(news)

    def _on_peer_confirmed(self) -> None:
        if self._outgoing is not None and self.port is not None:
            news = self._outgoing.confirmed - self._peer_confirmed
            self._peer_confirmed += news
            self.port.confirm(news)


class InprocEngine:
    """Listens or dials, as its options say."""

    def __init__(self, setup: EngineSetup) -> None:
        self._name = setup.name
        self._options = setup.options
        self._place = parse_address(setup.options.address).place
        self._ends: list[InprocEnd] = []
        self._over = trio.Event()

    async def run(self, host: Host, *, task_status: trio.TaskStatus[str]) -> None:
        """Live until cancelled."""
        self._host = host
        try:
            if self._options.mode == "listen":
                if self._place in host.rendezvous:
                    raise OSError(f"somebody listens on inproc://{self._place} already")
                host.rendezvous[self._place] = (host, self._accept)
                task_status.started(f"inproc://{self._place}")
                await trio.sleep_forever()
            else:
                task_status.started(f"inproc://{self._place}")
                await self._dial_for_ever()
        finally:
            if host.rendezvous.get(self._place, (None,))[0] is host:
                del host.rendezvous[self._place]
            for end in self._ends:
                end.unplug()

    def pending(self) -> bool:
        """Whether a port has something for the other side."""
        return any(end.port is not None and end.port.has_input() for end in self._ends)

    def statistics(self) -> dict[str, Any]:
        """Messages of the connections that there are."""
        return {
            "messages_in": sum(end.messages_in for end in self._ends),
            "messages_out": sum(end.messages_out for end in self._ends),
            "connections": len(self._ends),
        }

    def _accept(self, incoming: Pipe, outgoing: Pipe, peer: str) -> None:
        """Somebody has dialled; posted here."""
        end = InprocEnd(self._host, peer)
        self._ends.append(end)
        port = self._host.port(f"{self._name}/{peer}", end)

        def on_end() -> None:
            if end in self._ends:
                self._ends.remove(end)
                end.unplug()
                port.close()
                self._tell("disconnected", peer)

        end.on_end = on_end  # type: ignore[method-assign]
        end.plug(incoming, outgoing, port)
        self._tell("connected", peer)

    async def _dial_for_ever(self) -> None:
        host = self._host
        end = InprocEnd(host, self._place)
        self._ends.append(end)
        port = host.port(self._name, end)
        backoff = Backoff(self._options.reconnect)
        while True:
            there = host.rendezvous.get(self._place)
            if there is not None:
                backoff.succeeded()
                self._over = trio.Event()
                end.on_end = self._over.set  # type: ignore[method-assign]
                self._connect(end, port, *there)
                await self._over.wait()
                end.unplug()
                self._tell("disconnected", self._place)
            wait = backoff.next_wait()
            host.report(EngineEvent(engine=self._name, what="retrying", peer=self._place, next_try=wait))
            await trio.sleep(wait)

    def _connect(self, end: InprocEnd, port: Port, there: Host, accept: Callable[[Pipe, Pipe, str], None]) -> None:
        here = self._host
        to_there, to_here = (
            Pipe(f"inproc {self._place} {way}", _MARKS, post_to_reader=reader, post_to_writer=writer, confirms=True)
            for way, reader, writer in (("out", there.post, here.post), ("back", here.post, there.post))
        )
        end.plug(to_here, to_there, port)
        there.post(lambda: accept(to_there, to_here, self._name))
        self._tell("connected", self._place)

    def _tell(self, what: str, peer: str) -> None:
        self._host.report(EngineEvent(engine=self._name, what=what, peer=peer))
