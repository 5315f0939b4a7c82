"""The options of sockets, as a table: the constructor, the documentation and other faces read it."""

from __future__ import annotations

import errno
from typing import Any, Final, Literal, TypeAlias

import msgspec

from plugins.apis.sockets.errors import (
    EFSM,
    Again,
    OptionError,
    SocketError,
    Unreachable,
    WrongState,
)

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
"""The types of sockets."""

TYPES: tuple[str, ...] = TypeName.__args__  # type: ignore[attr-defined]  # the arguments of ``Literal``
UNLIMITED = 1 << 30
"""What 0 means for a high-water mark."""
UNLIMITED_BYTES = 1 << 60


class PortOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The application's end of a socket of ØMQ."""

    publishes: bool = False
    """Whether its peers subscribe."""


ErrorType: TypeAlias = type[SocketError | Again]


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """An option of a socket."""

    name: str
    type: type | tuple[type, ...]
    default: Any
    when: Literal["any time", "before the first place"]
    """When it can be set."""
    summary: str
    least: float | None = None
    only: tuple[str, ...] = TYPES
    """The types of sockets that have it."""
    raised: tuple[ErrorType, ...] = ()
    """Errors of calls for which the option decides whether they are raised.  Each has its ``errno``."""

    @property
    def errnos(self) -> tuple[str, ...]:
        """The names of its errors' numbers: that of a value that is refused, and those of ``raised``."""
        errors = (OptionError, *self.raised)
        return tuple(_NAMES.get(error.errno, "") or errno.errorcode[error.errno] for error in errors)


_NAMES: Final = {EFSM: "EFSM"}
"""Of the numbers that the system does not have."""
_NONE_TOO: Final = ("linger", "reconnect")
"""Options for which None is a value, and not the default."""
_ANY: Final = "any time"
_EARLY: Final = "before the first place"

OPTIONS: dict[str, Option] = {
    each.name: each
    for each in (
        Option(
            name="sndhwm",
            type=int,
            default=1000,
            when=_EARLY,
            least=0,
            summary="Messages that may wait for each peer; 0: no limit.",
            raised=(Again,),
        ),
        Option(
            name="rcvhwm",
            type=int,
            default=1000,
            when=_EARLY,
            least=0,
            summary="Messages of each peer that may wait to be received; 0: no limit.",
        ),
        Option(
            name="sndtimeo",
            type=(int, float),
            default=None,
            when=_ANY,
            least=0,
            summary="Seconds that a call may wait to send; None: no limit.",
            raised=(Again,),
        ),
        Option(
            name="rcvtimeo",
            type=(int, float),
            default=None,
            when=_ANY,
            least=0,
            summary="Seconds that a call may wait to receive; None: no limit.",
            raised=(Again,),
        ),
        Option(
            name="linger",
            type=(int, float),
            default=5.0,
            when=_ANY,
            least=0,
            summary="Seconds that ``close`` leaves to write what waits; None: no limit.",
        ),
        Option(
            name="identity",
            type=bytes,
            default=b"",
            when=_EARLY,
            summary="The identity that is told to peers, which a ROUTER sends to.",
            only=("REQ", "DEALER", "ROUTER"),
        ),
        Option(
            name="immediate",
            type=bool,
            default=False,
            when=_EARLY,
            summary="Whether messages wait only for peers that are connected.",
            raised=(Again,),
        ),
        Option(
            name="conflate",
            type=bool,
            default=False,
            when=_EARLY,
            summary="Whether only the last message is kept, in each direction.",
            only=("PUB", "SUB", "PUSH", "PULL", "DEALER", "SCATTER", "GATHER"),
        ),
        Option(
            name="router_mandatory",
            type=bool,
            default=False,
            when=_ANY,
            summary="Whether a message for an unknown identity is an error; otherwise it is dropped.",
            only=("ROUTER",),
            raised=(Unreachable,),
        ),
        Option(
            name="router_handover",
            type=bool,
            default=False,
            when=_EARLY,
            summary="Whether a peer takes over from another one with the same identity.",
            only=("ROUTER",),
        ),
        Option(
            name="stream_notify",
            type=bool,
            default=True,
            when=_EARLY,
            summary="Whether an empty message says that a peer has come, or has gone.",
            only=("STREAM",),
        ),
        Option(
            name="req_relaxed",
            type=bool,
            default=False,
            when=_EARLY,
            summary="Whether a REQ may send again before its answer has come.  Questions are numbered then.",
            only=("REQ",),
            raised=(WrongState,),
        ),
        Option(
            name="req_correlate",
            type=bool,
            default=False,
            when=_EARLY,
            summary="Whether a number goes with each question, and comes back with its answer.",
            only=("REQ",),
        ),
        Option(
            name="xpub_verbose",
            type=bool,
            default=False,
            when=_ANY,
            summary="Whether each subscription is a message, also one to a prefix that a peer has subscribed to.",
            only=("XPUB",),
        ),
        Option(
            name="xpub_verboser",
            type=bool,
            default=False,
            when=_ANY,
            summary="As `xpub_verbose`, and each subscription that is taken back is a message as well.",
            only=("XPUB",),
        ),
        Option(
            name="xpub_nodrop",
            type=bool,
            default=False,
            when=_EARLY,
            summary="Whether a message waits for a subscriber that has no room; otherwise it drops it for this one.",
            only=("PUB", "XPUB"),
            raised=(Again,),
        ),
        Option(
            name="xpub_manual",
            type=bool,
            default=False,
            when=_EARLY,
            summary="Whether the application decides: `subscribe` is for the peer whose subscription was received last.",
            only=("XPUB",),
        ),
        Option(
            name="xpub_manual_last_value",
            type=bool,
            default=False,
            when=_EARLY,
            summary="As `xpub_manual`, and the message sent after a subscription was received goes to that peer only.",
            only=("XPUB",),
        ),
        Option(
            name="only_first_subscribe",
            type=bool,
            default=True,
            when=_EARLY,
            summary="Of a message of several parts: whether only one whose first part subscribes has subscriptions in it.",
            only=("XPUB", "XSUB"),
        ),
        Option(
            name="xsub_verbose_unsubscribe",
            type=bool,
            default=False,
            when=_ANY,
            summary="Whether peers are told of the first subscription to a prefix that is taken back, and not of the last.",
            only=("XSUB",),
        ),
        Option(
            name="invert_matching",
            type=bool,
            default=False,
            when=_EARLY,
            summary="Whether peers get all but what they have subscribed to; both sides set it.",
            only=("PUB", "XPUB", "SUB"),
        ),
        Option(
            name="hello",
            type=bytes,
            default=None,
            when=_EARLY,
            summary="A message that goes to each new peer before all others; None: none.",
            only=tuple(
                each for each in TYPES if each not in ("SUB", "PULL", "STREAM", "RADIO", "DISH", "GATHER")
            ),
        ),
        Option(
            name="maxmsgsize",
            type=int,
            default=256 * 1024 * 1024,
            when=_EARLY,
            least=1,
            summary="Bytes of the largest message that is accepted.",
        ),
        Option(
            name="heartbeat",
            type=(int, float),
            default=10.0,
            when=_EARLY,
            least=0,
            summary="Seconds of silence after which a peer is sent a PING; 0: none.",
        ),
        Option(
            name="heartbeat_timeout",
            type=(int, float),
            default=0.0,
            when=_EARLY,
            least=0,
            summary="Seconds behind a PING after which a silent peer is given up; 0: twice `heartbeat`.",
        ),
        Option(
            name="heartbeat_ttl",
            type=(int, float),
            default=0.0,
            when=_EARLY,
            least=0,
            summary="Seconds after which peers shall give up this side; 0: three times `heartbeat`.",
        ),
        Option(
            name="reconnect",
            type=(int, float),
            default=0.1,
            when=_EARLY,
            least=0.001,
            summary="Seconds until the first attempt to connect again; the wait doubles with each; None: never again.",
        ),
        Option(
            name="reconnect_max",
            type=(int, float),
            default=30.0,
            when=_EARLY,
            least=0,
            summary="Seconds that a wait between attempts is at most; less than `reconnect`: all waits are that.",
        ),
        Option(
            name="engine",
            type=dict,
            default={},
            when=_EARLY,
            summary="Further options of the engine of kind `zmq`: `mechanism` and what it needs, `max_connections`.",
        ),
    )
}


class Values:
    """The options of one socket."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._values: dict[str, Any] = {name: option.default for name, option in OPTIONS.items()}
        self.fixed = False
        """Whether the socket has a place, so that most options cannot be changed any more."""

    def __getitem__(self, name: str) -> Any:
        value = self._values.get(name, _known)
        # The function stands for a name that is no option: it says so.
        return _known(name) if value is _known else value

    def __setitem__(self, name: str, value: Any) -> None:
        option = _known(name)
        if self._kind not in option.only:
            raise OptionError(f"{name}: {self._kind} has no such option; {', '.join(option.only)} have")
        if self.fixed and option.when == _EARLY:
            raise OptionError(f"{name}: set it before the first bind or connect; it has no effect on places")
        # ``None`` is the value for no limit, for those that have seconds.
        if value is not None or option.default is None or name in _NONE_TOO:
            _check(option, value)
            self._values[name] = value
        else:
            raise OptionError(f"{name}: it needs a value")


def _check(option: Option, value: Any) -> None:
    if value is None:
        return
    # A truth value is an int, and is meant as none here.
    wrong = not isinstance(value, option.type) or (isinstance(value, bool) and option.type is not bool)
    if wrong:
        raise OptionError(f"{option.name}: {value!r} is of the wrong type; {option.summary}")
    if option.least is not None and value < option.least:
        raise OptionError(
            f"{option.name}: {value!r} is too little, {option.least} is the least; {option.summary}"
        )


def _known(name: str) -> Option:
    option = OPTIONS.get(name)
    if option is None:
        raise OptionError(f"there is no option {name!r}; there are: {', '.join(OPTIONS)}")
    return option
