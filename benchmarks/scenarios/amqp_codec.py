"""The AMQP codec alone, in memory: microseconds a message, beside pamqp."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection

from benchmarks import amqp_codec
from benchmarks.processes import Child
from benchmarks.scenario import Figures, Row, Scenario, Side
from kernel.contracts.message import Batch, batch_of

THEIRS = 500
"""Messages for pamqp: it has no batches, and each costs the same."""

_BARS = {"equal": 30, "mixed": 8}
_WHAT = {"equal": "one key, 100 B", "mixed": "50 keys and sizes mixed"}


def batches_of(mix: str, count: int) -> list[Batch]:
    """Return the messages to encode: one batch, or as many as messages."""
    if mix == "equal":
        return [batch_of([amqp_codec.BODY] * count, amqp_codec.ONE)]
    return amqp_codec.mixed_batches(count)


def ours(link: Connection, mix: str) -> None:
    """Say what decoding publishes and encoding deliveries costs."""
    server, client = amqp_codec.connected()
    runs = batches_of(mix, amqp_codec.COUNT)
    stream = amqp_codec.stream_of(client, runs)

    def deliver() -> None:
        server.send_many_deliveries(
            1, (("ctag1.0123456789", tag, False, run) for tag, run in enumerate(runs, 1))
        )
        server.data_to_send()  # the host writes the buffers as they are

    link.send(_costs(lambda: amqp_codec.in_chunks(server, stream), deliver, amqp_codec.COUNT))


def pamqp(link: Connection, mix: str) -> None:
    """The same with pamqp."""
    runs = batches_of(mix, THEIRS)
    stream = amqp_codec.their_encoding("publish", runs)
    link.send(
        _costs(
            partial(amqp_codec.their_decoding, stream),
            partial(amqp_codec.their_encoding, "deliver", runs),
            THEIRS,
        )
    )


def _costs(decode: Callable[[], object], encode: Callable[[], object], count: int) -> Figures:
    """Messages a second, for more to be better."""
    return {
        "decode": 1e6 / amqp_codec.cost(decode, count=count),
        "encode": 1e6 / amqp_codec.cost(encode, count=count),
    }


def _measure(role: Callable[[Connection, str], None], mix: str, scale: float) -> Figures:
    with Child(role, mix) as child:
        figures: Figures = child.hear()
        return figures


def _row(figure: str, mix: str) -> Row:
    done = "decode basic.publish" if figure == "decode" else "encode basic.deliver"
    return Row(
        name=f"amqp_codec_{figure}_{mix}",
        what=f"{done}, {_WHAT[mix]}",
        figure=figure,
        unit="msg/s",
        bar=f">= {_BARS[mix]}",
        ours=f"kernel, {mix}",
        peers=(f"pamqp, {mix}",),
    )


SCENARIO = Scenario(
    name="amqp_codec",
    sides=tuple(
        Side(f"{name}, {mix}", partial(_measure, role, mix))
        for mix in _BARS
        for name, role in (("kernel", ours), ("pamqp", pamqp))
    ),
    rows=tuple(_row(figure, mix) for figure in ("decode", "encode") for mix in _BARS),
)
