"""Trial import: imports definitions into a broker that is thrown away, to find what a start would refuse.

Apart from ``trial.py``, which a start may need: this is for ``kernel check``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec

from kernel.contracts.errors import KernelError
from plugins.engines.broker.broker import Broker
from plugins.engines.broker.errors import BrokerError
from plugins.engines.broker.host.definition_forms import Definitions, read_definitions
from plugins.engines.broker.host.definitions import declarations
from plugins.engines.broker.host.importing import Importer
from plugins.engines.broker.host.options import BrokerOptions
from plugins.engines.broker.host.passwords import Password
from plugins.engines.broker.host.users import Account, Users
from plugins.engines.broker.matchers.kinds import ExchangeTypes


def mistakes_in_definitions(options: BrokerOptions, types: ExchangeTypes) -> Iterator[str]:
    """Return a complaint for all that the broker would refuse to import from its file of definitions.

    Nothing for a file that cannot be read (``BrokerOptions.unreadable``).
    """
    try:
        with open(options.definitions, "rb") as file:
            definitions = read_definitions(file.read())
    except OSError:
        return
    except KernelError as error:
        yield str(error)
        return
    broker, users = Broker(options.vhosts, exchange_types=types), Users(options.users)
    if options.data_dir:
        definitions = _with_what_may_be_stored(definitions, broker, users)
    for _, _, _, declare in declarations(options, broker, 0.0):
        # What is wrong with the options themselves is for ``mistakes``.
        with suppress(BrokerError):
            declare()
    yield from Importer(broker, users, 0.0).run(definitions).complaints


def _with_what_may_be_stored(definitions: Definitions, broker: Broker, users: Users) -> Definitions:
    """Make what definitions refer to and a data_dir may have; return them without bindings.

    The ends of a binding may be stored, too, and their types and arguments are not known.
    """
    referring: list[Any] = [*definitions.permissions, *definitions.topic_permissions]
    for each in (*referring, *definitions.policies, *definitions.exchanges, *definitions.queues):
        broker.add_vhost(each.vhost)
    for permission in referring:
        users.accounts.setdefault(permission.user, Account(Password(), from_anywhere=False))
    return msgspec.structs.replace(definitions, bindings=[])
