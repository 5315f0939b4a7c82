"""Options of the ØMQ engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from kernel.contracts.options import ListeningPlace
from kernel.hosting.address import WEB_TRANSPORTS, Address, parse_address
from kernel.hosting.backoff import BackoffOptions
from kernel.hosting.tls_options import TlsOptions
from kernel.hosting.web_options import WebOptions
from plugins.protocols.zmtp.options import ZmtpOptions
from plugins.protocols.zmtp.socket_types import SOCKET_TYPES
from plugins.protocols.zmtp.z85 import decode_key

if TYPE_CHECKING:
    from kernel.hosting.handshakes import Handshakes

EVERYBODY = "*"
"""In place of a key: every client."""

_TRANSPORTS = {"tcp": "tcp", "ipc": "unix", "inproc": "inproc", "tls": "tls", "ws": "ws", "wss": "wss"}
"""ØMQ's names of transports, and the kernel's.  ØMQ has no ``tls``."""
_OF_HOSTS = ("tcp", "tls", *WEB_TRANSPORTS)
"""Those whose places have a host and a port."""


class ZmqOptions(ZmtpOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A socket of ØMQ: libzmq, pyzmq and others are its peers.

    Each peer has its own pipes, and so its own limits.
    """

    bind: tuple[str, ...] = ()
    """Places to listen at: ``tcp://127.0.0.1:5556``, ``tcp://*:5556``, ``ipc:///run/feed.sock``,
    ``inproc://name`` for other sockets of this kernel, ``tls://*:5556``, ``ws://*:8080/feed``, ``wss://*:8443``."""
    connect: tuple[str, ...] = ()
    """Places to connect to.  Messages for a peer that is not there wait in the pipes of its route."""
    tls: TlsOptions = TlsOptions()
    """For ``tls`` and ``wss`` places."""
    web: WebOptions = WebOptions()
    """For ``ws`` and ``wss`` places.  The subprotocol follows from ``mechanism``."""
    reconnect: BackoffOptions = BackoffOptions()
    """The waits between attempts to connect."""
    again: Literal["always", "not inproc", "never"] = "always"
    """Which connections are made again when they are lost or could not be made.

    Over ``inproc`` libzmq makes none again.  The ``connect`` place of one that is not made again is removed.
    """
    connect_timeout: Annotated[float, msgspec.Meta(gt=0)] = 10.0
    """Seconds that one attempt to connect, or a handshake of TLS or WebSocket, may take."""
    exchange: str = ""
    """The exchange of messages from peers, where a route leads to a broker; empty: its default one."""
    key: str = ""
    """The key of messages from peers that bring none.

    With an empty ``exchange`` it names a queue of a broker.
    """
    max_connections: Annotated[int, msgspec.Meta(ge=1)] = 10_000
    """Connections of all bind places together.  Further ones are closed at once, and counted."""
    handover: bool = False
    """For ROUTER: whether a peer with an identity that another peer has takes its place.

    If not, it is refused.
    """
    immediate: bool = False
    """Whether messages wait only for peers of ``connect`` places that are there.

    If not, they also wait for one that is away.  A ROUTER and a REP know a peer only when it is there.
    """
    any_inproc_peer: bool = False
    """Whether types that do not fit may talk over ``inproc``, as in libzmq: a PAIR sends to a PULL."""
    notify: bool = True
    """For STREAM: whether an empty message says that a peer has come, or has gone."""
    places_later: bool = False
    """Whether it may begin without a place: the operations ``bind`` and ``connect`` add places."""
    authenticator: str = ""
    """Who decides on logins: with PLAIN and ``bind``, at a server with CURVE on clients that are not listed,
    and with NULL if there is a ``zap_domain``.  The name of an engine, whose ``operate("authenticate",
    login)`` is called, as for kind ``stream``; the login is accepted unless it raises ``KernelError``.  Or
    ``inproc://zeromq.zap.01``: the REP or ROUTER of this kernel that is bound there is asked in ZAP."""
    authenticator_needed: bool = True
    """Whether peers are refused while nobody is bound at the ``inproc`` place that ``authenticator`` names.

    If not, NULL and CURVE let everybody in until then, as libzmq does without ``ZMQ_ZAP_ENFORCE_DOMAIN``.
    """
    describe_peers: bool = False
    """Whether what a peer sends has headers with what is known of the peer: ``Socket-Type``, ``Routing-Id``,
    ``Peer-Address``.  What an answer in ZAP says of it is there in any case."""
    curve_certificate: str = ""
    """With CURVE: a file with the keys of this side, as ``kernel zmq-keys`` and ``zmq.auth`` of pyzmq write
    it, in place of ``curve_secret_key``."""
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
                    self.check_place(place_of(text), listens=name == "bind")
                except ValueError as error:
                    raise ValueError(f"{name}: {error}") from None
        if self.web.subprotocols:
            raise ValueError("web.subprotocols: ZWS has names of its own")
        places = len(self.bind) + len(self.connect)
        if self.handover and self.type != "ROUTER":
            raise ValueError(f"handover is for ROUTER, and this is {self.type}")
        if not places and not self.places_later:
            raise ValueError('it has neither bind nor connect: bind = ["tcp://127.0.0.1:5556"], for example')
        if self.type == "PAIR" and places > 1:
            raise ValueError("PAIR has one peer, so it has one place")
        self._check_logins()
        self._check_clients()

    def check_place(self, address: Address, *, listens: bool) -> None:
        """Raise ``ValueError`` if there cannot be such a place with these options."""
        if not listens and address.transport in _OF_HOSTS and not address.host:
            raise ValueError(f"{name_of(address)!r}: * is for bind; name a host")
        if listens:
            self.tls.check_listener(address.transport)
        if SOCKET_TYPES[self.type].raw and address.transport in ("inproc", *WEB_TRANSPORTS):
            raise ValueError(f"{name_of(address)!r}: peers of STREAM are at tcp, tls and ipc")
        if SOCKET_TYPES[self.type].grouped and address.transport in WEB_TRANSPORTS:
            raise ValueError(f"{name_of(address)!r}: RADIO and DISH are at tcp, tls, ipc and inproc")
        if address.transport in WEB_TRANSPORTS and self.mechanism == "CURVE":
            raise ValueError(f"{name_of(address)!r}: 45/ZWS has NULL and PLAIN; take wss for encryption")

    def _check_logins(self) -> None:
        if self.zap_domain and self.mechanism == "NULL" and not self.authenticator:
            raise ValueError("authenticator: with zap_domain also peers of NULL are decided on; say by whom")
        lets_in = bool(self.bind) if self.plain_server is None else self.plain_server
        if lets_in and self.mechanism == "PLAIN" and not self.authenticator:
            raise ValueError("authenticator: PLAIN at a bind place needs who decides on logins")
        if "://" in self.authenticator and not self.authenticator.startswith("inproc://"):
            raise ValueError(
                f"authenticator: {self.authenticator!r} is neither an engine nor a place of inproc"
            )
        if self.connect and self.mechanism == "PLAIN" and not self.plain_server and not self.username:
            raise ValueError("username: PLAIN at a connect place needs it")

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
    if transport in ("pgm", "epgm"):
        raise ValueError(
            f'{text!r}: a socket has no multicast.  An engine of kind "pgm" with address = "zmtp1+{text}" has it, '
            "and a route joins both"
        )
    if not separator or transport not in _TRANSPORTS:
        known = ", ".join(f"{each}://" for each in _TRANSPORTS)
        raise ValueError(f"{text!r}: a place here begins with one of {known}")
    if transport == "ipc" and place.startswith("@"):
        raise ValueError(f"{text!r}: names in the abstract namespace are not supported; take a path")
    if transport in _OF_HOSTS and place.startswith("*:"):
        place = place[1:]
    return parse_address(f"zmtp+{_TRANSPORTS[transport]}://{place}", tuple(_TRANSPORTS.values()))


def name_of(address: Address, place: str = "") -> str:
    """Return a place as ØMQ writes it; ``place``: with the port that the system has chosen."""
    names = {ours: name for name, ours in _TRANSPORTS.items()}
    path = address.path if place and address.transport in WEB_TRANSPORTS else ""
    return f"{names[address.transport]}://{place or address.place}{path}"


def handshakes_of(options: ZmqOptions, address: Address, *, listens: bool) -> Handshakes:
    """Return what follows a connection at a place.

    Raises ``ValueError`` and ``OSError`` as ``Handshakes``.
    """
    from kernel.hosting.handshakes import Handshakes
    from plugins.protocols.zmtp.zws import subprotocols_of

    options.check_place(address, listens=listens)
    return Handshakes(
        address,
        server_side=listens,
        tls=options.tls,
        seconds=options.connect_timeout,
        # As if an operator had asked for them: without one of them there is no ZWS.
        web=msgspec.structs.replace(options.web, subprotocols=subprotocols_of(options)),
        takes_text=False,
        keeps_messages=True,
    )
