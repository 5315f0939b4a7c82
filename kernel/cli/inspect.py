"""``kernel inspect``: decodes captured packets, line by line, and sums up each conversation.

This module is the command line only.  ``kernel/inspection`` reads captures and reassembles conversations, and
plugins bring the dissectors that decode them.  All of that, and scapy, is imported inside functions, so that
other commands do not load it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import click

from kernel.cli.seconds import Seconds
from kernel.contracts.counts import counted
from kernel.contracts.errors import UnknownName, nearest
from kernel.plugins import PluginRegistry


@click.command("inspect")
@click.argument("file", required=False)
@click.option("--live", "interface", metavar="INTERFACE", help="Capture at an interface until Ctrl-C.")
@click.option("--seconds", type=Seconds(0), help="With --live: capture for so many seconds.")
@click.option(
    "--protocol",
    "protocols",
    multiple=True,
    metavar="NAME",
    help="Show only this protocol.  May be repeated.",
)
@click.option(
    "--port",
    "ports",
    type=int,
    multiple=True,
    metavar="PORT",
    help="Show only this TCP or UDP port.  May be repeated.",
)
@click.option(
    "--as",
    "meant",
    multiple=True,
    metavar="PORT=NAME",
    help="Decode what is sent on a port as this protocol.  May be repeated.",
)
@click.option("--summary", is_flag=True, help="Print only the tables at the end.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one object a line.")
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

    Prints a line for each packet, frame or method, and at the end a table of all sessions: losses, repairs,
    round trips.  `kernel plugins` lists the protocols (dissectors); plugins may bring more.
    """
    from kernel.inspection.captures import SCAPY, CaptureFile, LiveCapture
    from kernel.inspection.printing import printable
    from kernel.inspection.recognition import Recognition, Wanted

    if (file is None) == (interface is None):
        raise click.UsageError("give either FILE or --live INTERFACE")
    SCAPY.need()
    kinds = [installed.kind for installed in PluginRegistry.load().dissectors.values()]
    wanted = Wanted(protocols=protocols, ports=ports, meant=dict(map(_meant, meant)))
    _check_names([*protocols, *wanted.meant.values()], [kind.name for kind in kinds])
    capture = LiveCapture(interface, seconds) if interface else CaptureFile(str(file))
    if interface:
        click.echo(f"kernel: capturing at {interface}; Ctrl-C ends it", err=True)
    try:
        remarks = _inspect(capture, Recognition(kinds, wanted), summary, as_json)
    finally:
        capture.close()
    # After ``close``, in which a live capture reads how many packets were dropped.
    for remark in (capture.complaint, *remarks):
        if remark:
            click.echo(f"kernel: {printable(remark)}", err=True)


def _meant(text: str) -> tuple[int, str]:
    port, _, name = text.partition("=")
    if not port.isdecimal() or not name:
        raise click.BadParameter(f"{text!r} must have the form PORT=NAME", param_hint="--as")
    return int(port), name


def _check_names(names: list[str], known: list[str]) -> None:
    for name in names:
        if name not in known:
            raise UnknownName(f"there is no dissector {name!r}; {nearest(name, known)}")


def _inspect(capture: Any, recognition: Any, summary: bool, as_json: bool) -> list[str]:
    """Show everything; return the remarks that go to standard error at the end."""
    from kernel.inspection import printing
    from kernel.inspection.inspector import Inspector
    from kernel.inspection.ip_packets import IpPackets

    inspector = Inspector(recognition)
    packets = IpPackets()
    write = printing.as_json if as_json else printing.for_people
    try:
        # Generators all the way, so that the lines of a live capture are shown as packets come.
        for shown in _lines(_with_progress(capture, summary), packets, inspector):
            if not summary:
                click.echo(write(shown))
    # Ctrl-C is how a live capture ends.  What was captured until then is still summed up.
    except KeyboardInterrupt:
        pass
    for shown in inspector.finish():
        if not summary:
            click.echo(write(shown))
    _show_tables(inspector, as_json)
    return list(_remarks(packets, inspector))


def _lines(capture: Iterator[Any], packets: Any, inspector: Any) -> Iterator[Any]:
    from kernel.inspection.tcp import Segment

    for packet in capture:
        # None: not IP, damaged, or a fragment.  ``packets`` counts them for the remarks.
        read = packets.read(packet.link, packet.data, packet.time, packet.cut)
        if read is None:
            continue
        number, content = read
        if isinstance(content, Segment):
            yield from inspector.segment(content)
        else:
            yield from inspector.datagram(number, content)


def _with_progress(capture: Any, summary: bool) -> Iterator[Any]:
    """Show how far a file was read, if nothing else is shown meanwhile."""
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
    """Yield a sentence for everything that was not shown, and why."""
    if packets.fragments:
        yield f"{counted(packets.fragments, 'fragment of an IP packet was', 'fragments of IP packets were')} not decoded"
    if packets.other:
        yield f"{counted(packets.other, 'packet was', 'packets were')} damaged, or neither IPv4 nor IPv6"
    if inspector.left_out:
        left_out = counted(inspector.left_out, "conversation is", "conversations are")
        yield f"{left_out} not in the tables, which are full"
    if not inspector.tables():
        yield "no dissector recognized a conversation; name the protocol of a port with --as PORT=NAME"
