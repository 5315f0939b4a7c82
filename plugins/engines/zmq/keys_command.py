"""``kernel zmq-keys``: a new pair of keys for CURVE."""

from __future__ import annotations

from pathlib import Path

import click

from kernel.contracts.errors import KernelError
from plugins.engines.zmq.certificates import Certificate, write_certificates
from plugins.protocols.zmtp.options import CURVE

_DOLLAR = "$"


@click.command("zmq-keys")
@click.argument("name", required=False)
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    help="Where the files go; default: here.",
)
def command(name: str | None, folder: Path) -> None:
    """Make a pair of keys for mechanism CURVE.

    With NAME the pair is written to NAME.key (to be given away) and NAME.key_secret (to be kept), which
    pyzmq's zmq.auth reads, too.  Without it both keys are printed in Z85.
    """
    pair = _new_pair()
    if name is None:
        click.echo(f'public = "{pair.public}"\nsecret = "{pair.secret}"')
        return
    if Path(name).name != name:
        raise click.ClickException(f"{name!r} is no name of a file; the option --folder says where it goes")
    try:
        for path in write_certificates(folder, name, pair):
            click.echo(path)
    except KernelError as error:
        raise click.ClickException(str(error)) from None


def _new_pair() -> Certificate:
    if not CURVE.is_installed():
        raise click.ClickException(CURVE.complaint())
    from plugins.protocols.zmtp.boxes import random_octets
    from plugins.protocols.zmtp.curve import pair_of

    while True:
        pair = pair_of(random_octets(32))
        # In a topology a dollar has to be written twice.  Keys without one are 2 in 5.
        if _DOLLAR not in pair.public + pair.secret:
            return Certificate(pair.public, pair.secret)
