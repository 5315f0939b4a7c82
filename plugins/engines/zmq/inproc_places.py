"""``inproc``: sockets of one kernel, joined by a pair of pipes.

There are no bytes, but the parts of a message are the same as on a wire: keys, addresses of questions, and
what a peer has subscribed to are treated as in a conversation.  The rendezvous of the kernel has the places
by name.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import trio

from kernel.contracts.engine import Host, Port
from kernel.contracts.errors import RemoteProtocolError
from kernel.contracts.key_trie import PREFIX
from kernel.contracts.message import PLAIN, Batch, batch_of
from kernel.contracts.router import Outlet
from kernel.hosting.address import Address
from kernel.hosting.backoff import Backoff
from kernel.hosting.inproc_host import InprocEnd, pipe_pair
from plugins.engines.zmq.admission import stamped
from plugins.engines.zmq.options import name_of
from plugins.engines.zmq.zap_question import key_of_place
from plugins.protocols.zmtp.addressing import Head, addressing_of
from plugins.protocols.zmtp.keys import GroupSplitter, KeySplitter, group_of, key_of
from plugins.protocols.zmtp.options import hello_of, identity_of
from plugins.protocols.zmtp.prefixes import prefix_of, subscriptions_of
from plugins.protocols.zmtp.socket_types import SOCKET_TYPES

if TYPE_CHECKING:
    from kernel.pipes.pipe import Pipe
    from plugins.engines.zmq.engine import ZmqEngine

Accept: TypeAlias = "Callable[[Pipe, Pipe, str, bytes], Any]"
"""Takes a pipe from the peer, one to the peer, the type of the peer and its identity."""


class InprocPeer(InprocEnd):
    """One end of a connection: what a conversation is on a wire."""

    def __init__(self, engine: ZmqEngine, peer: str, on_gone: Callable[[str], Any]) -> None:
        super().__init__(engine.host, peer)
        options = engine.options
        self.ended = False
        self.peer_type = ""
        self._engine = engine
        self._on_gone = on_gone
        self._type = SOCKET_TYPES[options.type]
        publishes_or_subscribes = self._type.publishes or self._type.subscribes
        self._keyed = options.key_part if options.key_part is not None else publishes_or_subscribes
        self._splitter = GroupSplitter() if self._type.grouped else KeySplitter()
        self._addressing = addressing_of(options)
        # With addresses all messages are passed on, some of them later.
        self.sifts = self._addressing is None
        self._theirs = subscriptions_of(options)
        self._hello: bytes | None = None
        """What is to be said to the peer first, and was not said yet."""
        self._questions: deque[Batch] = deque()
        """Questions of a REQ that wait for the answer to the one before."""

    def join(
        self, incoming: Pipe, outgoing: Pipe, peer_type: str, identity: bytes, port: Port | None
    ) -> None:
        """Begin, with a port of this peer or with one that is there already.

        Raises ``RemoteProtocolError``.
        """
        self.peer_type = peer_type
        # libzmq compares types in the handshake of a wire only, and programs rely on that (PyLECO: a PAIR to
        # a PULL). Hence the option.
        if peer_type not in self._type.peers and not self._engine.options.any_inproc_peer:
            raise RemoteProtocolError(f"the peer is {peer_type}, which {self._type.name} cannot talk to")
        name = self.peer
        # The port of a place whose peer was named here has its name.
        if self._type.names_peers and port is None:
            name = self._engine.name_of_peer(identity, self)
        if port is None:
            port = self._engine.host.port(f"{self._engine.name}/{name}", self)
        if self._addressing is not None:
            self._addressing.reply_to = port.name
        self._theirs = subscriptions_of(self._engine.options)
        self._hello = hello_of(self._engine.options)
        # Before ``plug``, which passes on what waits in the port: the greeting is the first message. A
        # publisher waits with it until the subscriber has subscribed to it (``_on_peer_asked``).
        if not self._type.publishes:
            self._say_hello(outgoing)
        self.plug(incoming, outgoing, stamped(port, self._engine.options))
        # Behind ``plug``, which sets its own: here prefixes are counted as well, since patterns of routes may
        # ask for more.
        outgoing.on_asked = self._on_peer_asked

    def subscribe_at_peer(self) -> None:
        """Ask the publisher for what the options and the readers here want."""
        super().subscribe_at_peer()
        for topic in self._engine.options.subscribe:
            self.ask_peer("subscribe", PREFIX + topic)

    def _on_peer_asked(self, verb: str, pattern: str) -> None:
        if self._type.publishes and self.port is not None:
            change = self._theirs.add if verb == "subscribe" else self._theirs.remove
            change(prefix_of(pattern))
            if self._hello is not None and self._outgoing is not None and self._theirs.match(self._hello):
                self._say_hello(self._outgoing)
            self.ask_port(verb, pattern)

    def _say_hello(self, outgoing: Pipe) -> None:
        hello, self._hello = self._hello, None
        if hello is not None:
            outgoing.write(batch_of([hello]))

    # ------------------------------------------------------------------ messages

    def outgoing_of(self, batches: Sequence[Batch]) -> list[Batch]:
        """Return what the peer gets: with keys and addresses as parts, and only what it has subscribed to."""
        if not self._type.gives:
            return []
        addressing = self._addressing
        if addressing is None:
            return [each for batch in batches for each in self._wanted(batch)]
        for batch in batches:
            # One by one: a REQ may have one open question, and others may wait behind it here.
            self._questions += (
                [batch.slice(at, at + 1) for at in range(len(batch))] if self._asks else [batch]
            )
        return list(self._addressed())

    @property
    def _asks(self) -> bool:
        return self._type.name == "REQ"

    def _addressed(self) -> Iterator[Batch]:
        assert self._addressing is not None
        # ``put`` makes a question the open one, so ``may_send`` is asked again before each.
        while self._questions and self._addressing.may_send() != 0:
            for head, batch in self._addressing.put(self._questions.popleft()):
                yield _behind(head, batch)

    def _wanted(self, batch: Batch) -> Iterator[Batch]:
        grouped = self._type.grouped
        key = (group_of if grouped else key_of)(batch.envelope) if self._keyed else b""
        wanted: Batch | None = batch
        if self._type.single and batch.multipart:
            return
        if self._type.publishes and not key and not grouped:
            wanted = self._theirs.sift(batch)
        elif self._type.publishes:
            wanted = batch if self._theirs.match(key) else None
        if wanted is not None:
            yield _behind((key,) if key or grouped else (), wanted)

    def incoming_of(self, batches: Sequence[Batch]) -> list[Batch]:
        """Return what the routes get: keys and addresses are in the envelopes."""
        taken: list[Batch] = []
        if not self._type.takes:
            return taken
        try:
            for batch in batches:
                taken += self._understood(batch)
        except RemoteProtocolError as error:
            # Later: the caller (``InprocEnd``) is still reading from the pipe that ``close`` takes away. What
            # came before the fault is passed on.
            self._engine.host.soon(partial(self.close, str(error)))
        # What has come may be the answer that the next question waits for.
        if self._questions:
            self.pass_on(list(self._addressed()))
        return taken

    def _understood(self, batch: Batch) -> Iterable[Batch]:
        if self._type.single and batch.multipart and not self._type.grouped:
            return ()
        if self._keyed:
            return self._splitter.split(batch)
        return (batch,) if self._addressing is None else self._addressing.take(batch)

    # ------------------------------------------------------------------ the end

    def on_end(self) -> None:
        """The other end has gone."""
        self.close("closed by the peer")

    def close(self, reason: str) -> None:
        """End the connection."""
        if not self.ended:
            self.ended = True
            self.unplug()
            self._on_gone(reason)

    def pending(self) -> bool:
        """Whether something waits to be passed on.  Any thread."""
        return bool(self._questions) or (self.port is not None and self.port.has_input())

    def inspect(self) -> dict[str, Any]:
        """Return the row of this connection."""
        return {
            "name": self.peer if self.port is None else self.port.name,
            "client": self.peer,
            "state": "closed" if self.ended else "running",
            "messages_in": self.messages_in,
            "messages_out": self.messages_out,
            "version": "inproc",
            "peer_type": self.peer_type,
            "subscriptions": self._theirs.number,
        }


class InprocBindPlace:
    """A name by which other sockets of the kernel connect."""

    accepted = 0
    refused = 0

    def __init__(self, engine: ZmqEngine, address: Address) -> None:
        self.name = name_of(address)
        self._engine = engine
        self._key = key_of_place(self.name)
        self._mine = (engine.host, self._accept, engine.options.type, identity_of(engine.options))
        rendezvous = engine.host.rendezvous
        # ``setdefault`` is atomic: of two sockets in two threads that bind to one name only one finds its own
        # entry.
        if rendezvous.setdefault(self._key, self._mine) is not self._mine:
            raise OSError(errno.EADDRINUSE, f"another socket is bound to {self.name}: the address is in use")
        # A copy: places in other threads enter themselves meanwhile. One that does so after this has its look
        # at the rendezvous still before it (``run``).
        for look in list(rendezvous.get(f"waiting for {self._key}", {}).values()):
            look()

    def close(self) -> None:
        """Give up the name.  Peers that are connected stay."""
        if self._engine.host.rendezvous.get(self._key) is self._mine:
            del self._engine.host.rendezvous[self._key]

    def _accept(self, incoming: Pipe, outgoing: Pipe, peer_type: str, identity: bytes) -> None:
        """Take a connection.  The peer posts this call to the thread of this engine."""
        engine = self._engine
        # The place may have been unbound between the post and this call.
        if engine.host.rendezvous.get(self._key) is not self._mine or not engine.admits(0):
            # The end of the pipe makes the peer try again.
            self.refused += 1
            outgoing.end()
            return
        self.accepted += 1
        name = f"{self.name}#{self.accepted}"

        def gone(reason: str) -> None:
            engine.left(peer)
            if peer.port is not None:
                peer.port.close()
            engine.report("disconnected", name, reason)

        peer = InprocPeer(engine, name, gone)
        try:
            peer.join(incoming, outgoing, peer_type, identity, None)
        except RemoteProtocolError as error:
            self.refused += 1
            engine.report("refused", name, str(error))
            outgoing.end()
            return
        engine.joined(peer)
        peer.subscribe_at_peer()
        engine.report("connected", name)


class InprocConnectPlace:
    """Keeps a connection up to a name, which may be bound to later."""

    def __init__(self, engine: ZmqEngine, address: Address, chosen: bytes | None = None) -> None:
        self.name = name_of(address)
        self.chosen = chosen
        self.reconnects = 0
        self._engine = engine
        self._key = key_of_place(self.name)
        self._backoff = Backoff(engine.options.reconnect)
        self._scope = trio.CancelScope()
        self._news = trio.Event()
        self._peer: InprocPeer | None = None
        self._port: Port | None = None
        if chosen is not None:
            self._port = engine.host.port(f"{engine.name}/{chosen.decode('latin-1')}", self)
        elif not engine.port_per_peer:
            self._port = engine.host.port(f"{engine.name}/{self.name}", self)
        # Entered before ``run`` looks for a bound socket for the first time, so that a bind in between is not
        # missed.
        waiting = engine.host.rendezvous.setdefault(f"waiting for {self._key}", {})
        waiting[self] = lambda: engine.host.post(self._look)

    def _look(self) -> None:
        self._news.set()

    async def run(self) -> None:
        """Keep the connection up until cancelled, or until it has ended if it is not to be made again."""
        with self._scope:
            while True:
                # Before the look: a bind that comes behind it sets this event.
                self._news = trio.Event()
                there = self._engine.host.rendezvous.get(self._key)
                if there is not None and self._connect(*there):
                    self._backoff.succeeded()
                    # Another socket may bind to the name meanwhile; that is no news while there is a peer.
                    while self._peer is not None:
                        self._news = trio.Event()
                        await self._news.wait()
                    if self._engine.options.again != "always":
                        self._engine.drop(self)
                        return
                    self.reconnects += 1
                    self._news = trio.Event()
                with trio.move_on_after(self._backoff.next_wait()):
                    await self._news.wait()

    def _connect(self, there: Host, accept: Accept, peer_type: str, identity: bytes) -> bool:
        engine = self._engine
        here = engine.host
        to_there, to_here = pipe_pair(self.name, here, there)
        peer = InprocPeer(engine, self.name, self._gone)
        try:
            peer.join(to_here, to_there, peer_type, identity, self._port)
        except RemoteProtocolError as error:
            engine.report("refused", self.name, str(error))
            return False
        self._peer = peer
        engine.joined(peer)
        own = engine.options
        # Behind ``join``: as soon as the other side has plugged in, it may write, and this side has to be
        # there.
        there.post(lambda: accept(to_there, to_here, own.type, identity_of(own)))
        # Behind that post, in the same mailbox: the other side has to have plugged its end in.
        peer.subscribe_at_peer()
        engine.report("connected", self.name)
        return True

    def _gone(self, reason: str) -> None:
        peer, self._peer = self._peer, None
        if peer is not None:
            self._engine.left(peer)
            if self._port is None and peer.port is not None:
                peer.port.close()
        self._engine.report("disconnected", self.name, reason)
        self._news.set()

    def close(self) -> None:
        """End the connection for good."""
        self._scope.cancel()
        self._engine.host.rendezvous.get(f"waiting for {self._key}", {}).pop(self, None)
        if self._peer is not None:
            self._peer.close("the place was removed")
        if self._port is not None:
            self._port.close()
            self._port = None

    def pending(self) -> bool:
        """Whether messages wait for a peer that is not there.  Any thread."""
        port = self._port
        return port is not None and port.has_input()

    # ------------------------------------------------------------------ the port's owner

    def on_output(self) -> None:
        """Messages wait in the pipes."""
        if self._peer is not None:
            self._peer.on_output()

    def on_writable(self) -> None:
        """The pipes have room again."""
        if self._peer is not None:
            self._peer.on_writable()

    def on_confirmed(self, position: int) -> None:
        """Destinations have confirmed."""
        if self._peer is not None:
            self._peer.on_confirmed(position)

    def on_asked(self, verb: str, pattern: str, outlet: Outlet) -> None:
        """A reader has subscribed or unsubscribed."""
        if self._peer is not None:
            self._peer.on_asked(verb, pattern, outlet)

    def on_sync(self, hops: int) -> None:
        """Answer: the pipes apply subscriptions in order."""
        if self._port is not None:
            self._port.synced(hops)


def _behind(head: Head, batch: Batch) -> Batch:
    """Return messages behind the parts ``head``, without an envelope: that stays in this socket."""
    if not head:
        return batch if batch.envelope is PLAIN else batch.under(PLAIN)
    if batch.multipart:
        return batch_of([(*head, *parts) for parts in batch.bodies], multipart=True)
    return batch_of([(*head, body) for body in batch.bodies], multipart=True)
