"""Kept users: what was imported into a running server and the store's log does not have, beside that log.

One file in the form of RabbitMQ's definitions, with the users, their permissions and the virtual hosts: what was imported last
counts.  At the next start it is imported again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import msgspec

from kernel.contracts.errors import KernelError
from kernel.hosting.disk import sync_data, sync_directory
from plugins.engines.broker.host.definition_forms import (
    Definitions,
    PermissionDefinition,
    UserDefinition,
    VhostDefinition,
    read_definitions,
)

NAME = "users.json"

_Named = TypeVar("_Named", VhostDefinition, UserDefinition, PermissionDefinition)


class KeptUsers:
    """The file of one data directory."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / NAME
        self._kept = Definitions()

    def read(self) -> Definitions:
        """Return what was kept; ``KernelError`` if the file is there and cannot be read: nobody shall be locked out unnoticed."""
        try:
            self._kept = read_definitions(self._path.read_bytes())
        except FileNotFoundError:
            self._kept = Definitions()
        except (OSError, KernelError) as error:
            raise KernelError(
                f"{self._path}: {error}; mend it, or move it away and import the users again"
            ) from None
        return self._kept

    def add(self, imported: Definitions) -> None:
        """Keep these from now on.  Once it returns they survive a loss of power; ``OSError``: they do not."""
        kept = self._kept
        merged = Definitions(
            users=_merged(kept.users, imported.users, lambda user: user.name),
            vhosts=_merged(kept.vhosts, imported.vhosts, lambda vhost: vhost.name),
            permissions=_merged(kept.permissions, imported.permissions, lambda one: (one.user, one.vhost)),
        )
        if merged != kept:
            self._write(msgspec.json.format(msgspec.json.encode(merged)))
            self._kept = merged

    def _write(self, text: bytes) -> None:
        """Write beside it and rename: a crash leaves the old file or the new one."""
        new = self._path.with_suffix(".new")
        new.unlink(missing_ok=True)
        # Hashes of passwords are its owner's affair.
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(text)
            file.flush()
            sync_data(file.fileno())
        new.rename(self._path)
        sync_directory(self._path.parent)


def _merged(old: Iterable[_Named], new: Iterable[_Named], key: Callable[[_Named], object]) -> list[_Named]:
    return list(({key(one): one for one in old} | {key(one): one for one in new}).values())
