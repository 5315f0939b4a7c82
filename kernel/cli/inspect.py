"""``kernel inspect``: what was said in captured packets, line by line, and what came of each conversation."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import click

from kernel.cli.seconds import Seconds
from kernel.contracts.errors import UnknownName
from kernel.plugins import PluginRegistry


@click.command("inspect")
@click.argument("file", required=False)
@click.option("--live", "interface", metavar="INTERFACE", help="Listen at an interface until Ctrl-C.")
@click.option("--seconds", type=Seconds(0), help="With --live: so long.")
@click.option(
    "--protocol", "protocols", multiple=True, metavar="NAME", help="Only this one.  May be repeated."
)
@click.option("--port", "ports", type=int, multiple=True, metavar="PORT", help="Only this TCP or UDP port.")
@click.option(
    "--as", "meant", multiple=True, metavar="PORT=NAME", help="Take what is said on a port as this protocol."
)
@click.option("--summary", is_flag=True, help="Only the tables at the end.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one line each.")
def command(
    file: str | None,
    interface: str | None,
    seconds: float | None,
    protocols: tuple[str, ...],
    ports: tuple[int, ...],
    meant: tuple[str, ...],
    summary: bool,
    as_json: bool,
) -> None:
    """Decode the conversations in FILE, a pcap or pcapng capture ("-": standard input), or at an interface.

    A line for each packet, frame or method, and at the end a table of all sessions: losses, repairs, round
    trips. `kernel plugins` lists the protocols (dissectors); plugins may bring more.
    """
    from kernel.inspection.captures import CaptureFile, LiveCapture, need_scapy
    from kernel.inspection.printing import printable
    from kernel.inspection.recognition import Recognition, Wanted

    if (file is None) == (interface is None):
        raise click.UsageError("say either FILE or --live INTERFACE")
    need_scapy()
    kinds = [installed.kind for installed in PluginRegistry.load().dissectors.values()]
    wanted = Wanted(protocols=protocols, ports=ports, meant=dict(map(_meant, meant)))
    _check_names([*protocols, *wanted.meant.values()], [kind.name for kind in kinds])
    capture = LiveCapture(interface, seconds) if interface else CaptureFile(str(file))
    if interface:
        click.echo(f"kernel: listening at {interface}; Ctrl-C ends it", err=True)
    try:
        remarks = _inspect(capture, Recognition(kinds, wanted), summary, as_json)
    finally:
        capture.close()
    for remark in (capture.complaint, *remarks):
        if remark:
            click.echo(f"kernel: {printable(remark)}", err=True)


def _meant(text: str) -> tuple[int, str]:
    port, _, name = text.partition("=")
    if not port.isdecimal() or not name:
        raise click.BadParameter(f"{text!r} is not PORT=NAME", param_hint="--as")
    return int(port), name


def _check_names(names: list[str], known: list[str]) -> None:
    from kernel.topology.option_check import nearest

    for name in names:
        if name not in known:
            raise UnknownName(f"there is no dissector {name!r}; {nearest(name, known)}")


def _inspect(capture: Any, recognition: Any, summary: bool, as_json: bool) -> list[str]:
    """Show everything; return what is to be remarked."""
    from kernel.inspection import printing
    from kernel.inspection.inspector import Inspector
    from kernel.inspection.ip_packets import IpPackets

    inspector = Inspector(recognition)
    packets = IpPackets()
    write = printing.as_json if as_json else printing.for_people
    try:
        for shown in _lines(_with_progress(capture, summary), packets, inspector):
            if not summary:
                click.echo(write(shown))
    except KeyboardInterrupt:  # the end of a live capture
        pass
    for shown in inspector.finish():
        if not summary:
            click.echo(write(shown))
    _show_tables(inspector, as_json)
    return list(_remarks(packets, inspector))


def _lines(capture: Iterator[Any], packets: Any, inspector: Any) -> Iterator[Any]:
    from kernel.inspection.tcp import Segment

    for packet in capture:
        read = packets.read(packet.link, packet.data, packet.time, packet.cut)
        if read is None:
            continue
        number, content = read
        if isinstance(content, Segment):
            yield from inspector.segment(content)
        else:
            yield from inspector.datagram(number, content)


def _with_progress(capture: Any, summary: bool) -> Iterator[Any]:
    """Show how far a file was read, where nothing else is shown."""
    if not (summary and capture.size and sys.stderr.isatty()):
        yield from capture.packets()
        return
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("reading", total=capture.size)
        for count, packet in enumerate(capture.packets()):
            yield packet
            if count % 1000 == 0:
                progress.update(task, completed=capture.progress())


def _show_tables(inspector: Any, as_json: bool) -> None:
    from kernel.cli.looking import print_table
    from kernel.inspection import printing

    for protocol, rows in sorted(inspector.tables().items()):
        if as_json:
            for row in rows:
                click.echo(printing.row_as_json(protocol, row))
        else:
            columns, shown = printing.table(rows)
            print_table(f"\n{protocol}", columns, shown)


def _remarks(packets: Any, inspector: Any) -> Iterator[str]:
    """Give what was not shown, and why."""
    if packets.fragments:
        yield f"{packets.fragments} fragments of IP packets were left out"
    if packets.other:
        yield f"{packets.other} packets were neither IPv4 nor IPv6, or damaged"
    if inspector.left_out:
        yield f"{inspector.left_out} conversations more than the tables have room for"
    if not inspector.tables():
        yield "nothing that a dissector knows; --as PORT=NAME says what is spoken on a port"
