"""``kernel peek``: looks at the first messages of a queue."""

from __future__ import annotations

import json

import click

from kernel.cli.showing import control_option, json_option, message_lines
from kernel.topology.control import ask, engine_with, find_running


@click.command("peek")
@click.argument("queue")
@click.option(
    "-n", "--count", type=click.IntRange(1, 1000), default=10, show_default=True, help="How many messages."
)
@click.option("--vhost", default="/", show_default=True, help="The virtual host of the queue.")
@click.option("--engine", help="Which engine, where several of the system can.")
@click.option(
    "--bytes",
    "most_bytes",
    type=click.IntRange(0, 16 * 1024 * 1024),
    default=4096,
    show_default=True,
    help="How much to show of each body.",
)
@json_option
@control_option
def command(
    queue: str,
    count: int,
    vhost: str,
    engine: str | None,
    most_bytes: int,
    as_json: bool,
    control: str | None,
) -> None:
    """Look at the first messages of QUEUE, and leave them there.

    They are shown in the order in which they would be delivered.  They keep their place, and do not count as
    redelivered.  Messages that a consumer has and has not acknowledged are not shown.  With --json each
    message is a line; a body that is no text is in base64.
    """
    path = control or find_running()
    name = engine_with(path, "peek", engine)
    wanted = {"queue": queue, "vhost": vhost, "count": count, "most_bytes": most_bytes}
    # Longer than an operation may take (``LONGEST_OPERATION``), so that the system itself says what went
    # wrong.
    done = ask(path, "peek", 60.0, engine=name, argument=wanted)["done"]
    for row in done["messages"]:
        if as_json:
            click.echo(json.dumps(row))
        else:
            for line in message_lines(row):
                click.echo(line)
    if not as_json:
        click.echo(
            f"{len(done['messages'])} shown of {done['ready']} ready; {done['unacked']} unacknowledged"
        )
