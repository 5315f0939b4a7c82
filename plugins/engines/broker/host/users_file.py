"""Users file: imported definitions that the store's log does not have.

A broker with a data directory has imported them.

These are users, permissions of both kinds, virtual hosts, policies and global parameters.

The store's log has exchanges, queues and bindings only.  This file stands beside it, in the form of
RabbitMQ's definitions, and is imported at the next start.  Of two definitions of the same thing, the one
imported last counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import msgspec

from kernel.contracts.errors import KernelError
from kernel.hosting.registered import is_foreign, is_missing, replace_registered
from plugins.engines.broker.host.definition_forms import (
    Definitions,
    Deletions,
    GlobalParameterDefinition,
    PermissionDefinition,
    PolicyDefinition,
    TopicPermissionDefinition,
    UserDefinition,
    VhostDefinition,
    read_definitions,
)
from plugins.engines.broker.host.durability import USERS_FILE, USERS_KNOWN

_TOKEN = "registered"
"""The key of the token (``kernel/hosting/registered.py``).  Definitions of RabbitMQ have none."""
_Named = TypeVar(
    "_Named",
    VhostDefinition,
    UserDefinition,
    PermissionDefinition,
    TopicPermissionDefinition,
    PolicyDefinition,
    GlobalParameterDefinition,
)


class UsersFile:
    """The file of one data directory."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / USERS_FILE

    def is_missing(self) -> bool:
        """Return whether the file has been there and is not there now."""
        return is_missing(self._path)

    def read(self) -> Definitions:
        """Return what the file has; empty definitions if there is no file.

        Raises ``KernelError`` if it cannot be read: starting without it would lock users out silently.
        """
        try:
            octets = self._path.read_bytes()
            definitions = read_definitions(octets)
        except FileNotFoundError:
            return Definitions()
        except (OSError, KernelError) as error:
            raise KernelError(
                f"{self._path}: {error}; mend it, or move it away and import the users again"
            ) from None
        if is_foreign(self._path, msgspec.json.decode(octets).get(_TOKEN, "")):
            raise KernelError(
                f"{self._path}: it is not the file that {USERS_KNOWN} names, but that of another data_dir; bring the "
                "right one back, or move both away and import the users again"
            )
        return definitions

    def add(self, imported: Definitions) -> None:
        """Merge these into the file.  On return they survive a loss of power.

        Raises ``OSError`` if the file cannot be written and ``KernelError`` if it cannot be read; it is
        unchanged then.
        """
        before = self.read()
        # Only these.  Exchanges, queues and bindings are in the store's log, which has them with what
        # has happened to them since.
        merged = Definitions(
            users=_merged(before.users, imported.users, lambda user: user.name),
            vhosts=_merged(before.vhosts, imported.vhosts, lambda vhost: vhost.name),
            permissions=_merged(before.permissions, imported.permissions, lambda one: (one.user, one.vhost)),
            topic_permissions=_merged(
                before.topic_permissions,
                imported.topic_permissions,
                lambda one: (one.user, one.vhost, one.exchange),
            ),
            policies=_merged(before.policies, imported.policies, lambda one: (one.vhost, one.name)),
            global_parameters=_merged(
                before.global_parameters, imported.global_parameters, lambda one: one.name
            ),
        )
        # A file that would be the same is not written: each write waits for the disk.
        if merged != before:
            self._write(merged)

    def remove(self, gone: Deletions) -> None:
        """Remove these from the file, and the permissions of users that are removed; otherwise as ``add``."""
        before = self.read()
        users = {user.name for user in gone.users}
        permissions = {(one.user, one.vhost) for one in gone.permissions}
        topics = {(one.user, one.vhost, one.exchange) for one in gone.topic_permissions}
        policies = {(one.vhost, one.name) for one in gone.policies}
        parameters = {one.name for one in gone.global_parameters}
        left = Definitions(
            users=[user for user in before.users if user.name not in users],
            vhosts=before.vhosts,
            permissions=[
                one
                for one in before.permissions
                if one.user not in users and (one.user, one.vhost) not in permissions
            ],
            topic_permissions=[
                one
                for one in before.topic_permissions
                if one.user not in users
                # None: a deletion that names no exchange is about all of them.
                and (one.user, one.vhost, None) not in topics
                and (one.user, one.vhost, one.exchange) not in topics
            ],
            policies=[one for one in before.policies if (one.vhost, one.name) not in policies],
            global_parameters=[one for one in before.global_parameters if one.name not in parameters],
        )
        if left != before:
            self._write(left)

    def remove_vhost(self, name: str) -> None:
        """Remove a virtual host, and what is said of it; otherwise as ``add``."""
        before = self.read()
        left = Definitions(
            users=before.users,
            vhosts=[vhost for vhost in before.vhosts if vhost.name != name],
            permissions=[one for one in before.permissions if one.vhost != name],
            topic_permissions=[one for one in before.topic_permissions if one.vhost != name],
            policies=[one for one in before.policies if one.vhost != name],
            global_parameters=before.global_parameters,
        )
        if left != before:
            self._write(left)

    def _write(self, merged: Definitions) -> None:
        def encode(token: str) -> bytes:
            return msgspec.json.format(msgspec.json.encode(msgspec.to_builtins(merged) | {_TOKEN: token}))

        # The file has password hashes, so only its owner may read it.
        replace_registered(self._path, encode, mode=0o600)


def _merged(old: Iterable[_Named], new: Iterable[_Named], key: Callable[[_Named], object]) -> list[_Named]:
    # The later one counts, where the earlier one was.
    return list(({key(one): one for one in old} | {key(one): one for one in new}).values())
