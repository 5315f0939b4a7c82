"""Importing: makes of definitions what a broker has.

It goes over several turns if there is much to import (``Importer.steps``), so that messages pass meanwhile.

What exists already with the same properties stays as it is.  What cannot be created is reported with its
place in the JSON text, and the rest is created all the same.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from kernel.contracts.errors import KernelError
from plugins.engines.broker.binding import Destination
from plugins.engines.broker.broker import Broker
from plugins.engines.broker.errors import BrokerError
from plugins.engines.broker.host.definition_forms import (
    HASHINGS,
    KEPT_IN_USERS_FILE,
    NOT_SUPPORTED,
    BindingDefinition,
    Definitions,
    ExchangeDefinition,
    GlobalParameterDefinition,
    PermissionDefinition,
    PolicyDefinition,
    QueueDefinition,
    TopicPermissionDefinition,
    UserDefinition,
    VhostDefinition,
    always,
    is_own,
    read_definitions,
)
from plugins.engines.broker.host.definitions import declare_exchange, declare_queue
from plugins.engines.broker.host.options import GUEST
from plugins.engines.broker.host.passwords import Password
from plugins.engines.broker.host.users import Account, Permissions, TopicPermissions, Users
from plugins.engines.broker.policies import APPLY_TO, Policy, check_policy, unknown_keys

PIECE = 100
"""Definitions of one turn: a millisecond or two."""


class Imported(msgspec.Struct, frozen=True):
    """The result of an import."""

    counts: dict[str, int]
    """How many of each sort are now as the definitions say."""
    complaints: list[str]
    """What could not be created, each with its place: ``$.queues[3]: ...``."""
    ignored: list[str]
    """What this server does not support, likewise."""
    made: Definitions
    """Of ``KEPT_IN_USERS_FILE`` what was imported without a complaint."""


class Importer:
    """Imports into one broker."""

    def __init__(self, broker: Broker, users: Users, now: float, has: Callable[[str], bool] = always) -> None:
        """``has``: whether a virtual host is this broker's.  What is in another one is left out."""
        self._broker = broker
        self._has = has
        self._users = users
        self.now = now
        """The time of this turn."""
        self._count = 0
        self._complaints: list[str] = []
        self._made: dict[str, list[Any]] = {}

    def run(self, definitions: Definitions) -> Imported:
        """Create everything at once."""
        steps = self.steps(definitions)
        while True:
            try:
                next(steps)
            except StopIteration as done:
                imported: Imported = done.value
                return imported

    def steps(self, definitions: Definitions) -> Generator[None, None, Imported]:
        """Create everything, in the order in which things need each other.

        It pauses after each piece.  Whoever goes on in a later turn sets ``now`` before.
        """
        # Permissions name users and virtual hosts, bindings name exchanges and queues.
        steps: tuple[tuple[str, Sequence[Any], Callable[[Any], Any]], ...] = (
            ("users", definitions.users, self._user),
            ("vhosts", definitions.vhosts, self._vhost),
            ("permissions", definitions.permissions, self._permission),
            ("topic_permissions", definitions.topic_permissions, self._topic_permission),
            # Before queues, which then have them from the beginning.
            ("policies", definitions.policies, self._policy),
            ("global_parameters", definitions.global_parameters, self._global_parameter),
            ("exchanges", definitions.exchanges, self._exchange),
            ("queues", definitions.queues, self._queue),
            ("bindings", definitions.bindings, self._binding),
        )
        counts = {}
        for what, items, make in steps:
            counts[what] = yield from self._each(what, items, make)
        ignored = [
            f"$.{what}[{index}]: {what.replace('_', ' ')} are not supported"
            for what in NOT_SUPPORTED
            for index in range(len(getattr(definitions, what)))
        ]
        ignored += [
            f"$.policies[{index}]: {what}"
            for index, policy in enumerate(definitions.policies)
            for what in _not_supported_in(policy)
        ]
        # What was looked up before holds for connections that are open. It has to be asked again.
        self._broker.forget_permissions()
        if definitions.policies:
            yield from self._apply_policies()
        made = Definitions(**{what: self._made[what] for what in KEPT_IN_USERS_FILE})
        return Imported(counts, self._complaints, ignored, made)

    def _apply_policies(self) -> Iterator[None]:
        for vhost in list(self._broker.vhosts.values()):
            queues = list(vhost.queues.values())
            for start in range(0, len(queues), PIECE):
                if start:
                    yield
                vhost.apply_policies_to(queues[start : start + PIECE], self.now)
            vhost.apply_policies_to_exchanges()

    def _each(
        self, what: str, items: Sequence[Any], make: Callable[[Any], Any]
    ) -> Generator[None, None, int]:
        made = self._made[what] = []
        for index, item in enumerate(items):
            if not is_own(item, self._has):
                continue
            try:
                # ``_user`` returns another definition than it was given: with a hash in place of the
                # password.
                made.append(make(item) or item)
            except BrokerError as refusal:
                # The place as msgspec and JSONPath write it, so that complaints of both look alike.
                self._complaints.append(f"$.{what}[{index}]: {refusal.text}")
            except ValueError as error:
                self._complaints.append(f"$.{what}[{index}]: {error}")
            self._count += 1
            if self._count % PIECE == 0:
                yield
        return len(made)

    def _user(self, given: UserDefinition) -> UserDefinition:
        """Make a user; return the definition to be kept, which has no password in plain text."""
        user = _hashed(given)
        hashing = HASHINGS.get(user.hashing_algorithm)
        if hashing is None:
            raise ValueError(f"hashing_algorithm {user.hashing_algorithm!r} is none of {', '.join(HASHINGS)}")
        password = Password.from_hash(user.password_hash, hashing) if user.password_hash else Password()
        limit = user.limits.get("max-connections", -1)
        if not isinstance(limit, int):
            raise ValueError(f"max-connections is {limit!r}, not a number")
        tags = user.tags.split(",") if isinstance(user.tags, str) else user.tags
        account = self._users.accounts.get(user.name)
        if account is None:
            # As in RabbitMQ, the user whose password everybody knows may only come from this machine.
            from_anywhere = user.name != "guest" or GUEST.from_anywhere
            account = self._users.accounts[user.name] = Account(password, from_anywhere=from_anywhere)
        elif account.everywhere is not None:
            # A user of the topology file may have one set of permissions for all virtual hosts.  Definitions
            # have a set for each, so it is spread over those that exist, and virtual hosts that come later
            # are closed to it.
            account.permissions = dict.fromkeys(self._broker.vhosts, account.everywhere) | account.permissions
            account.everywhere = None
        account.imported = True
        account.password = password
        account.max_connections = limit if limit >= 0 else None  # negative is RabbitMQ's "no limit"
        account.tags = tuple(tag for tag in tags if tag)
        return user

    def _vhost(self, vhost: VhostDefinition) -> None:
        self._broker.add_vhost(vhost.name)

    def _permission(self, permission: PermissionDefinition) -> None:
        account = self._account(permission.user)
        self._broker.vhost(permission.vhost)
        allowed = Permissions(permission.configure, permission.write, permission.read)
        _check_patterns(allowed)
        account.imported = True
        account.permissions[permission.vhost] = allowed

    def _topic_permission(self, permission: TopicPermissionDefinition) -> None:
        account = self._account(permission.user)
        self._broker.vhost(permission.vhost)
        allowed = TopicPermissions(permission.write, permission.read)
        _check_patterns(allowed)
        account.imported = True
        account.topics[permission.vhost, permission.exchange] = allowed

    def _account(self, user: str) -> Account:
        account = self._users.accounts.get(user)
        if account is None:
            raise ValueError(f"there is no user {user!r}")
        return account

    def _policy(self, definition: PolicyDefinition) -> None:
        policy = as_policy(definition)
        self._broker.vhost(policy.vhost)
        check_policy(policy)
        self._broker.policies.add_imported(policy)

    def _global_parameter(self, parameter: GlobalParameterDefinition) -> None:
        self._broker.global_parameters[parameter.name] = parameter.value

    def _exchange(self, exchange: ExchangeDefinition) -> None:
        declare_exchange(self._broker, exchange)

    def _queue(self, queue: QueueDefinition) -> None:
        declare_queue(self._broker, queue, self.now)

    def _binding(self, binding: BindingDefinition) -> None:
        if not binding.source:
            # RabbitMQ exports the bindings of the default exchange, which are there with each queue.
            return
        vhost = self._broker.vhost(binding.vhost)
        destination: Destination
        if binding.destination_type == "queue":
            destination = vhost.find_queue(binding.destination, None)
        elif binding.destination_type == "exchange":
            destination = vhost.find_destination(binding.destination)
        else:
            raise ValueError(f"destination_type is {binding.destination_type!r}, not queue or exchange")
        vhost.bind(binding.source, destination, binding.routing_key, binding.arguments)


def _hashed(user: UserDefinition) -> UserDefinition:
    if not user.password:
        return user
    password_hash = Password.from_plain(user.password, os.urandom(4)).as_hash()
    return msgspec.structs.replace(
        user,
        password="",
        password_hash=password_hash,
        hashing_algorithm="rabbit_password_hashing_sha256",
    )


def _check_patterns(patterns: Iterable[str]) -> None:
    # Now, and not when a client asks for something: an error there would be the client's.
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"{pattern!r} is no regular expression: {error}") from None


def as_policy(definition: PolicyDefinition) -> Policy:
    """Return a policy as the broker takes it."""
    return Policy(**{field: getattr(definition, field) for field in definition.__struct_fields__})


def _not_supported_in(policy: PolicyDefinition) -> list[str]:
    if policy.apply_to not in APPLY_TO:
        return [f"policies for {policy.apply_to} are not supported"]
    return [f"{key} is not supported in a policy" for key in unknown_keys(policy.definition)]


def import_file(path: str, broker: Broker, users: Users, now: float, has: Callable[[str], bool]) -> list[str]:
    """Import the file that the options name; return what was ignored.  ``has``: see ``Importer``.

    ``KernelError`` has all complaints: a broker does not start with half of its queues.
    """
    try:
        with open(path, "rb") as file:
            text = file.read()
    except OSError as error:
        raise KernelError(f"definitions = {path!r}: {error.strerror}") from None
    try:
        imported = Importer(broker, users, now, has).run(read_definitions(text))
    except KernelError as error:
        raise KernelError(f"definitions = {path!r}: {error}") from None
    if imported.complaints:
        raise KernelError(f"definitions = {path!r}: {'; '.join(imported.complaints)}")
    return imported.ignored
