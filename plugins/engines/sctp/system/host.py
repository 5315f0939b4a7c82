"""System host: where sockets of the operating system's SCTP meet conversations.

Paths, retransmissions and timers are the system's. A socket is read while its conversation takes what
arrives, and watched for writability while its send buffer is full.

A socket that is not read has a second effect: notifications come in the same queue as messages (RFC 6458,
6), behind those that wait. So nothing would be known of acknowledgements. A timer looks at the socket's
memory instead (``_poll``).
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
"""Seconds to wait after ``accept`` has failed."""
POLL_INTERVAL = 0.05
"""Seconds between looks at what is acknowledged while a socket is not read: its notifications wait behind its
messages."""
_ABORTING = Struct("ii").pack(1, 0)
"""SO_LINGER with zero seconds: closing the socket aborts the association."""


class SystemHost(ConversationHost[SystemAssociation]):
    """A socket for each association, and a listening one."""

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
        """Open the first socket.

        ``port`` is a listener's (0: any), or None for a dialler. Raises ``OSError``.
        """
        super().__init__(host, engine, options, converse)
        self.bytes_in = self.bytes_out = 0
        self._plain = options.address.startswith("plain+")
        self._opener = SocketFactory(options, hosts, port=port or 0, udp_port=udp_port)
        self._buffer = memoryview(bytearray(READ_SIZE))
        self._watches: dict[SystemAssociation, tuple[bool, bool]] = {}
        """For each open socket: whether it is watched for input, and for room to send."""
        self._scheduled: set[SystemAssociation] = set()
        """Associations that are scheduled to continue in the next turn."""
        # Opened for a dialler, too, although each of its associations has a socket of its own: a system
        # without SCTP, an option that it does not know or an address that cannot be bound is reported at the
        # start.
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
        """Options that the system does not support."""
        return self._opener.warnings

    def connect(self, addresses: list[bytes], port: int) -> Conversation:
        """Start an association with the peer that has these addresses."""
        made = self._opener.open()
        association = self._keep(made, addresses, port)
        conversation = self._converse(self, association)
        assert conversation is not None
        self.conversations[association] = conversation
        targets = b"".join(layout.socket_address(address, port) for address in addresses)
        try:
            made.setsockopt(layout.IPPROTO_SCTP, layout.Option.CONNECTX, targets)
        # The socket does not block: the outcome comes as a notification.
        except BlockingIOError:
            pass
        except OSError as error:
            conversation.fail(f"cannot connect to {conversation.peer}: {error.strerror}")
        return conversation

    def close_all(self) -> None:
        """Shut all conversations down when their peers have everything, and accept no more."""
        self._stop_listening()
        super().close_all()

    def close(self) -> None:
        """Close the sockets."""
        self._stop_listening()
        for association in list(self._watches):
            self._drop(association)

    def repeats_until(self) -> float:
        """Return 0: the system answers for sockets that are closed."""
        return 0.0

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
        """Watch a socket for what it waits for. While it is not read, a timer looks for acknowledgements."""
        unread = association.has_messages()
        wanted = not unread, association.sender.blocked
        # The poller is told of changes only.
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
            # The counters of the engine outlive its associations.
            self.bytes_in += association.bytes_in
            self.bytes_out += association.sender.bytes
            self._arm_poll(association, wanted=False)
            self.host.poller.watch(association.socket.fileno(), readable=None, writable=None)
            if not association.finishes:
                # RFC 6458, 8.1.4: zero seconds abort the association. Without that the system would go on to
                # send what it has, for a conversation that has ended.
                association.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORTING)
            association.socket.close()

    # ------------------------------------------------------------------ what comes

    def _accept(self, *, again: float | None = None) -> None:
        """Watch the listening socket, or stop and watch it ``again`` at that time."""
        assert self._listening is not None
        readable = self._on_incoming if again is None else None
        self.host.poller.watch(self._listening.fileno(), readable=readable, writable=None)
        self.host.set_timer(again, self._accept, self)

    def _on_incoming(self) -> None:
        # A bound, so that a flood of associations does not stop the thread's other engines.
        for _ in range(ACCEPTS_PER_TURN):
            if self._listening is None:
                return
            try:
                made, address = self._listening.accept()
            except BlockingIOError:
                return
            except OSError:
                # The peer has gone, or there are no free descriptors. The socket would stay readable, and
                # this thread would turn in a loop: it is not watched for a while.
                self._accept(again=self.host.now() + ACCEPT_RETRY)
                return
            # Accepted sockets do not inherit this from the listening one.
            made.setblocking(False)
            association = self._keep(made, [packed(address[0])], address[1])
            self._advance(association)

    def _on_readable(self, association: SystemAssociation) -> None:
        association.read(READS_PER_TURN, self._buffer)
        self._advance(association)

    def _advance(self, association: SystemAssociation) -> None:
        """Process what happened to an association, and send what is due."""
        self._scheduled.discard(association)
        if association not in self._watches:
            return
        self._progress(association, self.host.now())
        # The list is for ``EndpointHost``. Here ``_drop`` closes the socket, and the system sends the last
        # packets.
        self._ended.clear()
        # The conversation may have ended by what was read.
        if association in self.conversations:
            self.flush(association)
        else:
            self._drop(association)

    def _poll(self, association: SystemAssociation) -> None:
        if association in self._watches:
            self._arm_poll(association, wanted=True)
            # As if the notification had come.
            association.sender.ran_dry()
            self._advance(association)

    # ------------------------------------------------------------------ what goes

    def _flusher(self, association: SystemAssociation) -> Callable[[], Any]:
        return partial(self.flush, association)

    def flush(self, association: SystemAssociation) -> None:
        """Hand over what the system accepts.

        A stream with more to send continues after its neighbours had their turn.
        """
        if association not in self._watches:
            return
        if association not in self.conversations:
            self._drop(association)
            return
        handed = association.hand_over(self.host.now())
        self._watch(association)
        # In a later turn and not at once: ``flush`` is also called from within a conversation, which must not
        # be entered twice.
        if (handed or association.state is State.CLOSED) and association not in self._scheduled:
            self._scheduled.add(association)
            self.host.soon(partial(self._advance, association))

    def statistics(self) -> dict[str, int]:
        """Return the bytes of messages, both ways."""
        there = list(self._watches)
        return {
            "bytes_in": self.bytes_in + sum(each.bytes_in for each in there),
            "bytes_out": self.bytes_out + sum(each.sender.bytes for each in there),
        }
