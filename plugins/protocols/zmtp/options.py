"""Options of ZMTP."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from kernel.contracts.extras import Extra
from plugins.protocols.zmtp.keys import KEY_LIMIT
from plugins.protocols.zmtp.socket_types import SOCKET_TYPES, SocketType, TypeName
from plugins.protocols.zmtp.z85 import decode_key

IDENTITY_LIMIT = 255
"""Bytes of an identity at most."""

CURVE = Extra("curve", "keys of CURVE need PyNaCl", ("nacl",))

_Positive = Annotated[int, msgspec.Meta(ge=1)]
_Seconds = Annotated[float, msgspec.Meta(ge=0)]
_Name = Annotated[str, msgspec.Meta(max_length=63)]


class ZmtpOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """ZMTP 3.1, the protocol of ØMQ; 3.0, 2.0 and 1.0 for older peers."""

    type: TypeName
    """The socket type of this side."""
    key_part: bool | None = None
    """Whether the first part of a message is its key (routing key, topic), and the rest its body.  Not set:
    true for PUB, SUB, XPUB, XSUB, RADIO and DISH, false for all others."""
    subscribe: tuple[str, ...] = ()
    """For SUB and XSUB: prefixes to subscribe to.  ``[""]`` is everything.  What readers of the messages
    subscribe to here is subscribed to at the peer as well.  For DISH: groups to join."""
    chosen_by_route: bool = False
    """For PUB and XPUB with ``key_part = false``: all routes to it have ``router = "by-prefix"``.  Then what
    they bring is sent as it is, and not compared with the peer's subscriptions once more."""
    only_first_subscribe: bool = True
    """For PUB and XPUB: of a message of several parts from an XSUB, whether only one whose first part is a
    subscription has subscriptions in it.  Otherwise each part that begins with a byte 0 or 1 is one."""
    invert_matching: bool = False
    """For PUB, XPUB and SUB: whether a subscriber gets all but what it has subscribed to.  Both sides need
    it, and routes to a PUB are without ``router``, since routers know only what is wanted."""
    identity: Annotated[str, msgspec.Meta(max_length=255)] = ""
    """For REQ, DEALER and ROUTER: the identity that is told to peers.  A ROUTER finds this socket by it.
    Empty: the peer makes one up for each connection."""
    correlate: bool = False
    """For REQ: put a number before each question, which the answer brings back.  Then many questions may be
    open at a time; without it one at each peer."""
    answer_by_key: bool = False
    """For REQ: an answer has the reply address of its question as key, and its ``correlation_id``,
    as the answer of an AMQP worker has; without it the whole envelope of the question.  It is for
    askers behind a broker."""
    relay: bool = False
    """For DEALER: put the name of the port that asks before each question as one more address, and take it
    off the answer, as a device between ROUTER and DEALER does."""
    mechanism: Literal["NULL", "PLAIN", "CURVE"] = "NULL"
    """``PLAIN``: user name and password, in clear text.  Whoever connects shows them, and the one that
    listens has them decided on.  ``CURVE``: keys, and everything is encrypted.  It needs PyNaCl
    (``pip install 'messaging-kernel[curve]'``)."""
    username: _Name = ""
    """For a dialler with PLAIN."""
    password: _Name = ""
    """For a dialler with PLAIN."""
    plain_server: bool | None = None
    """With PLAIN: whether this side lets the other one in.  Not set: the one that listens does."""
    curve_secret_key: str = ""
    """The secret key of this side, in Z85.  ``kernel zmq-keys`` makes pairs.  A client without one takes a
    new one for each connection."""
    curve_server_key: str = ""
    """The public key of the server, in Z85.  With it this side is the client, and without it the server.  It
    does not matter who listens."""
    zap_domain: str = ""
    """A name for whoever decides on logins: it stands in ``facts["domain"]`` of each login, as the domain of
    ZAP.  With it also the peers of NULL are decided on, by their addresses."""
    max_message: _Positive = 256 * 1024 * 1024
    """Bytes of the largest message that is accepted from the peer, all parts together."""
    parts_alone: bool = False
    """Whether ``max_message`` limits each part, as in libzmq; a message may have ``max_parts`` of them."""
    max_parts: _Positive = 4096
    """Parts of a message that are accepted at most."""
    max_subscriptions: _Positive = 16384
    """Subscriptions that the peer may have at a time."""
    subscription_bytes: _Positive = 1024 * 1024
    """Bytes of these subscriptions together."""
    handshake: _Seconds = 10.0
    """Seconds that a peer may take from the connection to its READY.  0: any time."""
    heartbeat: Annotated[float, msgspec.Meta(ge=0, le=2000)] = 10.0
    """Seconds without a byte of the peer after which it is sent a PING, if it speaks ZMTP 3.1.
    0: no heartbeats."""

    heartbeat_timeout: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Seconds behind a PING without a byte of the peer after which it is given up.  0:
    twice ``heartbeat``."""
    heartbeat_ttl: Annotated[float, msgspec.Meta(ge=0, le=6553.5)] = 0.0
    """Seconds after which the peer shall give this side up if it hears nothing: each PING says so.  0: three
    times ``heartbeat``."""
    hello: str | None = None
    """A message that goes to each new peer before all others.  It may be empty.  A subscriber gets it when it
    has subscribed to it."""

    def __post_init__(self) -> None:
        kind = SOCKET_TYPES[self.type]
        self._check_subscriptions(kind)
        if kind.grouped:
            self._check_groups()
        if self.hello is not None and (not kind.gives or kind.raw or kind.grouped):
            raise ValueError(f"hello: {self.type} does not send any")
        if kind.raw and (self.mechanism != "NULL" or self.zap_domain or self.key_part):
            raise ValueError(
                "STREAM has neither mechanism nor zap_domain nor key_part: its peers do not speak ZMTP"
            )
        if self.identity and not kind.identified:
            raise ValueError(f"identity: {self.type} tells none; REQ, DEALER and ROUTER do")
        if len(identity_of(self)) > IDENTITY_LIMIT or self.identity.startswith("\0"):
            raise ValueError(
                f"identity: it has at most {IDENTITY_LIMIT} bytes, and does not begin with a zero byte"
            )
        for name, owner in (("correlate", "REQ"), ("answer_by_key", "REQ"), ("relay", "DEALER")):
            if getattr(self, name) and self.type != owner:
                raise ValueError(f"{name} is for {owner}, and this is {self.type}")
        self._check_plain()
        self._check_keys()

    def _check_subscriptions(self, kind: SocketType) -> None:
        if self.subscribe and not kind.subscribes:
            raise ValueError(f"subscribe: {self.type} does not subscribe; SUB, XSUB and DISH do")
        if self.invert_matching and (self.type not in ("PUB", "XPUB", "SUB") or self.chosen_by_route):
            raise ValueError("invert_matching is for PUB, XPUB and SUB without chosen_by_route")
        if self.chosen_by_route and (self.type not in ("PUB", "XPUB") or self.key_part is not False):
            raise ValueError("chosen_by_route is for PUB and XPUB with key_part = false")

    def _check_groups(self) -> None:
        if self.key_part is False:
            raise ValueError(f"key_part: the group of a message is its key, so a {self.type} has one")
        if any(len(group.encode()) > KEY_LIMIT for group in self.subscribe):
            raise ValueError(f"subscribe: a group has at most {KEY_LIMIT} bytes")

    def _check_plain(self) -> None:
        if (self.username or self.password) and self.mechanism != "PLAIN":
            raise ValueError('username and password are for mechanism = "PLAIN"')
        if self.plain_server is not None and self.mechanism != "PLAIN":
            raise ValueError('plain_server is for mechanism = "PLAIN"')
        if any(not value.isascii() or not value.isprintable() for value in (self.username, self.password)):
            raise ValueError("username and password are printable ASCII")

    def _check_keys(self) -> None:
        keys = {name: getattr(self, name) for name in ("curve_secret_key", "curve_server_key")}
        if self.mechanism == "CURVE":
            self._check_curve(keys)
            if not any(keys.values()):
                raise ValueError("CURVE needs curve_secret_key at a server, and curve_server_key at a client")
        elif any(keys.values()):
            raise ValueError('curve_secret_key and curve_server_key are for mechanism = "CURVE"')

    def _check_curve(self, keys: dict[str, str]) -> None:
        if not CURVE.is_installed():
            raise ValueError(CURVE.complaint())
        for name, key in keys.items():
            try:
                decode_key(key) if key else None
            except ValueError as error:
                # Without the key, which may be a secret.
                raise ValueError(f"{name}: {error}") from None


def identity_of(options: ZmtpOptions) -> bytes:
    """Return the octets of the identity.  Those that are not UTF-8 are lone surrogates in the text."""
    return options.identity.encode("utf-8", "surrogateescape")


def hello_of(options: ZmtpOptions) -> bytes | None:
    """Return the octets of the message to each new peer.

    Those that are not UTF-8 are lone surrogates in the text.
    """
    return None if options.hello is None else options.hello.encode("utf-8", "surrogateescape")
