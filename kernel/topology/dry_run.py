"""Dry run: opens every endpoint, certificate and folder that a topology file names, and passes no message.

``kernel check`` looks at what can be known without the network.  Here each place to listen at is bound, each
place to connect to is connected to, with TLS if its address says so, and each folder is tried.  No engine is
made: nobody logs in, and nothing is declared.  A WebSocket is not opened, since that already is a
conversation with the peer.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path as FilePath
from typing import Any

import msgspec
import trio

from kernel.contracts.errors import ConnectionLost, PlanError
from kernel.contracts.options import Dials, WritesFolders
from kernel.hosting.address import Address, parse_address
from kernel.hosting.connecting import connect
from kernel.hosting.handshakes import Handshakes
from kernel.hosting.listener import why_unavailable
from kernel.hosting.tls_options import TlsOptions
from kernel.plugins import PluginRegistry
from kernel.topology.check import Checker, check, line_of, listening_places
from kernel.topology.check_file import folders_written, nearest_that_exists, unreadable
from kernel.topology.file import TopologyFile, read_file
from kernel.topology.toml_lines import Path

_SOCKETS = {"tcp": "tcp", "tls": "tls", "unix": "unix", "ws": "tcp", "wss": "tls"}
"""For each transport that is tried, what of it is opened."""
_LISTENING = ("tcp", "udp", "unix")


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What was found out about one option."""

    where: str
    """The table and the option: ``[engines.bridge] address``."""
    ok: bool | None
    """None: it was not tried."""
    text: str


def dry_run(path: str | FilePath, registry: PluginRegistry, seconds: float) -> list[Finding]:
    """Open everything; ``PlanError`` for a file with mistakes.  ``seconds``: for each connection."""
    file = read_file(path)
    _, checker = check(file, registry)
    if file.complaints:
        raise PlanError(sorted(file.complaints, key=line_of))
    return trio.run(_look, file, checker, seconds)


async def _look(file: TopologyFile, checker: Checker, seconds: float) -> list[Finding]:
    # Connections are tried at the same time, since each may take all of its seconds.
    found: list[list[Finding]] = []
    written = folders_written(checker)
    async with trio.open_nursery() as nursery:
        for path, made in checker.made:
            # A list for each, so that the answer has the order of the file, whoever answers first.
            here: list[Finding] = []
            found.append(here)
            here += _files(file, path, made, written)
            here += [
                Finding(where=_where(path, place[2:]), ok=False, text=text)
                for place, text in checker.mistakes_in_files(path, made)
            ]
            here += _listeners(file, path, made)
            if isinstance(made, Dials):
                for option, text in made.dials_to():
                    nursery.start_soon(_dial, file, path, made, option, text, seconds, here)
    return [finding for here in found for finding in here]


def _files(file: TopologyFile, path: Path, made: Any, written: Collection[str]) -> Iterator[Finding]:
    wrong = list(unreadable(path, made, written))
    for place, text in wrong:
        secret = place in file.with_variables
        yield Finding(
            where=_where(place[:2], place[2:]), ok=False, text="the file cannot be used" if secret else text
        )
    tls = getattr(made, "tls", None)
    if not wrong and isinstance(tls, TlsOptions) and (tls.certificate or tls.authorities):
        yield Finding(where=_where(path, ("tls",)), ok=True, text="certificates and keys can be read and fit")
    if isinstance(made, WritesFolders):
        for option, folder in made.folders():
            why = _why_unwritable(FilePath(folder))
            shown = file.shown((*path, option), folder)
            text = why and f"{shown}: {why}"
            yield Finding(
                where=_where(path, (option,)),
                ok=not why,
                text=text or f"{shown} can be written{_free(folder)}",
            )


def _listeners(file: TopologyFile, path: Path, made: msgspec.Struct) -> Iterator[Finding]:
    for option, place in listening_places(made):
        where, shown = _where(path, (option,)), file.shown((*path, option), str(place))
        if place.network not in _LISTENING:
            yield Finding(where=where, ok=None, text=f"{shown}: places of {place.network} are not tried")
            continue
        why = why_unavailable(place)
        text = f"cannot listen at {shown}: {why}" if why else f"can listen at {shown}"
        yield Finding(where=where, ok=not why, text=text)


async def _dial(
    file: TopologyFile, path: Path, made: Any, option: str, text: str, seconds: float, here: list[Finding]
) -> None:
    where, shown = _where(path, (option,)), file.shown((*path, option), text)
    address = parse_address(text)
    transport = _SOCKETS.get(address.transport)
    if transport is None:
        here.append(
            Finding(where=where, ok=None, text=f"{shown}: transport {address.transport} is not tried")
        )
        return
    # Of a WebSocket the TCP or TLS connection below it.
    plain = Address(address.protocol, transport, address.authority)
    began = trio.current_time()
    try:
        handshakes = Handshakes(
            plain, server_side=False, tls=getattr(made, "tls", TlsOptions()), seconds=seconds
        )
        wire = await handshakes.shake(await connect(plain, seconds))
        # The peer sees a client that connects and leaves before it has said anything.
        wire.close()
    except (ConnectionLost, OSError, ValueError) as error:
        here.append(Finding(where=where, ok=False, text=_refusal(error, plain, shown, seconds)))
        return
    took = (trio.current_time() - began) * 1000
    kind = "connected, with TLS," if transport == "tls" else "connected"
    here.append(Finding(where=where, ok=True, text=f"{kind} to {shown} in {took:.0f} ms"))


def _refusal(error: Exception, address: Address, shown: str, seconds: float) -> str:
    """Say why there is no connection; the address in the error's own text may be a secret."""
    text = str(error)
    if " within " in text:
        return f"cannot connect to {shown}: no answer within {seconds:g} s"
    # Of an error of TLS the part from its bracket on, of others what is behind the last colon: what is in
    # front has the address.
    why = text[text.index("[SSL") :] if "[SSL" in text else text.rpartition(": ")[2]
    if "from the environment" in shown and address.host:
        why = why.replace(address.host, "...")
    return f"cannot connect to {shown}: {why}"


def _why_unwritable(folder: FilePath) -> str:
    """Say why an engine could not keep files in a folder; empty if it could."""
    # The engine makes the folder, so what counts is the nearest that exists.
    there = nearest_that_exists(folder)
    if not there.is_dir():
        return f"{there} is no folder"
    try:
        # Permissions alone do not tell of a disk that is read-only or full.
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(b"x")
    except OSError as error:
        return f"cannot write to {there}: {error.strerror}"
    return ""


def _free(folder: str) -> str:
    there = FilePath(folder).absolute()
    while not there.exists():
        there = there.parent
    return f"; {shutil.disk_usage(os.fspath(there)).free / 1e9:,.1f} GB are free"


def _where(table: Path, option: Path) -> str:
    return f"[{'.'.join(map(str, table))}] {'.'.join(map(str, option))}"
