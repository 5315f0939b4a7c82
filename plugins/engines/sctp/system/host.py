"""System host: where sockets of the operating system's SCTP meet conversations.

Paths, retransmissions and timers are the system's.  A socket is read while its conversation takes what comes, and watched for room
while the system has none.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from functools import partial
from struct import Struct
from typing import Any

from kernel.contracts.engine import Host
from plugins.engines.sctp.conversation import Conversation
from plugins.engines.sctp.conversation_host import ConversationHost, Converse
from plugins.engines.sctp.options import SctpEngineOptions
from plugins.engines.sctp.system import layout
from plugins.engines.sctp.system.association import READ_SIZE, SystemAssociation
from plugins.engines.sctp.system.sockets import BACKLOG, SocketFactory
from plugins.engines.sctp.transport import packed
from plugins.protocols.sctp.states import State

READS_PER_TURN = 32
ACCEPTS_PER_TURN = 16
ACCEPT_RETRY = 0.1
"""Seconds after an association could not be accepted."""
POLL_INTERVAL = 0.05
"""Seconds between looks at what the peer has, while the socket is not read and the system's news of it neither."""
_ABORTING = Struct("ii").pack(1, 0)
"""SO_LINGER: closing ends what there still is."""


class SystemHost(ConversationHost[SystemAssociation]):
    """A socket for each association, and one that listens."""

    def __init__(
        self,
        host: Host,
        engine: str,
        options: SctpEngineOptions,
        converse: Converse,
        *,
        hosts: Sequence[str],
        port: int | None,
        udp_port: int | None,
    ) -> None:
        """``port`` is that of a listener (0: any), None for a dialler.  Raises ``OSError`` for what does not go."""
        super().__init__(host, engine, options, converse)
        self.bytes_in = self.bytes_out = 0
        self._plain = options.address.startswith("plain+")
        self._opener = SocketFactory(options, hosts, port=port or 0, udp_port=udp_port)
        self._buffer = memoryview(bytearray(READ_SIZE))
        self._watches: dict[SystemAssociation, tuple[bool, bool]] = {}
        """Of each open socket: whether it is watched for something to read, and for room."""
        self._scheduled: set[SystemAssociation] = set()
        """Those that have their turn again soon."""
        first = self._opener.open()
        self.port, self.udp_port = first.getsockname()[1], udp_port
        self._listening: socket.socket | None = None
        if port is None:
            first.close()
        else:
            first.listen(BACKLOG)
            self._listening = first
            self._accept()

    @property
    def warnings(self) -> list[str]:
        """What the system does not do of what the options say."""
        return self._opener.warnings

    def connect(self, addresses: list[bytes], port: int) -> Conversation:
        """Begin an association with the peer of these addresses."""
        made = self._opener.open()
        association = self._keep(made, addresses, port)
        conversation = self._converse(self, association)
        assert conversation is not None
        self.conversations[association] = conversation
        targets = b"".join(layout.socket_address(address, port) for address in addresses)
        try:
            made.setsockopt(layout.IPPROTO_SCTP, layout.Option.CONNECTX, targets)
        except BlockingIOError:
            pass
        except OSError as error:
            conversation.fail(f"cannot connect to {conversation.peer}: {error.strerror}")
        return conversation

    def close_all(self) -> None:
        """Let all conversations end when their peers have everything; nobody else may begin one."""
        self._stop_listening()
        super().close_all()

    def close(self) -> None:
        """Give the sockets back."""
        self._stop_listening()
        for association in list(self._watches):
            self._drop(association)

    def _stop_listening(self) -> None:
        listening, self._listening = self._listening, None
        if listening is not None:
            self.host.set_timer(None, self._accept, self)
            self.host.poller.watch(listening.fileno(), readable=None, writable=None)
            listening.close()

    # ------------------------------------------------------------------ sockets

    def _keep(self, sock: socket.socket, addresses: list[bytes], port: int) -> SystemAssociation:
        association = SystemAssociation(sock, addresses, port, self._options, tracks=self._plain)
        self._watches[association] = False, False
        self._watch(association)
        return association

    def _watch(self, association: SystemAssociation) -> None:
        """Watch a socket for what is waited for; the timer stands in for news that are not read."""
        unread = association.has_messages()
        wanted = not unread, association.sender.blocked
        if self._watches[association] != wanted:
            self._watches[association] = wanted
            self.host.poller.watch(
                association.socket.fileno(),
                readable=partial(self._on_readable, association) if wanted[0] else None,
                writable=partial(self.flush, association) if wanted[1] else None,
            )
            self._arm_poll(association, wanted=unread)

    def _arm_poll(self, association: SystemAssociation, *, wanted: bool) -> None:
        when = self.host.now() + POLL_INTERVAL if wanted else None
        self.host.set_timer(when, partial(self._poll, association), association)

    def _drop(self, association: SystemAssociation) -> None:
        if self._watches.pop(association, None) is not None:
            self.bytes_in += association.bytes_in
            self.bytes_out += association.sender.bytes
            self._arm_poll(association, wanted=False)
            self.host.poller.watch(association.socket.fileno(), readable=None, writable=None)
            if not association.finishes:
                association.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORTING)
            association.socket.close()

    # ------------------------------------------------------------------ what comes

    def _accept(self, *, again: float | None = None) -> None:
        """Look at who comes, or do so ``again`` at that time."""
        assert self._listening is not None
        readable = self._on_incoming if again is None else None
        self.host.poller.watch(self._listening.fileno(), readable=readable, writable=None)
        self.host.set_timer(again, self._accept, self)

    def _on_incoming(self) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            if self._listening is None:
                return
            try:
                made, address = self._listening.accept()
            except BlockingIOError:
                return
            except OSError:  # it has gone again, or there are no descriptors for now
                self._accept(again=self.host.now() + ACCEPT_RETRY)
                return
            made.setblocking(False)
            association = self._keep(made, [packed(address[0])], address[1])
            self._advance(association)

    def _on_readable(self, association: SystemAssociation) -> None:
        association.read(READS_PER_TURN, self._buffer)
        self._advance(association)

    def _advance(self, association: SystemAssociation) -> None:
        """See what has become of an association, and send what there is to send."""
        self._scheduled.discard(association)
        if association not in self._watches:
            return
        self._progress(association, self.host.now())
        self._ended.clear()
        if association in self.conversations:
            self.flush(association)
        else:
            self._drop(association)

    def _poll(self, association: SystemAssociation) -> None:
        if association in self._watches:
            self._arm_poll(association, wanted=True)
            association.sender.ran_dry()
            self._advance(association)

    # ------------------------------------------------------------------ what goes

    def _flusher(self, association: SystemAssociation) -> Callable[[], Any]:
        return partial(self.flush, association)

    def flush(self, association: SystemAssociation) -> None:
        """Hand over what the system takes; a stream that has more to give does so when its neighbours had their turn."""
        if association not in self._watches:
            return
        if association not in self.conversations:
            self._drop(association)
            return
        handed = association.hand_over(self.host.now())
        self._watch(association)
        if (handed or association.state is State.CLOSED) and association not in self._scheduled:
            self._scheduled.add(association)
            self.host.soon(partial(self._advance, association))

    def statistics(self) -> dict[str, int]:
        """Bytes of messages."""
        there = list(self._watches)
        return {
            "bytes_in": self.bytes_in + sum(each.bytes_in for each in there),
            "bytes_out": self.bytes_out + sum(each.sender.bytes for each in there),
        }
