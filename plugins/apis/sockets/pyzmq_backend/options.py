"""The options of pyzmq's sockets, as a table: number, default, limits, and the option of ours.

The type of a value is pyzmq's: ``zmq.constants`` says for each number whether it is octets.
"""

from __future__ import annotations

import errno
from typing import Any, Literal, TypeAlias

import msgspec
from zmq.constants import SocketOption, _OptType

from plugins.apis.sockets.options import UNLIMITED_BYTES
from plugins.apis.sockets.pyzmq_backend.errors import failure

Meaning: TypeAlias = Literal["as it is", "truth", "milliseconds", "bytes", "hello", "probe"]
"""How a value of pyzmq becomes one of ours."""

_MOST_INT = (1 << 31) - 1
_KEY_SIZE, _KEY_CHARACTERS = 32, 40


class BackendOption(msgspec.Struct, frozen=True, kw_only=True):
    """An option of a socket, as programs of pyzmq see it."""

    number: SocketOption
    default: int | bytes = 0
    ours: str = ""
    """The option of ``kernel.sockets`` that is set; empty: the value is only kept."""
    meaning: Meaning = "as it is"
    least: int = 0
    """The least number, or the fewest octets."""
    most: int = _MOST_INT
    """The largest number, or the most octets."""
    only: tuple[str, ...] = ()
    """The types of sockets that have it; empty: all."""
    why: str = ""
    """Why other values are refused, if it is not for the limits."""
    early: bool = False
    """Whether it is an error to set it behind the first place, where it would have no effect."""
    readable: bool = True
    writable: bool = True


def _option(name: str, default: int | bytes = 0, ours: str = "", **more: Any) -> BackendOption:
    number = SocketOption[name]
    if number._opt_type is _OptType.bytes:
        more = {"most": 255, **more}
    return BackendOption(number=number, default=default, ours=ours, **more)


_PROBING = ("REQ", "DEALER", "ROUTER")
_FLAG: dict[str, Any] = {"most": 1, "meaning": "truth"}
_SECONDS: dict[str, Any] = {"least": -1, "meaning": "milliseconds"}
_READ: dict[str, Any] = {"writable": False}
_WRITE: dict[str, Any] = {"readable": False}
_UNSAFE: dict[str, Any] = {
    "most": 0,
    "why": "nothing here does that, and without it peers are not those you want",
}
_KEY: dict[str, Any] = {"least": _KEY_SIZE, "most": _KEY_CHARACTERS}

BACKEND_OPTIONS: dict[int, BackendOption] = {
    int(each.number): each
    for each in (
        _option("HWM", 1000),
        _option("SNDHWM", 1000, "sndhwm"),
        _option("RCVHWM", 1000, "rcvhwm"),
        _option("AFFINITY", most=(1 << 63) - 1),
        _option("ROUTING_ID", b"", "identity"),
        _option("SUBSCRIBE", b"", only=("SUB", "XPUB"), most=1 << 30, **_WRITE),
        _option("UNSUBSCRIBE", b"", only=("SUB", "XPUB"), most=1 << 30, **_WRITE),
        _option("RATE", 100, least=1),
        _option("RECOVERY_IVL", 10_000),
        _option("SNDBUF", -1, least=-1),
        _option("RCVBUF", -1, least=-1),
        _option("RCVMORE", **_READ),
        _option("FD", **_READ),
        _option("EVENTS", **_READ),
        _option("TYPE", **_READ),
        _option("LAST_ENDPOINT", b"", **_READ),
        _option("MECHANISM", **_READ),
        _option("THREAD_SAFE", **_READ),
        _option("LINGER", -1, "linger", **_SECONDS),
        _option("RECONNECT_IVL", 100, "reconnect", **_SECONDS),
        _option("RECONNECT_IVL_MAX", 0, "reconnect_max", meaning="milliseconds"),
        _option("BACKLOG", 100),
        _option("MAXMSGSIZE", -1, "maxmsgsize", least=-1, most=(1 << 63) - 1, meaning="bytes"),
        _option("MULTICAST_HOPS", 1, least=1),
        _option("MULTICAST_MAXTPDU", 1500, least=1),
        _option("RCVTIMEO", -1, "rcvtimeo", **_SECONDS),
        _option("SNDTIMEO", -1, "sndtimeo", **_SECONDS),
        _option("TCP_KEEPALIVE", -1, least=-1, most=1),
        _option("TCP_KEEPALIVE_CNT", -1, least=-1),
        _option("TCP_KEEPALIVE_IDLE", -1, least=-1),
        _option("TCP_KEEPALIVE_INTVL", -1, least=-1),
        _option("TCP_MAXRT"),
        _option("TCP_ACCEPT_FILTER", b"", **_UNSAFE, **_WRITE),
        _option("IMMEDIATE", 0, "immediate", **_FLAG),
        _option("IPV6", most=1),
        _option("IPV4ONLY", 1, most=1),
        _option("TOS"),
        _option("HANDSHAKE_IVL", 30_000),
        _option("HEARTBEAT_IVL", 0, "heartbeat", meaning="milliseconds"),
        _option("HEARTBEAT_TTL", 0, "heartbeat_ttl", most=6_553_500, meaning="milliseconds"),
        _option("HEARTBEAT_TIMEOUT", -1, "heartbeat_timeout", least=-1, meaning="milliseconds"),
        _option("CONNECT_TIMEOUT"),
        _option("INVERT_MATCHING", 0, "invert_matching", early=True, **_FLAG),
        _option("USE_FD", -1, least=-1, most=-1, why="sockets are made here"),
        _option("BINDTODEVICE", b"", **_UNSAFE),
        _option("SOCKS_PROXY", b"", **_UNSAFE),
        _option("VMCI_BUFFER_SIZE"),
        _option("VMCI_BUFFER_MIN_SIZE"),
        _option("VMCI_BUFFER_MAX_SIZE"),
        _option("VMCI_CONNECT_TIMEOUT", -1, least=-1),
        _option("CONFLATE", 0, "conflate", **_FLAG),
        _option("ROUTER_MANDATORY", 0, "router_mandatory", only=("ROUTER",), **_FLAG, **_WRITE),
        _option("ROUTER_HANDOVER", 0, "router_handover", only=("ROUTER",), **_FLAG, **_WRITE),
        _option("CONNECT_ROUTING_ID", b"", only=("ROUTER", "STREAM"), least=1, **_WRITE),
        _option("STREAM_NOTIFY", 1, "stream_notify", only=("STREAM",), **_FLAG, **_WRITE),
        _option("REQ_RELAXED", 0, "req_relaxed", only=("REQ",), **_FLAG, **_WRITE),
        _option("REQ_CORRELATE", 0, "req_correlate", only=("REQ",), **_FLAG, **_WRITE),
        _option("XPUB_VERBOSE", 0, "xpub_verbose", only=("XPUB",), **_FLAG, **_WRITE),
        _option("XPUB_VERBOSER", 0, "xpub_verboser", only=("XPUB",), **_FLAG, **_WRITE),
        _option("XPUB_MANUAL", 0, "xpub_manual", only=("XPUB",), early=True, **_FLAG, **_WRITE),
        _option(
            "XPUB_MANUAL_LAST_VALUE",
            0,
            "xpub_manual_last_value",
            only=("XPUB",),
            early=True,
            **_FLAG,
            **_WRITE,
        ),
        _option("ONLY_FIRST_SUBSCRIBE", 0, "only_first_subscribe", only=("XPUB", "XSUB"), **_FLAG, **_WRITE),
        _option("XSUB_VERBOSE_UNSUBSCRIBE", 0, "xsub_verbose_unsubscribe", only=("XSUB",), **_FLAG, **_WRITE),
        _option("TOPICS_COUNT", only=("PUB", "XPUB", "SUB", "XSUB"), **_READ),
        _option("XPUB_NODROP", 0, "xpub_nodrop", only=("PUB", "XPUB"), **_FLAG, **_WRITE),
        _option("XPUB_WELCOME_MSG", b"", "hello", only=("XPUB",), most=1 << 30, meaning="hello", **_WRITE),
        _option("HELLO_MSG", b"", "hello", most=1 << 30, meaning="hello", **_WRITE),
        _option("PROBE_ROUTER", 0, "hello", only=_PROBING, most=1, meaning="probe", **_WRITE),
        _option("ZAP_DOMAIN", b""),
        _option("ZAP_ENFORCE_DOMAIN", most=1),
        _option("LOOPBACK_FASTPATH", most=1),
        _option("MULTICAST_LOOP", 1, most=1),
        _option("PLAIN_SERVER", most=1),
        _option("PLAIN_USERNAME", b"", least=1),
        _option("PLAIN_PASSWORD", b""),
        _option("CURVE_SERVER", most=1),
        _option("CURVE_PUBLICKEY", b"", **_KEY),
        _option("CURVE_SECRETKEY", b"", **_KEY),
        _option("CURVE_SERVERKEY", b"", **_KEY),
    )
}
"""By number."""


def option_of(number: int, kind: str) -> BackendOption:
    """Return an option that a type of socket has; EINVAL if it has none such."""
    option = BACKEND_OPTIONS.get(number)
    if option is None:
        raise failure(
            errno.EINVAL, f"there is no option {_name_of(number)} here (docs/sockets.md, Options of libzmq)"
        )
    if option.only and kind not in option.only:
        raise failure(errno.EINVAL, f"{option.number.name}: {kind} has no such option")
    return option


def _name_of(number: int) -> str:
    try:
        return SocketOption(number).name
    except ValueError:
        return str(number)


def check_type(number: int, value: Any) -> None:
    """Raise ``TypeError`` as pyzmq's backends do."""
    if isinstance(value, str):
        raise TypeError("unicode not allowed, use setsockopt_string")
    try:
        wants = bytes if SocketOption(number)._opt_type is _OptType.bytes else int
    except ValueError:
        wants = int
    if not isinstance(value, wants):
        raise TypeError(f"expected {wants.__name__}, got: {value!r}")


def check_value(option: BackendOption, value: int | bytes) -> None:
    """Raise EINVAL for a value that is out of the limits."""
    if not option.writable:
        raise failure(errno.EINVAL, f"{option.number.name} can only be read")
    size = len(value) if isinstance(value, bytes) else value
    if not option.least <= size <= option.most:
        if option.why:
            raise failure(errno.EINVAL, f"{option.number.name}: {value!r} cannot be set: {option.why}")
        raise failure(
            errno.EINVAL, f"{option.number.name}: {value!r} is not within {option.least} to {option.most}"
        )


def our_value(option: BackendOption, value: Any) -> Any:
    """Return a value as ``kernel.sockets`` has it."""
    if option.meaning == "truth":
        return bool(value)
    if option.meaning == "hello":
        return value or None
    if option.meaning == "probe":
        return b"" if value else None
    if option.meaning == "milliseconds":
        if option.ours in ("heartbeat_timeout", "reconnect_max"):
            return max(0.0, value / 1000)
        if option.ours == "reconnect":
            # The manual has -1 for never; libzmq does not connect again with 0 either.
            return value / 1000 if value > 0 else None
        return None if value < 0 else value / 1000
    if option.meaning == "bytes":
        return value if value > 0 else UNLIMITED_BYTES
    return value
