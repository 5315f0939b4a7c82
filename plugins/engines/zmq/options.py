"""Options of the ØMQ engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec

from kernel.contracts.options import ListeningPlace
from kernel.hosting.address import Address, parse_address
from kernel.hosting.backoff import BackoffOptions
from plugins.protocols.zmtp.options import ZmtpOptions
from plugins.protocols.zmtp.z85 import decode_key

EVERYBODY = "*"
"""In place of a key: every client."""

_TRANSPORTS = {"tcp": "tcp", "ipc": "unix", "inproc": "inproc"}
"""ØMQ's names of transports, and the kernel's."""


class ZmqOptions(ZmtpOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A socket of ØMQ: libzmq, pyzmq and others are its peers.  Each peer has its own pipes, and so its own limits."""

    bind: tuple[str, ...] = ()
    """Places to listen at: ``tcp://127.0.0.1:5556``, ``tcp://*:5556``, ``ipc:///run/feed.sock``,
    ``inproc://name`` for other sockets of this kernel."""
    connect: tuple[str, ...] = ()
    """Places to connect to.  Messages for a peer that is not there wait in the pipes of its route."""
    reconnect: BackoffOptions = BackoffOptions()
    """The waits between attempts to connect."""
    connect_timeout: Annotated[float, msgspec.Meta(gt=0)] = 10.0
    """Seconds that one attempt to connect may take."""
    max_connections: Annotated[int, msgspec.Meta(ge=1)] = 10_000
    """Connections of all bind places together.  Further ones are closed at once, and counted."""
    handover: bool = False
    """For ROUTER: whether a peer with an identity that another peer has takes its place.  If not, it is refused."""
    immediate: bool = False
    """Whether messages wait only for peers of ``connect`` places that are there.  If not, they also wait for one
    that is away.  A ROUTER and a REP know a peer only when it is there."""
    places_later: bool = False
    """Whether it may begin without a place: the operations ``bind`` and ``connect`` add places."""
    authenticator: str = ""
    """With PLAIN and ``bind``, and for a server with CURVE: the engine that decides on logins; with CURVE on
    clients that are not listed.  Its ``operate("authenticate", login)`` is
    called, as for kind ``stream``; the login is accepted unless it raises ``KernelError``."""

    zap_domain: str = ""
    """A name for the ``authenticator``: it stands in ``facts["domain"]`` of each login, as the domain of ZAP."""
    curve_certificate: str = ""
    """With CURVE: a file with the keys of this side, as ``kernel zmq-keys`` and ``zmq.auth`` of pyzmq write it, in
    place of ``curve_secret_key``."""
    curve_clients: dict[str, str] = {}
    """For a server with CURVE: which clients are let in.  A name for each public key (Z85); the key ``*`` is
    everybody.  The name is the property ``user_id`` of what the client sends."""
    curve_clients_folder: str = ""
    """For a server with CURVE: a folder with certificates of clients (``*.key``, the public part).  Each is a
    client that is let in, named as the file.  A change of the folder holds for logins after it."""

    def listens_at(self) -> Iterator[tuple[str, ListeningPlace]]:
        """``Listens``: the bind places."""
        for text in self.bind:
            yield "bind", place_of(text).listening_place()

    def dials_to(self) -> Iterator[tuple[str, str]]:
        """``Dials``: the connect places."""
        for text in self.connect:
            yield "connect", str(place_of(text))

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("bind", "connect"):
            for text in getattr(self, name):
                try:
                    address = place_of(text)
                except ValueError as error:
                    raise ValueError(f"{name}: {error}") from None
                if name == "connect" and address.transport == "tcp" and not address.host:
                    raise ValueError(f"connect: {text!r}: * is for bind; name a host")
        places = len(self.bind) + len(self.connect)
        if self.handover and self.type != "ROUTER":
            raise ValueError(f"handover is for ROUTER, and this is {self.type}")
        if not places and not self.places_later:
            raise ValueError('it has neither bind nor connect: bind = ["tcp://127.0.0.1:5556"], for example')
        if self.type == "PAIR" and places > 1:
            raise ValueError("PAIR has one peer, so it has one place")
        if self.bind and self.mechanism == "PLAIN" and not self.authenticator:
            raise ValueError("authenticator: PLAIN at a bind place needs the engine that decides on logins")
        if self.connect and self.mechanism == "PLAIN" and not self.username:
            raise ValueError("username: PLAIN at a connect place needs it")
        self._check_clients()

    def _check_keys(self) -> None:
        if not self.curve_certificate:
            super()._check_keys()
        elif self.mechanism != "CURVE":
            raise ValueError('curve_certificate is for mechanism = "CURVE"')
        elif self.curve_secret_key:
            raise ValueError("curve_certificate and curve_secret_key say the same; give one of them")
        else:
            self._check_curve({"curve_server_key": self.curve_server_key})

    def _check_clients(self) -> None:
        listed = bool(self.curve_clients or self.curve_clients_folder)
        if listed and (self.mechanism != "CURVE" or self.curve_server_key):
            raise ValueError("curve_clients and curve_clients_folder are for a server with CURVE")
        for name, key in self.curve_clients.items():
            try:
                decode_key(key) if key != EVERYBODY else None
            except ValueError as error:
                raise ValueError(f"curve_clients: {name}: {error}") from None
        if self.mechanism == "CURVE" and not self.curve_server_key and not listed and not self.authenticator:
            raise ValueError(
                "a server with CURVE needs to know whom to let in: curve_clients, curve_clients_folder or "
                'authenticator; curve_clients = {everybody = "*"} lets everybody in'
            )


def place_of(text: str) -> Address:
    """Read a place as ØMQ writes it; ``ValueError`` says what is wrong."""
    transport, separator, place = text.partition("://")
    if not separator or transport not in _TRANSPORTS:
        raise ValueError(f"{text!r}: a place here begins with tcp://, ipc:// or inproc://")
    if transport == "ipc" and place.startswith("@"):
        raise ValueError(f"{text!r}: names in the abstract namespace are not supported; take a path")
    if transport == "tcp" and place.startswith("*:"):
        place = place[1:]
    return parse_address(f"zmtp+{_TRANSPORTS[transport]}://{place}", tuple(_TRANSPORTS.values()))


def name_of(address: Address, place: str = "") -> str:
    """Return a place as ØMQ writes it; ``place``: with the port that the system has chosen."""
    names = {ours: name for name, ours in _TRANSPORTS.items()}
    return f"{names[address.transport]}://{place or address.place}"
