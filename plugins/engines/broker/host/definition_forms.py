"""Definition forms: what ``rabbitmqctl export_definitions`` writes, JSON with a list for each sort of thing.

Keys that are not here (metadata, versions) are ignored: unlike options, these structs take unknown fields,
since a newer RabbitMQ may export more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from kernel.contracts.errors import KernelError
from plugins.engines.broker.host.options import Hashing

HASHINGS: dict[str, Hashing] = {
    "rabbit_password_hashing_sha256": "sha256",
    "rabbit_password_hashing_sha512": "sha512",
    "rabbit_password_hashing_md5": "md5",
}


def always(vhost: str) -> bool:
    """Say that a virtual host is the broker's own: every one is, unless it has shards."""
    return True


def is_own(definition: Any, has: Callable[[str], bool]) -> bool:
    """Whether a definition is in a virtual host of which ``has`` says so, or in none, as a user is."""
    if isinstance(definition, VhostDefinition):
        return has(definition.name)
    vhost = getattr(definition, "vhost", None)
    return vhost is None or has(vhost)


class UserDefinition(msgspec.Struct, frozen=True):
    """A user; the hash is empty for one whom no password lets in."""

    name: str
    password: str = ""
    """In plain text, instead of a hash.  It is not kept so."""
    password_hash: str = ""
    hashing_algorithm: str = "rabbit_password_hashing_sha256"
    # Older versions of RabbitMQ export one text with commas.
    tags: list[str] | str = ""
    limits: dict[str, Any] = {}
    """``max-connections``; negative: no limit.  Others are not kept."""


class VhostDefinition(msgspec.Struct, frozen=True):
    """A virtual host."""

    name: str


class PermissionDefinition(msgspec.Struct, frozen=True):
    """What a user may do in a virtual host; an empty pattern is nothing."""

    user: str
    vhost: str
    configure: str
    write: str
    read: str


class TopicPermissionDefinition(msgspec.Struct, frozen=True):
    """Which keys of a topic exchange are for a user; an empty pattern is the empty key only."""

    user: str
    vhost: str
    exchange: str
    write: str
    read: str


class ExchangeDefinition(msgspec.Struct, frozen=True):
    """An exchange."""

    name: str
    vhost: str
    type: str
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    arguments: dict[str, Any] = {}


class QueueDefinition(msgspec.Struct, frozen=True):
    """A queue."""

    name: str
    vhost: str
    durable: bool = True
    auto_delete: bool = False
    arguments: dict[str, Any] = {}


class BindingDefinition(msgspec.Struct, frozen=True):
    """A binding."""

    source: str
    vhost: str
    destination: str
    destination_type: str
    routing_key: str = ""
    arguments: dict[str, Any] = {}


class PolicyDefinition(msgspec.Struct, frozen=True, rename={"apply_to": "apply-to"}):
    """A policy."""

    name: str
    vhost: str
    pattern: str
    definition: dict[str, Any]
    priority: int = 0
    apply_to: str = "all"


class GlobalParameterDefinition(msgspec.Struct, frozen=True):
    """A value that operators or tools keep in the broker."""

    name: str
    value: Any


class Definitions(msgspec.Struct, frozen=True):
    """A whole file."""

    users: list[UserDefinition] = []
    vhosts: list[VhostDefinition] = []
    permissions: list[PermissionDefinition] = []
    topic_permissions: list[TopicPermissionDefinition] = []
    exchanges: list[ExchangeDefinition] = []
    queues: list[QueueDefinition] = []
    bindings: list[BindingDefinition] = []
    policies: list[PolicyDefinition] = []
    parameters: list[dict[str, Any]] = []
    global_parameters: list[GlobalParameterDefinition] = []


class PolicyName(msgspec.Struct, frozen=True):
    """Which policy."""

    vhost: str
    name: str


class UserName(msgspec.Struct, frozen=True):
    """Which user."""

    name: str


class PermissionName(msgspec.Struct, frozen=True):
    """Whose permissions, and where."""

    user: str
    vhost: str


class TopicPermissionName(msgspec.Struct, frozen=True):
    """Whose permissions for topics, and where."""

    user: str
    vhost: str
    exchange: str | None = None
    """None: of all exchanges."""


class GlobalParameterName(msgspec.Struct, frozen=True):
    """Which global parameter."""

    name: str


class Deletions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is to be deleted: lists as in ``Definitions``, with names only."""

    users: list[UserName] = []
    permissions: list[PermissionName] = []
    topic_permissions: list[TopicPermissionName] = []
    policies: list[PolicyName] = []
    global_parameters: list[GlobalParameterName] = []


KEPT_IN_USERS_FILE = (
    "users",
    "vhosts",
    "permissions",
    "topic_permissions",
    "policies",
    "global_parameters",
)
"""Sorts that the store's log does not have, and the users file has."""

NOT_SUPPORTED = ("parameters",)
"""Sorts that are read, and reported as not supported."""


def read_deletions(document: object) -> Deletions:
    """Return what is to be deleted; ``KernelError`` names the place of a mistake."""
    try:
        return msgspec.convert(document, Deletions)
    except msgspec.ValidationError as error:
        raise KernelError(f"these are no definitions to delete: {error}") from None


def read_definitions(document: object) -> Definitions:
    """Return the definitions in a JSON text, or in what was read of one.

    ``KernelError`` names the place of a mistake.
    """
    try:
        if isinstance(document, bytes):
            return msgspec.json.decode(document, type=Definitions)
        return msgspec.convert(document, Definitions)
    # A ValidationError is a DecodeError; a UnicodeDecodeError is none.
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        place = ""
        if isinstance(document, bytes) and not isinstance(error, msgspec.ValidationError):
            place = _where_malformed(document)
        raise KernelError(f"{place}these are no definitions: {error}") from None


def _where_malformed(text: bytes) -> str:
    """Return the line in which a text is no JSON, as the beginning of a complaint; empty if it is JSON."""
    # Most systems never need it.
    import json

    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return f"line {error.lineno}, column {error.colno}: "
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        return f"line {line}: "
    except RecursionError:
        pass
    return ""
