"""XPUB whose application decides who gets what (``xpub_manual``)."""

from __future__ import annotations

from kernel.contracts.key_trie import PREFIX, KeyTrie
from kernel.contracts.message import Batch, Buffer, Envelope
from plugins.apis.sockets.end import End
from plugins.apis.sockets.errors import Again
from plugins.apis.sockets.patterns.base import batch_of_parts


class ManualSubscriptions:
    """Which peers get messages, as the application has decided; a peer is the name of its port.

    Each message is addressed to each of these peers (``router = "reply"``), since the router of the kernel
    would go by what peers have asked for.
    """

    def __init__(self, end: End, *, last_value: bool) -> None:
        """``last_value``: the next message after a subscription goes only to the peer that has subscribed."""
        self._last = ""
        """The peer whose subscription was received last; empty: it has gone."""
        self._new = ""
        """The only peer of the next message."""
        self._end = end
        self._last_value = last_value
        self._trie: KeyTrie[str] = KeyTrie()
        self._prefixes: dict[str, set[bytes]] = {}
        """By peer."""
        self._envelopes: dict[str, Envelope] = {}

    def heard(self, peer: str) -> None:
        """Take notice that the application has received a subscription of this peer, or its end."""
        self._last = peer if self._is_there(peer) else ""

    def add(self, prefix: bytes) -> None:
        """Give the last peer what begins with ``prefix``.  Nothing happens if it has gone."""
        if not self._last or not self._is_there(self._last):
            return
        prefixes = self._prefixes.setdefault(self._last, set())
        if prefix not in prefixes:
            prefixes.add(prefix)
            self._trie.add(_pattern(prefix), self._last)
        if self._last_value:
            self._new = self._last

    def remove(self, prefix: bytes) -> None:
        """Take back an ``add`` for the last peer."""
        prefixes = self._prefixes.get(self._last, set())
        if prefix in prefixes:
            prefixes.remove(prefix)
            self._trie.remove(_pattern(prefix), self._last)

    def count(self, topic: bytes | None) -> int:
        """Return how many peers get messages that begin with ``topic``; None: any messages."""
        peers = (
            [peer for peer, prefixes in self._prefixes.items() if prefixes]
            if topic is None
            else self._trie.match(topic.decode("latin-1"))
        )
        return sum(map(self._is_there, peers))

    def topics(self) -> int:
        """Return how many prefixes peers have."""
        return len(set().union(*self._prefixes.values()))

    def send(self, parts: tuple[Buffer, ...], timeout: float | None, *, waits: bool) -> None:
        """Send a message to each peer that is to have it.  ``waits``: for those that have no room."""
        end = self._end
        end.look()
        head = bytes(parts[0][: self._trie.longest_prefix()])
        peers = self._trie.match(head.decode("latin-1"))
        if self._new and self._is_there(self._new):
            peers = tuple(peer for peer in peers if peer == self._new)
        self._new = ""
        batches = [batch_of_parts(parts, self._envelope(peer)) for peer in peers if self._is_there(peer)]
        if waits and timeout == 0 and not all(map(end.room_for, batches)):
            raise Again(f"socket {end.name!r}: a subscriber has no room for a message")
        for batch in batches:
            self._send_one(batch, timeout, waits=waits)

    def _send_one(self, batch: Batch, timeout: float | None, *, waits: bool) -> None:
        if waits:
            self._end.send(batch, timeout)
        else:
            self._end.port.send((batch,))

    def _is_there(self, peer: str) -> bool:
        """Whether a peer is connected; forget it if it is not."""
        if self._end.port.wants(batch_of_parts((b"",), self._envelope(peer))):
            return True
        for prefix in self._prefixes.pop(peer, ()):
            self._trie.remove(_pattern(prefix), peer)
        self._envelopes.pop(peer, None)
        return False

    def _envelope(self, peer: str) -> Envelope:
        envelope = self._envelopes.get(peer)
        if envelope is None:
            envelope = self._envelopes[peer] = Envelope(reply_to=peer)
        return envelope


def _pattern(prefix: bytes) -> str:
    # A character for each octet, since prefixes of octets are compared.
    return PREFIX + prefix.decode("latin-1")
