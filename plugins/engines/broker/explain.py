"""Explain: who would get a message, and for those who would not, why.

The answer is a tree of rows, in the form that ``kernel.contracts.explaining`` describes.  It follows
bindings as ``routes.py`` does, and asks the same matchers, so that exchange types of plugins are explained
as well: in words where the type is known here, otherwise by what the matcher answers.  Nothing is published,
and no cache is touched.

An exchange may have a hundred thousand bindings.  Those that match are found by the exchange's matcher.  Of
the others only the first ones are shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kernel.contracts.counts import counted
from kernel.contracts.explaining import Row, row
from plugins.engines.broker.binding import Binding, Destination
from plugins.engines.broker.matchers.kinds import EXCHANGE_TYPES
from plugins.engines.broker.matchers.topic import words_of
from plugins.engines.broker.queue import Queue

if TYPE_CHECKING:
    from kernel.contracts.message import Envelope
    from plugins.engines.broker.exchange import Exchange
    from plugins.engines.broker.virtual_host import VirtualHost

MOST_UNMATCHED = 50
"""Bindings of one exchange that are shown although they do not match."""
_MOST_CONSUMERS = 20
_DEEPEST = 12
"""Exchanges and dead letters behind each other that are followed."""


class Explainer:
    """Explains one message in one virtual host."""

    def __init__(self, vhost: VirtualHost, envelope: Envelope) -> None:
        self._vhost = vhost
        self._envelope = envelope
        headers = envelope.properties.get("headers")
        self._headers: Mapping[str, Any] = headers if isinstance(headers, Mapping) else {}
        self._seen: set[Exchange] = set()
        self._followed: set[Queue] = set()
        """Queues whose dead letters are explained already: queues may dead-letter into each other."""

    def exchange(self, name: str) -> Row:
        """Explain what an exchange does with the message."""
        return self._exchange(name, self._envelope.key, 0)

    def _exchange(self, name: str, key: str, depth: int) -> Row:
        exchange = self._vhost.exchanges.get(name)
        if exchange is None:
            return row(
                "exchange",
                name,
                gets=False,
                why=f"there is no such exchange in virtual host {self._vhost.name!r}",
            )
        if not name:
            return self._default_exchange(key, depth)
        made = row("exchange", name, gets=True, why=f"a {exchange.kind} exchange, asked for key {key!r}")
        if exchange in self._seen:
            made["notes"].append("shown above: each exchange is asked once")
            return made
        if depth > _DEEPEST:
            made["notes"].append("what is behind it is not shown: too many exchanges behind each other")
            return made
        self._seen.add(exchange)
        if exchange.internal and not depth:
            made["notes"].append("internal: clients may not publish to it")
        matched = [binding for binding in self._candidates(exchange, key) if self._matches(binding, key)]
        made["next"] = [self._destination(bindings, key, depth) for bindings in _by_destination(matched)]
        made["next"] += self._unmatched(exchange, key, set(matched))
        if not matched:
            self._explain_nobody(made, exchange, key, depth)
        return made

    def _default_exchange(self, key: str, depth: int) -> Row:
        made = row(
            "exchange",
            "",
            gets=True,
            why=f"the default exchange: it leads to the queue with the name {key!r}",
        )
        queue = self._vhost.queues.get(key)
        if queue is None:
            made["gets"] = False
            made["why"] = (
                f"the default exchange: there is no queue {key!r}, so the message is dropped or returned"
            )
        else:
            made["next"] = [self._queue(queue, "its name is the key", depth)]
        return made

    def _candidates(self, exchange: Exchange, key: str) -> Iterator[Binding]:
        """Yield the bindings to the destinations that the exchange's matcher finds."""
        found = exchange.matcher.match(key, self._looked_at(exchange))
        for destination in dict.fromkeys(found):
            for binding in destination.incoming.values():
                if binding.source is exchange:
                    yield binding

    def _looked_at(self, exchange: Exchange) -> Mapping[str, Any]:
        return self._envelope.properties if exchange.matcher.looks_at == "properties" else self._headers

    def _matches(self, binding: Binding, key: str) -> bool:
        """Whether a binding to a destination that gets the message is one that matches.

        A type that is not known here may decide by all of its bindings together.  Then all to
        this destination count.
        """
        make = EXCHANGE_TYPES.get(binding.source.kind)
        if make is None:
            return True
        matcher = make()
        matcher.add(binding)
        return any(True for _ in matcher.match(key, self._headers))

    def _destination(self, bindings: list[Binding], key: str, depth: int) -> Row:
        """Explain a destination, to which one or more bindings lead."""
        to: Destination = bindings[0].destination
        why = _list([_why(binding, key, self._headers, matches=True) for binding in bindings])
        if isinstance(to, Queue):
            return self._queue(to, why, depth)
        if hasattr(to, "matcher"):
            made = self._exchange(to.name, key, depth + 1)
            made["why"] = f"{why}; {made['why']}"
            return made
        made = row("sink", to.name, gets=True, why=why)
        explain = getattr(to, "explain", None)
        if explain is not None:
            made["next"] = explain(self._envelope)
            made["gets"] = any(each["gets"] for each in made["next"])
        return made

    def _unmatched(self, exchange: Exchange, key: str, matched: set[Binding]) -> list[Row]:
        rows: list[Row] = []
        left = len(exchange.bindings) - len(matched)
        for binding in exchange.bindings.values():
            if binding in matched:
                continue
            if len(rows) >= MOST_UNMATCHED:
                rows.append(
                    row("binding", f"{left - len(rows)} more", gets=False, why="these do not match, either")
                )
                break
            why = _why(binding, key, self._headers, matches=False)
            rows.append(row(_sort_of(binding.destination), binding.destination.name, gets=False, why=why))
        return rows

    def _explain_nobody(self, made: Row, exchange: Exchange, key: str, depth: int) -> None:
        """No binding matches: the alternate exchange gets it, or nobody."""
        alternate = exchange.alternate
        if alternate is None:
            made["gets"] = False
            made["notes"].append(
                "no binding matches, and there is no alternate exchange: the message is dropped, "
                "or returned to a publisher that has set mandatory"
            )
        elif alternate not in self._vhost.exchanges:
            made["gets"] = False
            made["notes"].append(
                f"no binding matches, and its alternate exchange {alternate!r} does not exist"
            )
        else:
            made["notes"].append(f"no binding matches, so it goes to the alternate exchange {alternate!r}")
            made["next"].append(self._exchange(alternate, key, depth + 1))

    def _queue(self, queue: Queue, why: str, depth: int) -> Row:
        made = row("queue", queue.name, gets=True, why=why)
        self._explain_limits(made, queue)
        consumers = queue.all_consumers()
        if not consumers:
            waiting = counted(
                queue.backlog.count, "message is ready and waits", "messages are ready and wait"
            )
            made["notes"].append(f"nobody consumes it: {waiting}")
        for consumer in consumers[:_MOST_CONSUMERS]:
            credit = f"prefetch {consumer.prefetch}" if consumer.prefetch else "no prefetch limit"
            one = row(
                "consumer", consumer.tag, gets=True, why=f"{consumer.outstanding} unacknowledged, {credit}"
            )
            if len(consumers) > 1:
                one["notes"].append("one of several: each message goes to one of them")
            made["next"].append(one)
        if len(consumers) > _MOST_CONSUMERS:
            made["notes"].append(f"{len(consumers)} consumers; the first {_MOST_CONSUMERS} are shown")
        letters = self._dead_letters(queue, depth)
        if letters is not None:
            made["next"].append(letters)
        return made

    def _explain_limits(self, made: Row, queue: Queue) -> None:
        policy, backlog = queue.policy, queue.backlog
        full = (policy.max_length is not None and backlog.count >= policy.max_length) or (
            policy.max_length_bytes is not None and backlog.size >= policy.max_length_bytes
        )
        if not full:
            return
        if policy.overflow == "drop-head":
            made["notes"].append("it is full: its oldest message makes room")
        else:
            made["gets"] = False
            made["notes"].append(f"it is full and refuses messages ({policy.overflow})")

    def _dead_letters(self, queue: Queue, depth: int) -> Row | None:
        policy = queue.policy
        name = policy.dead_letter_exchange
        if name is None:
            return None
        causes = ["rejected"]
        if policy.message_ttl is not None:
            causes.append(f"not consumed within {policy.message_ttl:g} s")
        if policy.max_length is not None or policy.max_length_bytes is not None:
            causes.append("too many in the queue")
        if policy.delivery_limit is not None:
            causes.append(f"returned {counted(policy.delivery_limit, 'time')}")
        key = self._envelope.key if policy.dead_letter_key is None else policy.dead_letter_key
        made = row(
            "dead letters", name, gets=False, why=f"of this queue, if {' or '.join(causes)}; with key {key!r}"
        )
        if depth <= _DEEPEST and queue not in self._followed:
            self._followed.add(queue)
            # Exchanges that were asked for the message itself may be asked again with another key.
            letters = Explainer(self._vhost, self._envelope)
            letters._followed = self._followed
            made["next"] = [letters._exchange(name, key, depth + 1)]
        return made


def _by_destination(bindings: Iterable[Binding]) -> list[list[Binding]]:
    """Group bindings: a queue gets one copy of a message, however many of them match."""
    groups: dict[Destination, list[Binding]] = {}
    for binding in bindings:
        groups.setdefault(binding.destination, []).append(binding)
    return list(groups.values())


def _sort_of(destination: Destination) -> str:
    if isinstance(destination, Queue):
        return "queue"
    return "exchange" if hasattr(destination, "matcher") else "sink"


def _why(binding: Binding, key: str, headers: Mapping[str, Any], *, matches: bool) -> str:
    """Say why a binding matches, or why it does not."""
    kind = binding.source.kind
    if kind == "direct":
        return (
            f"the key is that of the binding, {binding.key!r}"
            if matches
            else f"key {key!r} is not {binding.key!r}"
        )
    if kind == "fanout":
        return "a fanout exchange leads to all that is bound"
    if kind == "topic":
        if matches:
            return f"topic pattern {binding.key!r} matches {key!r}"
        return f"topic pattern {binding.key!r} does not match {key!r}{_difference(binding.key, key)}"
    if kind == "headers":
        return _why_headers(binding.arguments, headers, matches=matches)
    return f"exchange type {kind!r} {'chooses' if matches else 'does not choose'} its binding {binding.key!r}"


def _difference(pattern: str, key: str) -> str:
    """Say where a topic pattern and a key differ, as far as that is clear."""
    wanted, words = words_of(pattern), words_of(key)
    for number, (each, word) in enumerate(zip(wanted, words, strict=False), 1):
        if each == "#":
            # From here on any number of words may be skipped.
            return ""
        if each not in ("*", word):
            return f": word {number} is {word!r}, not {each!r}"
    if "#" not in wanted and len(wanted) != len(words):
        return f": it has {counted(len(wanted), 'word')}, and the key {counted(len(words), 'word')}"
    return ""


def _why_headers(arguments: Mapping[str, Any], headers: Mapping[str, Any], *, matches: bool) -> str:
    form = str(arguments.get("x-match", "all"))
    wanted = {
        name: value
        for name, value in arguments.items()
        if name != "x-match" and (form.endswith("-with-x") or not name.startswith("x-"))
    }
    if matches:
        return f"the headers fit its arguments ({form})"
    faults = [_header_fault(name, value, headers) for name, value in wanted.items()]
    said = [fault for fault in faults if fault] or ["it names no header"]
    return f"{form}: {_list(said)}"


def _header_fault(name: str, value: object, headers: Mapping[str, Any]) -> str:
    if name not in headers:
        return f"header {name!r} is missing"
    found = headers[name]
    return "" if value is None or found == value else f"header {name!r} is {found!r:.80}, not {value!r:.80}"


def _list(texts: Iterable[str], most: int = 5) -> str:
    some = list(texts)
    return ", ".join(some[:most]) + (f" and {len(some) - most} more" if len(some) > most else "")
