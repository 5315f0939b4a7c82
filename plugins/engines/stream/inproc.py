"""The in-process transport: connects two engines of one kernel without a socket, and without copying bodies.

The protocol of the address is not used, because there is no wire: batches pass from port to port unchanged.
The host's ``rendezvous``, which belongs to one kernel, has the listeners by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

from kernel.contracts.engine import EngineEvent, Host, Port
from kernel.contracts.kinds import EngineSetup
from kernel.hosting.address import parse_address
from kernel.hosting.backoff import Backoff
from kernel.hosting.inproc_host import InprocEnd, pipe_pair


class InprocEngine:
    """Listens or dials, as its options say."""

    def __init__(self, setup: EngineSetup) -> None:
        self._name = setup.name
        self._options = setup.options
        self._place = parse_address(setup.options.address).place
        self._ends: list[InprocEnd] = []
        self._over = trio.Event()

    async def run(self, host: Host, *, task_status: trio.TaskStatus[str]) -> None:
        """Listen or dial until cancelled."""
        self._host = host
        try:
            if self._options.mode == "listen":
                if self._place in host.rendezvous:
                    raise OSError(
                        f"another engine listens on inproc://{self._place} already: use another name"
                    )
                # The host tells a dialler in which thread to call ``_accept``.
                host.rendezvous[self._place] = (host, self._accept)
                task_status.started(f"inproc://{self._place}")
                await trio.sleep_forever()
            else:
                end = InprocEnd(host, self._place)
                self._ends.append(end)
                port = host.port(self._name, end)
                # After the port: another thread may open a channel as soon as the engine is said to run.
                task_status.started(f"inproc://{self._place}")
                await self._dial_for_ever(end, port)
        finally:
            # If the name was taken already, the entry is that of the other engine.
            if host.rendezvous.get(self._place, (None,))[0] is host:
                del host.rendezvous[self._place]
            for end in self._ends:
                end.unplug()

    def pending(self) -> bool:
        """Whether messages for the other side wait in a port.  Any thread."""
        # A copy: if an end leaves during the loop, the one after it is not looked at.
        return any(end.port is not None and end.port.has_input() for end in list(self._ends))

    def statistics(self) -> dict[str, Any]:
        """Figures of the current connections.  Any thread."""
        ends = list(self._ends)
        return {
            "messages_in": sum(end.messages_in for end in ends),
            "messages_out": sum(end.messages_out for end in ends),
            "connections": len(ends),
        }

    def _accept(self, incoming: Any, outgoing: Any, peer: str) -> None:
        """Accept a connection.  The dialler posts this call to the thread of the listener."""
        if self._host.rendezvous.get(self._place, (None,))[0] is not self._host:
            # This listener has ended in the meantime.  The end of the pipe makes the peer dial again.
            outgoing.end()
            return
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
        # After ``on_end`` is set: the dialler may have ended already, and plugging then ends this side.
        end.plug(incoming, outgoing, port)
        end.subscribe_at_peer()
        self._tell("connected", peer)

    async def _dial_for_ever(self, end: InprocEnd, port: Port) -> None:
        host = self._host
        backoff = Backoff(self._options.reconnect)
        while True:
            # Read without a lock: the listener may be of another thread, and may end before it gets our
            # call.  ``_accept`` looks again in its own thread, and ends the pipe if it is too late.
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

    def _connect(
        self, end: InprocEnd, port: Port, there: Host, accept: Callable[[Any, Any, str], None]
    ) -> None:
        here = self._host
        to_there, to_here = pipe_pair(self._place, here, there)
        # This side is ready before the other side is told: it may write at once.
        end.plug(to_here, to_there, port)
        there.post(lambda: accept(to_there, to_here, self._name))
        # After that post, in the same mailbox: the other side has to have plugged its end in.
        end.subscribe_at_peer()
        self._tell("connected", self._place)

    def _tell(self, what: str, peer: str) -> None:
        self._host.report(EngineEvent(engine=self._name, what=what, peer=peer))
