"""Trial: declares what options list in a broker that is thrown away, to find what a start would refuse."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from kernel.contracts.errors import nearest
from plugins.engines.broker.broker import Broker
from plugins.engines.broker.errors import BrokerError, CommandInvalid, NotFound
from plugins.engines.broker.host.definitions import declarations
from plugins.engines.broker.host.options import BrokerOptions
from plugins.engines.broker.matchers.kinds import EXCHANGE_TYPES, ExchangeTypes

Place = tuple[str | int, ...]
"""The way to a value in the options: ``("queues", 1, "arguments")``."""

_NUMBER = "a whole number, 0 or more"
_WANTED = {
    "x-expires": "a whole number of milliseconds, 1 to 315360000000",
    "x-message-ttl": "a whole number of milliseconds, 0 to 315360000000",
    "x-dead-letter-exchange": "text of up to 255 bytes",
    "x-max-length": _NUMBER,
    "x-max-length-bytes": _NUMBER,
    "x-max-priority": "a whole number from 0 to 255",
    "x-overflow": '"drop-head", "reject-publish" or "reject-publish-dlx"',
    "x-queue-mode": '"default" or "lazy"',
    "x-queue-type": '"classic" or "quorum"',
    "x-single-active-consumer": "true or false",
}
"""What an argument of a queue has to be, in the words of TOML: RabbitMQ's errors use those of Erlang."""
_ARGUMENT = re.compile(r"invalid arg '([^']+)' for queue .*': ")


def mistakes(options: BrokerOptions, types: ExchangeTypes) -> Iterator[tuple[Place, str]]:
    """Return the place and the complaint for all that a broker with these options would refuse to declare.

    ``types``: the types of exchange that plugins have.
    """
    # Also those that only its definitions or its data_dir have.
    vhosts = dict.fromkeys(options.vhosts)
    for listed in (options.exchanges, options.queues, options.bindings):
        vhosts |= dict.fromkeys(each.vhost for each in listed)
    broker = Broker(vhosts, exchange_types=types)
    for option, number, name, declare in declarations(options, broker, 0.0):
        try:
            declare()
        except NotFound:
            # An end of a binding that definitions or the data_dir have, or that was refused here before.
            # Other names were checked with the options.
            continue
        except BrokerError as error:
            inside, text = _explained(getattr(options, option)[number], error, types)
            yield (option, number, *inside), f"{option}[{number}] {name!r}: {text}"


def _explained(declared: Any, error: BrokerError, types: ExchangeTypes) -> tuple[Place, str]:
    """Return the place of a mistake inside a declaration, and say in plain words what it is."""
    if isinstance(error, CommandInvalid) and declared.type not in (known := {*EXCHANGE_TYPES, *types}):
        return ("type",), f"unknown exchange type {declared.type!r}; {nearest(declared.type, known)}"
    found = _ARGUMENT.search(error.text)
    argument = found[1] if found else ""
    if argument in _WANTED:
        value = json.dumps(declared.arguments[argument], default=str, ensure_ascii=False)
        return ("arguments", argument), f"{argument} = {value}: must be {_WANTED[argument]}"
    return (), str(error)
