"""Our side in x-mode: the application's own thread holds the connection, there is no other."""

from __future__ import annotations

from multiprocessing.connection import Connection

from benchmarks.processes import WARM, time_calls
from kernel.plugins import PluginRegistry
from plugins.apis.direct.channel import open_direct
from plugins.apis.direct.options import DirectOptions


def echo(link: Connection, count: int, size: int) -> None:
    """Send back what comes."""
    options = DirectOptions(address="backend+tcp://127.0.0.1:0", mode="listen")
    with open_direct(
        PluginRegistry.load().protocol_maker(), "echo", options, on_listening=link.send
    ) as channel:
        for _ in range(WARM + count):
            channel.send(channel.receive())
        link.recv()


def ask(link: Connection, address: str, count: int, size: int) -> None:
    """Send and wait for the answer."""
    with open_direct(
        PluginRegistry.load().protocol_maker(), "ask", DirectOptions(address=address)
    ) as channel:
        body = b"x" * size

        def there_and_back() -> None:
            channel.send(body)
            channel.receive()

        link.send(time_calls(there_and_back, count))
        link.recv()
