"""``kernel user``: users of a running broker, and what they may do.

``kernel users``, ``kernel permissions`` and ``kernel topic-permissions`` list them.
"""

from __future__ import annotations

import os
from typing import IO, Any

import click

from kernel.contracts.errors import KernelError
from plugins.engines.broker.commands.asking import (
    Row,
    RunningBroker,
    control_option,
    engine_option,
    vhost_option,
)

_NO_LIMIT = -1
"""RabbitMQ's word for any number of connections."""

_password_option = click.option(
    "--password-file",
    type=click.File("r"),
    help='A file whose first line is the password; "-" reads standard input.',
)
_tag_option = click.option("--tag", "tags", multiple=True, help="What tools show; may be repeated.")
_limit_option = click.option(
    "--max-connections",
    type=click.IntRange(min=_NO_LIMIT),
    help="How many connections at a time; -1: any number.",
)


@click.group("user")
def command() -> None:
    """Add, change or delete a user of a running broker, and what the user may do.

    `kernel users`, `kernel permissions` and `kernel topic-permissions` list them.  With a data_dir changes
    are kept for the next start.
    """


@command.command("add")
@click.argument("name")
@_password_option
@_tag_option
@_limit_option
@control_option
@engine_option
def add(
    name: str,
    password_file: IO[str] | None,
    tags: tuple[str, ...],
    max_connections: int | None,
    control: str | None,
    engine: str | None,
) -> None:
    """Add the user NAME, who may do nothing until `kernel user permit`.

    Without --password-file the password is asked for.
    """
    broker = RunningBroker(control, engine)
    if _find(broker, name) is not None:
        raise KernelError(f"there is a user {name!r} already: kernel user change {name}")
    limit = _NO_LIMIT if max_connections is None else max_connections
    password_hash = _hashed(_ask_password() if password_file is None else _first_line(password_file))
    user = {"name": name, "tags": list(tags), "limits": {"max-connections": limit}}
    broker.change("import-definitions", "users", user | password_hash)


@command.command("change")
@click.argument("name")
@_password_option
@click.option("--password", "asks", is_flag=True, help="Ask for a new password.")
@_tag_option
@click.option("--no-tags", is_flag=True, help="Remove all tags.")
@_limit_option
@control_option
@engine_option
def change(
    name: str,
    password_file: IO[str] | None,
    asks: bool,
    tags: tuple[str, ...],
    no_tags: bool,
    max_connections: int | None,
    control: str | None,
    engine: str | None,
) -> None:
    """Change the user NAME: the password, the tags, how many connections.

    What is not named stays.  A new password counts for the next login.
    """
    if not (password_file or asks or tags or no_tags or max_connections is not None):
        raise click.UsageError(
            "nothing to change: --password, --password-file, --tag, --no-tags or --max-connections"
        )
    broker = RunningBroker(control, engine)
    row = _find(broker, name)
    if row is None:
        raise KernelError(f"there is no user {name!r}")
    user = as_user_definition(row)
    if password_file is not None or asks:
        user |= _hashed(_ask_password() if password_file is None else _first_line(password_file))
    if tags or no_tags:
        user["tags"] = list(tags)
    if max_connections is not None:
        user["limits"] = {"max-connections": max_connections}
    broker.change("import-definitions", "users", user)


@command.command("delete")
@click.argument("name")
@control_option
@engine_option
def delete(name: str, control: str | None, engine: str | None) -> None:
    """Delete the user NAME, who was added or imported, and close the connections of this user.

    A user of the topology file who was changed becomes what the file says.
    """
    RunningBroker(control, engine).change("delete-definitions", "users", {"name": name})


@command.command("permit")
@click.argument("name")
@click.option("--configure", default="", help="Queues and exchanges that the user may declare and delete.")
@click.option("--write", default="", help="To which the user may publish and bind.")
@click.option("--read", default="", help="From which the user may consume and bind.")
@vhost_option
@control_option
@engine_option
def permit(
    name: str, configure: str, write: str, read: str, vhost: str, control: str | None, engine: str | None
) -> None:
    """Say what the user NAME may do in a virtual host, instead of what was said before.

    The options are regular expressions that are searched in the names of queues and exchanges: ".*" allows
    everything, "^orders" what begins so, and an empty one, the default, nothing.
    """
    permission = {"user": name, "vhost": vhost, "configure": configure, "write": write, "read": read}
    RunningBroker(control, engine).change("import-definitions", "permissions", permission)


@command.command("forbid")
@click.argument("name")
@vhost_option
@control_option
@engine_option
def forbid(name: str, vhost: str, control: str | None, engine: str | None) -> None:
    """Close a virtual host to the user NAME.

    Connections that are open may do nothing more in it.
    """
    RunningBroker(control, engine).change("delete-definitions", "permissions", {"user": name, "vhost": vhost})


@command.command("permit-topics")
@click.argument("name")
@click.option("--exchange", required=True, help="The topic exchange.")
@click.option("--write", default="", help="Keys with which the user may publish.")
@click.option("--read", default="", help="Keys with which the user may bind or subscribe.")
@vhost_option
@control_option
@engine_option
def permit_topics(
    name: str, exchange: str, write: str, read: str, vhost: str, control: str | None, engine: str | None
) -> None:
    """Say which keys of a topic exchange are for the user NAME, instead of what was said before.

    The options are regular expressions that are searched in the key: ".*" allows every key, and an empty
    one, the default, none but the empty key.  {username}, {vhost} and, for MQTT clients, {client_id} stand
    for what they name.  Other exchanges are not concerned, and a user still needs the permissions of
    `kernel user permit`.
    """
    permission = {"user": name, "vhost": vhost, "exchange": exchange, "write": write, "read": read}
    RunningBroker(control, engine).change("import-definitions", "topic_permissions", permission)


@command.command("free-topics")
@click.argument("name")
@click.option("--exchange", help="The topic exchange; default: all exchanges of the virtual host.")
@vhost_option
@control_option
@engine_option
def free_topics(name: str, exchange: str | None, vhost: str, control: str | None, engine: str | None) -> None:
    """Take back what `kernel user permit-topics` has said: the keys are then limited no more."""
    named = {"user": name, "vhost": vhost, **({} if exchange is None else {"exchange": exchange})}
    RunningBroker(control, engine).change("delete-definitions", "topic_permissions", named)


def as_user_definition(row: Row) -> dict[str, Any]:
    """Return a user as RabbitMQ's definitions have it; ``row`` is one of the table ``accounts``."""
    limit = row["max_connections"]
    return {
        "name": row["name"],
        "password_hash": row["password_hash"],
        "hashing_algorithm": f"rabbit_password_hashing_{row['hashing']}",
        "tags": row["tags"],
        "limits": {} if limit is None else {"max-connections": limit},
    }


def _find(broker: RunningBroker, name: str) -> Row | None:
    return next((row for row in broker.rows("accounts") if row["name"] == name), None)


def _ask_password() -> str:
    password: str = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    return password


def _first_line(file: IO[str]) -> str:
    password = file.readline().rstrip("\r\n")
    if not password:
        raise KernelError(f"{file.name}: its first line is to be the password, and it is empty")
    return password


def _hashed(password: str) -> dict[str, str]:
    from plugins.engines.broker.host.passwords import Password

    return {
        "password_hash": Password.from_plain(password, os.urandom(4)).as_hash(),
        "hashing_algorithm": "rabbit_password_hashing_sha256",
    }
