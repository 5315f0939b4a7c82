"""Users file: users, permissions and virtual hosts that were imported into a broker with a data directory.

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
from kernel.hosting.registered import is_missing, replace_registered
from plugins.engines.broker.host.definition_forms import (
    Definitions,
    PermissionDefinition,
    UserDefinition,
    VhostDefinition,
    read_definitions,
)
from plugins.engines.broker.host.durability import USERS_FILE

_Named = TypeVar("_Named", VhostDefinition, UserDefinition, PermissionDefinition)


class _Written(Definitions, frozen=True):
    """What the file has."""

    directory: str = ""
    """The marker of its data directory."""


class UsersFile:
    """The file of one data directory."""

    def __init__(self, directory: Path, marker: bytes) -> None:
        """``marker``: of the directory's store.  It is in the file, so that that of another one is noticed."""
        self._path = directory / USERS_FILE
        self._directory = marker.hex()

    def is_missing(self) -> bool:
        """Return whether the file has been there and is not there now."""
        return is_missing(self._path)

    def read(self) -> Definitions:
        """Return what the file has; empty definitions if there is no file.

        Raises ``KernelError`` if it cannot be read: starting without it would lock users out silently.
        """
        try:
            octets = self._path.read_bytes()
            # First, since it has a message of its own for what is no JSON.
            definitions = read_definitions(octets)
            directory = msgspec.json.decode(octets, type=_Written).directory
        except FileNotFoundError:
            return Definitions()
        except (OSError, KernelError) as error:
            raise KernelError(
                f"{self._path}: {error}; mend it, or move it away and import the users again"
            ) from None
        # An older version does not write it.
        if directory not in ("", self._directory):
            raise KernelError(
                f"{self._path}: it belongs to another data_dir; bring the right one back, or move it away and import "
                "the users again"
            )
        return definitions

    def add(self, imported: Definitions) -> None:
        """Merge these into the file.  On return they survive a loss of power.

        Raises ``OSError`` if the file cannot be written and ``KernelError`` if it cannot be read; it is
        unchanged then.
        """
        before = self.read()
        # Only these three.  Exchanges, queues and bindings are in the store's log, which has them with what
        # has happened to them since.
        merged = _Written(
            directory=self._directory,
            users=_merged(before.users, imported.users, lambda user: user.name),
            vhosts=_merged(before.vhosts, imported.vhosts, lambda vhost: vhost.name),
            permissions=_merged(before.permissions, imported.permissions, lambda one: (one.user, one.vhost)),
        )
        text = msgspec.json.format(msgspec.json.encode(merged))
        if (merged.users or merged.vhosts or merged.permissions) and not self._has(text):
            self._write(text)

    def _write(self, text: bytes) -> None:
        # The file has password hashes, so only its owner may read it.
        replace_registered(self._path, text, mode=0o600)

    def _has(self, text: bytes) -> bool:
        try:
            return self._path.read_bytes() == text
        except FileNotFoundError:
            return False


def _merged(old: Iterable[_Named], new: Iterable[_Named], key: Callable[[_Named], object]) -> list[_Named]:
    return list(({key(one): one for one in old} | {key(one): one for one in new}).values())
