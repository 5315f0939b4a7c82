"""Looking: operations of a broker that only look.  ``BrokerEngine.operate`` calls them.

The commands use them (``kernel peek`` and others), and so may pages for operators.  Each takes a mapping,
which is checked here, and returns what JSON has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec

from kernel.contracts.errors import KernelError, similar
from kernel.contracts.message import Envelope
from kernel.contracts.shown import MOST_BYTES, Row
from plugins.engines.broker.errors import BrokerError
from plugins.engines.broker.explain import Explainer
from plugins.engines.broker.host.taps import BrokerTapWanted, TapRead, Taps
from plugins.engines.broker.host.users import Login
from plugins.engines.broker.peek import peek
from plugins.engines.broker.queue import Queue

if TYPE_CHECKING:
    from plugins.engines.broker.host.engine import BrokerEngine
    from plugins.engines.broker.virtual_host import VirtualHost

_Wanted = TypeVar("_Wanted", bound=msgspec.Struct)

MOST_PEEKED = 1000
"""Messages of one answer."""
_MOST_USERS = 200
_MOST_COMPARED = 1000


class PeekWanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The argument of ``peek``."""

    queue: str
    vhost: str = "/"
    count: Annotated[int, msgspec.Meta(ge=1, le=MOST_PEEKED)] = 10
    most_bytes: Annotated[int, msgspec.Meta(ge=0, le=16 * 1024 * 1024)] = MOST_BYTES
    """How much is shown of each body, in octets."""


def peek_at(engine: BrokerEngine, argument: Any) -> dict[str, Any]:
    """``peek``: the first messages of a queue, which stay there."""
    wanted = _read(PeekWanted, argument)
    queue = _queue(engine, wanted.vhost, wanted.queue)
    rows, whole = peek(queue, wanted.count, engine.host.now(), wanted.most_bytes)
    return {"messages": rows, "all": whole, "ready": queue.backlog.count, "unacked": queue.outstanding}


class ExplainWanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The argument of ``explain``: an exchange and a key, or a topic."""

    exchange: str | None = None
    key: str = ""
    topic: str | None = None
    headers: dict[str, Any] = {}
    vhost: str = "/"
    user: str | None = None
    """Whether this user may publish it; None: whoever may not is listed."""
    routed: bool = False
    """Whether it comes on a route of the topology: then the feed chooses the exchange."""


def explain_at(engine: BrokerEngine, argument: Any) -> dict[str, Any]:
    """``explain``: who would get a message, and why not (``kernel.contracts.explaining``)."""
    wanted = _read(ExplainWanted, argument)
    vhost = _vhost(engine, wanted.vhost)
    rows: list[Row] = []
    messages = _addresses(engine, wanted)
    for exchange, key in messages:
        envelope = Envelope(
            exchange=exchange, key=key, properties={"headers": wanted.headers} if wanted.headers else {}
        )
        made = Explainer(vhost, envelope).exchange(exchange)
        # Messages of routes are published by the broker itself, so no user needs a permission.
        if not wanted.routed:
            _explain_permissions(made, engine, wanted, vhost, exchange, key)
        rows.append(made)
        # Subscriptions that are no queues, such as MQTT's of QoS 0, are known to their front end only.
        for front_end in engine.front_ends:
            explain = getattr(front_end, "explain", None)
            if explain is not None:
                rows += explain(vhost, envelope)
    return {"rows": rows, "messages": [{"exchange": exchange, "key": key} for exchange, key in messages]}


class ExchangeWanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The argument of ``find-exchange``."""

    name: str


def find_exchange_at(engine: BrokerEngine, argument: Any) -> dict[str, Any]:
    """``find-exchange``: whether messages that come on a route find this exchange, and in which vhost.

    A message that names an exchange which is not there goes to ``default_exchange``.  So who is about to send
    many of them, as ``kernel rewind`` is, asks before.
    """
    wanted = _read(ExchangeWanted, argument)
    vhost = engine.feed.vhost
    found = wanted.name in vhost.exchanges
    hint = "" if found else _near(wanted.name, vhost.exchanges)
    return {"found": found, "vhost": vhost.name, "hint": hint}


def tap_at(engine: BrokerEngine, argument: Any) -> dict[str, Any]:
    """``tap``: note what is published; returns the number of the tap."""
    wanted = _read(BrokerTapWanted, argument)
    vhost = _vhost(engine, wanted.vhost)
    if wanted.queue is not None:
        _queue(engine, wanted.vhost, wanted.queue)
    if wanted.exchange is not None and wanted.exchange not in vhost.exchanges:
        near = _near(wanted.exchange, vhost.exchanges)
        raise KernelError(f"there is no exchange {wanted.exchange!r} in virtual host {vhost.name!r}{near}")
    return _taps(engine).add(wanted)


def read_tap(engine: BrokerEngine, argument: Any) -> dict[str, Any]:
    """``tap-read``: what a tap has noted since the last question."""
    return _taps(engine).read(_read(TapRead, argument))


def end_tap(engine: BrokerEngine, argument: Any) -> dict[str, Any]:
    """``tap-end``: remove a tap."""
    _taps(engine).end(_read(TapRead, argument).tap)
    return {}


def _taps(engine: BrokerEngine) -> Taps:
    taps: Taps | None = engine.shared.get("taps")
    if taps is None:
        taps = engine.shared["taps"] = Taps(engine.host, engine.broker.vhost)
    return taps


def _addresses(engine: BrokerEngine, wanted: ExplainWanted) -> list[tuple[str, str]]:
    """Return the exchange and key of the message: of a topic, one for each exchange to which it may go."""
    if wanted.topic is None:
        if wanted.routed:
            return [(engine.feed.exchange_of(wanted.exchange or ""), wanted.key)]
        if wanted.user is not None and wanted.exchange is None and not wanted.key:
            raise KernelError("say which message the user may publish: an exchange and a key, or a topic")
        return [(wanted.exchange or "", wanted.key)]
    if wanted.exchange is not None or wanted.key:
        raise KernelError("--topic stands for an exchange and a key; leave out --exchange and --key")
    found = [
        front_end.address_of_topic(wanted.topic)
        for front_end in engine.front_ends
        if hasattr(front_end, "address_of_topic")
    ]
    if not found:
        raise KernelError("it has no listener of a protocol with topics; give an exchange and a key instead")
    return list(dict.fromkeys(found))


def _explain_permissions(
    made: Row, engine: BrokerEngine, wanted: ExplainWanted, vhost: VirtualHost, exchange: str, key: str
) -> None:
    """Note who may not publish it."""
    accounts = engine.users.accounts
    if wanted.user is not None and wanted.user not in accounts:
        raise KernelError(f"there is no user {wanted.user!r}{_near(wanted.user, accounts)}")
    asked = list(accounts) if wanted.user is None else [wanted.user]
    refused = []
    for name in asked[:_MOST_USERS]:
        try:
            login = Login(name, accounts[name])
            login.require("write", "exchange", exchange, vhost.name)
            login.require_topic("write", vhost.exchanges.get(exchange), key, vhost.name)
        except BrokerError as error:
            refused.append(name)
            if wanted.user is not None:
                made["gets"] = False
                made["notes"].append(error.text)
    if wanted.user is None and refused:
        made["notes"].append(f"users who may not publish to it: {', '.join(refused)}")


def _vhost(engine: BrokerEngine, name: str) -> VirtualHost:
    try:
        return engine.broker.vhost(name)
    except BrokerError:
        known = ", ".join(engine.broker.vhosts)
        raise KernelError(f"there is no virtual host {name!r}; there are: {known}") from None


def _near(name: str, known: Iterable[str]) -> str:
    """Return a hint for a name that is not known; a broker may have very many."""
    near = similar(name, islice(known, _MOST_COMPARED))
    return f"; did you mean {near!r}?" if near else ""


def _queue(engine: BrokerEngine, vhost_name: str, name: str) -> Queue:
    vhost = _vhost(engine, vhost_name)
    queue = vhost.queues.get(name)
    if queue is None:
        raise KernelError(
            f"there is no queue {name!r} in virtual host {vhost_name!r}{_near(name, vhost.queues)}; "
            "`kernel queues` lists them"
        )
    return queue


def _read(kind: type[_Wanted], argument: Any) -> _Wanted:
    try:
        return msgspec.convert(argument, kind)
    except msgspec.ValidationError as error:
        raise KernelError(str(error)) from None


LOOKING: Mapping[str, Callable[[BrokerEngine, Any], dict[str, Any]]] = {
    "explain": explain_at,
    "find-exchange": find_exchange_at,
    "peek": peek_at,
    "tap": tap_at,
    "tap-end": end_tap,
    "tap-read": read_tap,
}
"""The operations by name."""
