"""Socket types as data: with whom each may talk, and which way its messages go."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

TypeName: TypeAlias = Literal[
    "PUB",
    "SUB",
    "XPUB",
    "XSUB",
    "PUSH",
    "PULL",
    "PAIR",
    "REQ",
    "REP",
    "DEALER",
    "ROUTER",
    "STREAM",
    "CLIENT",
    "SERVER",
    "RADIO",
    "DISH",
    "SCATTER",
    "GATHER",
]
"""The types that this protocol has."""

NUMBERED = ("PAIR", "PUB", "SUB", "REQ", "REP", "DEALER", "ROUTER", "PULL", "PUSH", "XPUB", "XSUB")
"""All types in the order of 15/ZMTP, whose greeting has the number instead of the name."""


class SocketType(msgspec.Struct, frozen=True, kw_only=True):
    """What one side of a pattern does."""

    name: str
    peers: frozenset[str]
    """The types of peers with which a conversation makes sense."""
    gives: bool = False
    """Whether its messages go to the peer."""
    takes: bool = False
    """Whether messages of the peer are accepted."""
    publishes: bool = False
    """Whether its peers subscribe, and get only what they have subscribed to."""
    subscribes: bool = False
    """Whether it subscribes at its peers."""
    sifts: bool = False
    """Whether what it has not subscribed to is dropped when it comes.  An XSUB takes what its
    peers decide to send."""
    identified: bool = False
    """Whether it tells its peers an identity."""
    names_peers: bool = False
    """Whether it sends to a peer by its identity, and so needs one of each peer."""
    single: bool = False
    """Whether a message has one part only (the types that are drafts)."""
    grouped: bool = False
    """Whether each message is of a group, which its key is, and subscriptions name whole groups."""
    raw: bool = False
    """Whether its peers do not speak ZMTP: what they send is bytes without messages."""

    @property
    def number(self) -> int | None:
        """The number of the type in the greeting of ZMTP 2.0; None: that version does not have the type."""
        return NUMBERED.index(self.name) if self.name in NUMBERED else None


_SUBSCRIBERS, _PUBLISHERS = frozenset({"SUB", "XSUB"}), frozenset({"PUB", "XPUB"})

SOCKET_TYPES = {
    each.name: each
    for each in (
        # 29/PUBSUB
        SocketType(name="PUB", peers=_SUBSCRIBERS, gives=True, publishes=True),
        SocketType(name="SUB", peers=_PUBLISHERS, takes=True, subscribes=True, sifts=True),
        SocketType(name="XPUB", peers=_SUBSCRIBERS, gives=True, takes=True, publishes=True),
        SocketType(name="XSUB", peers=_PUBLISHERS, gives=True, takes=True, subscribes=True),
        # 28/REQREP
        SocketType(name="REQ", peers=frozenset({"REP", "ROUTER"}), gives=True, takes=True, identified=True),
        SocketType(name="REP", peers=frozenset({"REQ", "DEALER"}), gives=True, takes=True, names_peers=True),
        SocketType(
            name="DEALER",
            peers=frozenset({"REP", "DEALER", "ROUTER"}),
            gives=True,
            takes=True,
            identified=True,
        ),
        SocketType(
            name="ROUTER",
            peers=frozenset({"REQ", "DEALER", "ROUTER"}),
            gives=True,
            takes=True,
            identified=True,
            names_peers=True,
        ),
        # 30/PIPELINE
        SocketType(name="PUSH", peers=frozenset({"PULL"}), gives=True),
        SocketType(name="PULL", peers=frozenset({"PUSH"}), takes=True),
        # 31/EXPAIR
        SocketType(name="PAIR", peers=frozenset({"PAIR"}), gives=True, takes=True),
        # 41/CLISRV
        SocketType(name="CLIENT", peers=frozenset({"SERVER"}), gives=True, takes=True, single=True),
        SocketType(
            name="SERVER",
            peers=frozenset({"CLIENT"}),
            gives=True,
            takes=True,
            names_peers=True,
            single=True,
        ),
        # 48/RADIODISH
        SocketType(
            name="RADIO",
            peers=frozenset({"DISH"}),
            gives=True,
            publishes=True,
            single=True,
            grouped=True,
        ),
        SocketType(
            name="DISH",
            peers=frozenset({"RADIO"}),
            takes=True,
            subscribes=True,
            sifts=True,
            single=True,
            grouped=True,
        ),
        # 49/SCATTERGATHER
        SocketType(name="SCATTER", peers=frozenset({"GATHER"}), gives=True, single=True),
        SocketType(name="GATHER", peers=frozenset({"SCATTER"}), takes=True, single=True),
        # libzmq's manual, zmq_socket(3)
        SocketType(name="STREAM", peers=frozenset(), gives=True, takes=True, names_peers=True, raw=True),
    )
}
