"""Users: who may log in, from where, and what they may do (RabbitMQ's configure, write and read)."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from plugins.engines.broker.errors import AccessRefused, NotAllowed
from plugins.engines.broker.host.options import TopicPatterns, User, VhostPermissions
from plugins.engines.broker.host.passwords import Password
from plugins.engines.broker.names import invent_name

if TYPE_CHECKING:
    from plugins.engines.broker.exchange import Exchange
    from plugins.engines.broker.virtual_host import VirtualHost

Operation: TypeAlias = Literal["configure", "write", "read"]


class Permissions(NamedTuple):
    """Regular expressions that are searched in a resource's name.

    As in RabbitMQ, the empty one allows nothing.
    """

    configure: str = ".*"
    write: str = ".*"
    read: str = ".*"


class TopicPermissions(NamedTuple):
    """Regular expressions that are searched in the keys of one topic exchange.

    As in RabbitMQ, the empty one matches the empty key only.  ``{username}``, ``{vhost}`` and, of an MQTT
    client, ``{client_id}`` stand for what they name.
    """

    write: str = ".*"
    read: str = ".*"


class Account:
    """What is known of one user.  Changes count at once for connections that are logged in."""

    def __init__(
        self,
        password: Password,
        *,
        from_anywhere: bool,
        everywhere: Permissions | None = None,
        tags: tuple[str, ...] = (),
    ) -> None:
        """``everywhere``: permissions in virtual hosts that have none of their own.

        None: it may not open those.
        """
        self.password = password
        self.from_anywhere = from_anywhere
        self.everywhere = everywhere
        self.permissions: dict[str, Permissions] = {}
        self.topics: dict[tuple[str, str], TopicPermissions] = {}
        """By virtual host and exchange."""
        self.topics_everywhere: dict[str, TopicPermissions] = {}
        """By exchange, in virtual hosts for which ``topics`` does not name the exchange."""
        self.max_connections: int | None = None
        """How many connections it may have open at a time; None: any number."""
        self.connections = 0
        """How many it has open."""
        self.tags = tags
        self.imported = False
        """Whether definitions or a command have made or changed it.  Changes of the options do not
        count for it then."""

    @classmethod
    def from_options(cls, user: User) -> Account:
        """Return the account that a topology file describes."""
        account = cls(Password(), from_anywhere=True)
        account.take(user)
        return account

    def take(self, user: User) -> None:
        """Become what a topology file describes.  Connections that are logged in stay."""
        if user.password_hash:
            self.password = Password.from_hash(user.password_hash, user.hashing)
        else:
            # Hashed although the topology file has it in plain text, so that ``kernel definitions export
            # --users`` shows a hash of every user.
            self.password = Password.from_plain(user.password, os.urandom(4))
        allowed = _permissions_of(user)
        self.everywhere = None if user.vhosts or user.permissions else allowed
        self.permissions = _permissions_by_vhost(user)
        self.topics_everywhere = {exchange: _topics_of(each) for exchange, each in user.topics.items()}
        self.topics = {
            (vhost, exchange): _topics_of(each)
            for vhost, patterns in user.permissions.items()
            for exchange, each in patterns.topics.items()
        }
        self.from_anywhere = user.from_anywhere
        self.max_connections = user.max_connections or None
        self.tags = user.tags

    def allowed_in(self, vhost: str) -> Permissions | None:
        """Return what it may do in a virtual host; None: not even open it."""
        return self.permissions.get(vhost, self.everywhere)

    def allowed_topics(self, vhost: str, exchange: str) -> TopicPermissions | None:
        """Return which keys of a topic exchange are for it; None: all."""
        return self.topics.get((vhost, exchange), self.topics_everywhere.get(exchange))


def _permissions_of(patterns: User | VhostPermissions) -> Permissions:
    # In the options, no pattern is no restriction.  In definitions, as in RabbitMQ, it is the opposite.
    return Permissions(patterns.configure or ".*", patterns.write or ".*", patterns.read or ".*")


def _topics_of(patterns: TopicPatterns) -> TopicPermissions:
    return TopicPermissions(patterns.write or ".*", patterns.read or ".*")


def _permissions_by_vhost(user: User) -> dict[str, Permissions]:
    named = {vhost: _permissions_of(each) for vhost, each in user.permissions.items()}
    return dict.fromkeys(user.vhosts, _permissions_of(user)) | named


class Login:
    """A user who has logged in."""

    def __init__(self, name: str, account: Account) -> None:
        self.name = name
        self.account = account
        self.client_id: str | None = None
        """The MQTT client identifier, for patterns of topics; None: the protocol has none."""

    def enter(self, vhost: str) -> None:
        """Count one more connection.

        Refuse a virtual host that is not for this user, and a connection too many.
        """
        # Refused before it is counted: a client that was refused does not call ``leave``.
        account = self.account
        most = account.max_connections
        if account.allowed_in(vhost) is None:
            raise NotAllowed(f"access to vhost '{vhost}' refused for user '{self.name}'")
        if most is not None and account.connections >= most:
            raise NotAllowed(
                f"connection refused for user '{self.name}': user connection limit ({most}) is reached"
            )
        account.connections += 1

    def leave(self) -> None:
        """The connection is over."""
        self.account.connections -= 1

    def require(self, operation: Operation, kind: str, name: str, vhost: str) -> None:
        """Refuse an operation on a queue or exchange that is not for this user."""
        allowed = self.account.allowed_in(vhost)
        # So RabbitMQ names the default exchange where permissions are concerned.
        name = name or "amq.default"
        # ``re`` caches what it has compiled, and publishers ask once for each envelope only.
        pattern = "" if allowed is None else getattr(allowed, operation)
        if pattern != ".*" and not (pattern and re.search(pattern, name)):
            raise AccessRefused(
                f"access to {kind} '{name}' in vhost '{vhost}' refused for user '{self.name}'"
            )

    def topic_pattern(
        self, operation: Literal["write", "read"], exchange: Exchange | None, vhost: str
    ) -> re.Pattern[str] | None:
        """Return what a key has to match for this user at an exchange; None: every key is allowed."""
        if exchange is None or exchange.kind != "topic":
            return None
        allowed = self.account.allowed_topics(vhost, exchange.name)
        if allowed is None or (pattern := getattr(allowed, operation)) == ".*":
            return None
        variables = {"username": self.name, "vhost": vhost}
        if self.client_id is not None:
            variables["client_id"] = self.client_id
        for name, value in variables.items():
            # Escaped: a client chooses its identifier, and ".*" must not open everything.
            pattern = pattern.replace(f"{{{name}}}", re.escape(value))
        try:
            return re.compile(pattern or "^$")
        except re.error:
            # It was an expression with the names of its variables, and is none with their values.
            return _NOTHING

    def require_topic(
        self, operation: Literal["write", "read"], exchange: Exchange | None, key: str, vhost: str
    ) -> None:
        """Refuse a key of a topic exchange that is not for this user."""
        pattern = self.topic_pattern(operation, exchange, vhost)
        if pattern is not None and exchange is not None and not pattern.search(key):
            raise topic_refused(key, exchange.name, vhost, self.name)

    def require_queue(self, name: str, arguments: Mapping[str, Any], vhost: VirtualHost) -> None:
        """Refuse the declaration of a queue that is not for this user.

        Also if its messages may go to an exchange that is not for this user.

        ``name``: empty for one that the broker chooses.
        """
        # Permissions are checked with a name like the one that the broker will choose.
        name = name or invent_name("amq.gen-", vhost.broker.random)
        self.require("configure", "queue", name, vhost.name)
        # For a new queue only, as in RabbitMQ: who declares it again need not have the rights of its creator.
        target = arguments.get("x-dead-letter-exchange")
        if isinstance(target, str) and name not in vhost.queues:
            self.require("read", "queue", name, vhost.name)
            self.require("write", "exchange", target, vhost.name)

    def require_binding(
        self, source: str, kind: Literal["queue", "exchange"], destination: str, key: str, vhost: VirtualHost
    ) -> None:
        """Refuse a binding, or its end.  ``kind``: what the destination is."""
        # RabbitMQ's rule: a binding reads from its source and writes to its destination.
        self.require("write", kind, destination, vhost.name)
        self.require("read", "exchange", source, vhost.name)
        self.require_topic("read", vhost.exchanges.get(source), key, vhost.name)


_NOTHING = re.compile("(?!)")
"""Matches no text."""


def topic_refused(key: str, exchange: str, vhost: str, user: str) -> AccessRefused:
    """Return the error for a key of a topic exchange that is not for a user, in RabbitMQ's words."""
    return AccessRefused(
        f"access to topic '{key}' in exchange '{exchange}' in vhost '{vhost}' refused for user '{user}'"
    )


class Users:
    """All who may log in.  Passwords are checked here, and other proofs of identity by the front ends."""

    def __init__(self, users: Mapping[str, User]) -> None:
        self.accounts = {name: Account.from_options(user) for name, user in users.items()}

    def change(self, before: Mapping[str, User], after: Mapping[str, User]) -> set[str]:
        """The options have changed; return the names of users who are gone.

        What definitions have imported stays, as at a start: there they come after the options.
        """
        for name, user in after.items():
            account = self.accounts.get(name)
            if account is None:
                self.accounts[name] = Account.from_options(user)
            elif user != before.get(name) and not account.imported:
                account.take(user)
        gone = {name for name in before.keys() - after.keys() if not self._is_imported(name)}
        for name in gone:
            self.accounts.pop(name, None)
        return gone

    def delete(self, name: str, options: Mapping[str, User]) -> bool:
        """Delete a user whom definitions have made; return whether the user is gone.

        One of the options whom they have changed becomes what the options say, and stays.  Raises
        ``ValueError`` if there is nothing to delete.
        """
        account = self._require(name)
        of_options = options.get(name)
        if of_options is None:
            del self.accounts[name]
            return True
        if not account.imported:
            raise ValueError(f"user {name!r} is in the topology file: remove the user there, and send SIGHUP")
        account.take(of_options)
        account.imported = False
        return False

    def forbid(self, name: str, vhost: str, options: Mapping[str, User]) -> None:
        """Forget the permissions that definitions have given to a user; ``ValueError`` if there are none.

        A user of the options then has what these say.  The virtual host is closed to any other.
        """
        account = self._require(name)
        of_options = _permissions_by_vhost(options[name]) if name in options else {}
        if name in options and account.permissions.get(vhost) == of_options.get(vhost):
            raise ValueError(
                f"user {name!r} is in the topology file: change the permissions there, and send SIGHUP"
            )
        if account.permissions.pop(vhost, None) is None:
            raise ValueError(f"user {name!r} has no permissions in vhost {vhost!r}")
        if vhost in of_options:
            account.permissions[vhost] = of_options[vhost]

    def free_topics(self, name: str, vhost: str, exchange: str | None, options: Mapping[str, User]) -> None:
        """Delete the permissions for topics of a user whom definitions have made.

        Those of an exchange, or of all exchanges.

        The keys are then limited no more.  ``ValueError`` if there are no such permissions.
        """
        account = self._require(name)
        if name in options:
            raise ValueError(
                f"user {name!r} is in the topology file: change the topics there, and send SIGHUP"
            )
        found = [each for each in account.topics if each[0] == vhost and exchange in (None, each[1])]
        if not found:
            of = "" if exchange is None else f" of exchange {exchange!r}"
            raise ValueError(f"user {name!r} has no permissions for topics{of} in vhost {vhost!r}")
        for each in found:
            del account.topics[each]

    def _require(self, name: str) -> Account:
        account = self.accounts.get(name)
        if account is None:
            raise ValueError(f"there is no user {name!r}")
        return account

    def _is_imported(self, name: str) -> bool:
        account = self.accounts.get(name)
        return account is not None and account.imported

    def log_in(self, name: str, *, loopback: bool) -> Login | None:
        """Return the login of a user whose identity is proven.

        None if there is no such user, or not from there.

        ``loopback``: the client is on this machine.
        """
        account = self.accounts.get(name)
        if account is None or not (loopback or account.from_anywhere):
            return None
        return Login(name, account)

    def log_in_by_password(self, name: str, password: str, *, loopback: bool) -> Login | None:
        """Check a password, and log in.  None for every failure: a client is not told the reason."""
        return self.log_in(name, loopback=loopback) if self._knows(name, password) else None

    def plain_password(self, name: str) -> str | None:
        """Return a user's password in plain text.

        None if there is no such user, or the broker has a hash only.

        For a front end whose clients prove that they know the password without sending it.
        """
        account = self.accounts.get(name)
        return None if account is None else account.password.plain or None

    def _knows(self, name: str, password: str) -> bool:
        account = self.accounts.get(name)
        return account is not None and account.password.is_given_by(password)

    def renew(self, login: Login) -> None:
        """A user who has logged in brings another secret: the login has the current account from now on.

        The secret is not looked at.  It is for tokens that run out, and a password does not: RabbitMQ accepts
        any, too.
        """
        account = self.accounts.get(login.name)
        if account is None:
            raise NotAllowed("New secret was refused by one of the backends")  # RabbitMQ's words
        # The account may be another object by now: a user who was deleted and made again. The connection
        # counts for the new one.
        login.leave()
        login.account = account
        account.connections += 1
