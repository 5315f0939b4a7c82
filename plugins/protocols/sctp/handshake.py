"""The handshake: INIT and INIT ACK, and the cookie that holds our state at the peer (RFC 9260, 5.1).

The dialler sends INIT, with its tag, its first TSN, its window, the streams that it asks for and allows, and
the extensions that it supports. The listener answers with INIT ACK, which has the same of its own, and a
cookie. The dialler returns the cookie in COOKIE ECHO; only then does the listener make an association, and
answers with COOKIE ACK.

So the listener decides what is agreed when it has seen the INIT, and keeps the result (``Offer``) in the
cookie. The dialler decides the same from the INIT ACK. An extension is used if both sides offer it, a number
of streams is the smaller of what one asks for and the other allows.

The cookie is signed and not encrypted: what is in it can be read (5.1.3). A stranger who
knows the tags of an association can end it. The cookie therefore names an existing association by random
numbers that serve for nothing else (tie-tags, 5.2.2), and never by its tags.
"""

from __future__ import annotations

import msgspec

from plugins.protocols.sctp import parameters
from plugins.protocols.sctp.chunks import Init, Type
from plugins.protocols.sctp.options import SctpOptions
from plugins.protocols.sctp.parameters import Cause, Kind, Parameter, Parameters
from plugins.protocols.sctp.secret import Secret

_MIN_WINDOW = 1500
_MAX_ADDRESSES = 16
_MAX_REPORTED = 256
"""Bytes of unknown parameters that are reported to the peer; the others are left out (12.4).

The report of a parameter is longer than the parameter, so that the reports of a whole INIT may not fit into a
chunk.
"""


class Refused(Exception):
    """The peer's INIT or INIT ACK cannot be accepted: it is answered with ABORT and this cause."""

    def __init__(self, cause: Cause, text: str, value: bytes = b"") -> None:
        super().__init__(text)
        self.parameter = Parameter(cause, value)


class Offer(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What the peer's INIT or INIT ACK offers, reduced to what both sides support."""

    tag: int
    tsn: int
    window: int
    outbound: int
    inbound: int
    addresses: list[bytes]
    """The packet's source address, and the listed ones."""
    may_forward: bool
    """Whether both sides support FORWARD-TSN (RFC 3758)."""
    interleaved: bool
    """Whether both sides want I-DATA (RFC 8260)."""
    resets: bool
    """Whether both sides support RE-CONFIG (RFC 6525)."""
    ecn: bool
    """Whether both sides support ECN (RFC 4960, appendix A)."""


class Cookie(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Everything that an association is made from, kept at the peer until it answers (5.1.3).

    Times are seconds.
    """

    made: float
    lifetime: float
    tag: int
    """Our tag, which the peer has to use."""
    tsn: int
    """Our first TSN."""
    tie_ours: int
    """The tie-tags (5.2.2) of the association that existed when the cookie was made; 0: there was none."""
    tie_theirs: int
    port: int
    peer_port: int
    offer: Offer

    def sealed(self, secret: Secret) -> bytes:
        return secret.signed(msgspec.msgpack.encode(self), self.made)


def open_cookie(data: bytes, secret: Secret, now: float) -> Cookie | None:
    """Return the cookie if it was signed here and its key is not too old, else None."""
    inner = secret.opened(data, now)
    # Only what was signed here is decoded, so that decoding cannot fail.
    return None if inner is None else msgspec.msgpack.decode(inner, type=Cookie)


def our_init(
    options: SctpOptions,
    *,
    tag: int,
    tsn: int,
    addresses: tuple[bytes, ...],
    cookie: bytes | None = None,
    unrecognized: Parameters = (),
) -> Init:
    """Return our INIT or, with a cookie, INIT ACK."""
    listed = [] if cookie is None else [Parameter(Kind.STATE_COOKIE, cookie)]
    # A single address is the packet's source address (5.1.2, A).
    if len(addresses) > 1:
        listed += [Parameter(Kind.IPV4 if len(each) == 4 else Kind.IPV6, each) for each in addresses]
    if options.ecn:
        listed.append(Parameter(Kind.ECN_CAPABLE))
    extensions = b""
    if options.partial_reliability:
        listed.append(Parameter(Kind.FORWARD_TSN_SUPPORTED))
        extensions += bytes((Type.FORWARD_TSN,))
    if options.interleaving:
        extensions += bytes((Type.I_DATA, Type.I_FORWARD_TSN))
    if options.stream_reset:
        extensions += bytes((Type.RE_CONFIG,))
    if extensions:
        listed.append(Parameter(Kind.SUPPORTED_EXTENSIONS, extensions))
    # 3.2.2: unknown parameters of INIT are reported in INIT ACK, each in a parameter of its own.
    for parameter in unrecognized:
        listed.append(Parameter(Kind.UNRECOGNIZED, parameters.encode([parameter])))
    return Init(
        is_ack=cookie is not None,
        tag=tag,
        window=options.receive_window,
        outbound=options.streams_out,
        inbound=options.streams_in,
        tsn=tsn,
        parameters=tuple(listed),
    )


def read_init(init: Init, source: bytes, options: SctpOptions) -> tuple[Offer, Parameters]:
    """Return what the peer offers, and the unknown parameters to report to it (3.2.2). Raises ``Refused``."""
    # 3.3.2: tag 0, no streams, and a window below 1,500 bytes are not allowed.
    if not init.tag or not init.outbound or not init.inbound or init.window < _MIN_WINDOW:
        raise Refused(Cause.INVALID_MANDATORY, "INIT without a tag, a stream or a window")
    counting, unknown = parameters.recognized(init.parameters, _MAX_REPORTED)
    for parameter in counting:
        # 5.1.2, B: an INIT with a host name is answered with ABORT.
        if parameter.kind == Kind.HOST_NAME:
            raise Refused(Cause.UNRESOLVABLE_ADDRESS, "INIT with a host name", parameters.encode([parameter]))
    extensions = parameters.first(counting, Kind.SUPPORTED_EXTENSIONS) or b""
    may_forward = parameters.first(counting, Kind.FORWARD_TSN_SUPPORTED) is not None
    offer = Offer(
        tag=init.tag,
        tsn=init.tsn,
        window=init.window,
        outbound=min(init.outbound, options.streams_in),
        inbound=min(init.inbound, options.streams_out),
        addresses=_addresses(counting, source),
        # Two ways to offer the same: the parameter of RFC 3758 (3.3), and the chunk type among the supported
        # extensions.
        may_forward=options.partial_reliability and (may_forward or Type.FORWARD_TSN in extensions),
        interleaved=options.interleaving and Type.I_DATA in extensions,
        resets=options.stream_reset and Type.RE_CONFIG in extensions,
        ecn=options.ecn and parameters.first(counting, Kind.ECN_CAPABLE) is not None,
    )
    return offer, unknown


def _addresses(listed: Parameters, source: bytes) -> list[bytes]:
    sizes = {Kind.IPV4: 4, Kind.IPV6: 16}
    # 5.1.2, C: the source address always counts, whether it is listed or not. As the first it is the primary
    # path.
    found = [source]
    for parameter in listed:
        # Each address costs a path with timers and heartbeats. The search ends here, and not only the list:
        # an INIT of 64 KB may name 8,000 addresses, each of which would be compared with all before it.
        if len(found) == _MAX_ADDRESSES:
            break
        if sizes.get(Kind(parameter.kind)) == len(parameter.value) and parameter.value not in found:
            found.append(parameter.value)
    return found
