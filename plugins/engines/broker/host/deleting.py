"""Deleting: users, permissions and policies that an operator no longer wants.

It is for what was imported, or set by a command.  What is in the topology file is changed there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from plugins.engines.broker.broker import Broker
from plugins.engines.broker.host.definition_forms import (
    Deletions,
    GlobalParameterName,
    PermissionName,
    PolicyName,
    TopicPermissionName,
    UserName,
    always,
    is_own,
)
from plugins.engines.broker.host.options import User
from plugins.engines.broker.host.users import Users


class Deleted(msgspec.Struct, frozen=True):
    """The result."""

    counts: dict[str, int]
    """How many of each sort were deleted."""
    complaints: list[str]
    """What could not be deleted, each with its place: ``$.users[3]: ...``."""
    gone: set[str]
    """Users who do not exist any more."""
    done: Deletions
    """What was deleted without a complaint."""


class Deleter:
    """Deletes from one broker."""

    def __init__(
        self,
        broker: Broker,
        users: Users,
        options: Mapping[str, User],
        now: float,
        has: Callable[[str], bool] = always,
    ) -> None:
        """``options``: the users of the topology file.  ``has``: whether a virtual host is this broker's."""
        self._has = has
        self._broker = broker
        self._users = users
        self._options = options
        self._now = now
        self._complaints: list[str] = []
        self._gone: set[str] = set()

    def run(self, deletions: Deletions) -> Deleted:
        """Delete whatever can be deleted."""
        done = Deletions(
            policies=self._each("policies", deletions.policies, self._policy),
            permissions=self._each("permissions", deletions.permissions, self._permission),
            topic_permissions=self._each(
                "topic_permissions", deletions.topic_permissions, self._topic_permission
            ),
            users=self._each("users", deletions.users, self._user),
            global_parameters=self._each(
                "global_parameters", deletions.global_parameters, self._global_parameter
            ),
        )
        self._broker.forget_permissions()
        if deletions.policies:
            self._broker.apply_policies(self._now)
        counts = {what: len(getattr(done, what)) for what in done.__struct_fields__}
        return Deleted(counts, self._complaints, self._gone, done)

    def _each(self, what: str, items: Sequence[Any], delete: Callable[[Any], None]) -> list[Any]:
        done = []
        for index, item in enumerate(items):
            if not is_own(item, self._has):
                continue
            try:
                delete(item)
                done.append(item)
            except ValueError as error:
                self._complaints.append(f"$.{what}[{index}]: {error}")
        return done

    def _policy(self, policy: PolicyName) -> None:
        self._broker.policies.remove_imported(policy.vhost, policy.name)

    def _permission(self, permission: PermissionName) -> None:
        self._users.forbid(permission.user, permission.vhost, self._options)

    def _topic_permission(self, permission: TopicPermissionName) -> None:
        self._users.free_topics(permission.user, permission.vhost, permission.exchange, self._options)

    def _global_parameter(self, parameter: GlobalParameterName) -> None:
        if parameter.name not in self._broker.global_parameters:
            raise ValueError(f"there is no global parameter {parameter.name!r}")
        del self._broker.global_parameters[parameter.name]

    def _user(self, user: UserName) -> None:
        if self._users.delete(user.name, self._options):
            self._gone.add(user.name)
