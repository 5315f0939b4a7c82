"""``make demo``: real clients of three protocols, a broker, a bridge, a second kernel, Spark; at the end tables.

The numbers in the table have to agree.

    publish_with_pika.py     ->  kernel run broker.toml  ->  consume_with_pika.py
    publish_with_aio_pika.py ->          |
                                         +-- backend protocol -->  subscriber.py (a second kernel)
                                         |
                                         +-- journal -->  aggregate_with_spark.py --+
                                         |                                          |
    consume_results_with_pika.py  <------+<------------ backend protocol -----------+

Meanwhile clients of AMQP, MQTT and STOMP meet on one topic of the same broker (``exchange_between_protocols.py``),
and so does a page in a browser, if Chromium is there (``page.html``).

The publishers that real applications use set the pace of the feed.  So a kernel then publishes in batches to
the same broker (``publish_in_batches.py``), and the second table says who waits for what.  In the end Spark
writes a page about what is in the journal.

Every part is a process of its own on the loopback interface, on free ports.
"""

from __future__ import annotations

import csv
import json
import os
import queue
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from examples.demo.feed import PARTS, records

HERE = Path(__file__).parent
TIMEOUT = 280.0
"""Seconds that the whole may take, on a machine that is busy with other things."""


class Part:
    """One process, and what it says."""

    def __init__(
        self,
        name: str,
        command: list[str],
        said: queue.Queue[tuple[str, dict[str, Any]]],
        log: Path | None = None,
        **env: str,
    ) -> None:
        self.name = name
        environment = {**os.environ, "PYTHONPATH": str(HERE.parent.parent), **env}
        with log.open("ab") if log else nullcontext() as errors:
            self.process = subprocess.Popen(
                [sys.executable, *command], stdout=subprocess.PIPE, stderr=errors, env=environment, text=True
            )
        threading.Thread(target=self._listen, args=(said,), daemon=True).start()

    def _listen(self, said: queue.Queue[tuple[str, dict[str, Any]]]) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                told = json.loads(line)
            except ValueError:
                continue  # for people
            if isinstance(told, dict):
                said.put((self.name, told))
        said.put((self.name, {"gone": self.process.wait()}))


class Demonstration:
    """The processes and the figures that they tell."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.said: queue.Queue[tuple[str, dict[str, Any]]] = queue.Queue()
        self.parts: list[Part] = []
        self.figures: dict[str, dict[str, Any]] = {}
        self.expected = sum(map(count, range(PARTS)))
        self.deadline = time.monotonic() + TIMEOUT
        self.folder = Path(tempfile.mkdtemp(prefix="kernel-demo-"))
        self.env = {
            "JOURNAL_DIR": str(self.folder / "journal"),
            "CHECKPOINT_DIR": str(self.folder / "checkpoint"),
            "REPORT_DIR": str(self.folder / "report"),
            "RESULTS_PORT": str(free_port()),
            "AMQP_PORT": str(free_port()),
            "MQTT_PORT": str(free_port()),
            "STOMP_PORT": str(free_port()),
            "WS_PORT": str(free_port()),
            "BRIDGE_PORT": str(free_port()),
            "EXPECTED": str(self.expected),
        }

    def start(self, name: str, *command: str) -> None:
        """Start a process.  Spark's complains of what is no fault, such as a worker that it stops itself."""
        log = self.folder / "spark.log" if name == "spark" else None
        self.parts.append(Part(name, list(command), self.said, log, **self.env))

    def wait_for(self, name: str, key: str) -> dict[str, Any]:
        """Wait until a process says something, and note what the others say meanwhile."""
        while key not in self.figures.get(name, {}):
            self.listen()
        return self.figures[name]

    def listen(self) -> str:
        """Take one saying; return whose."""
        try:
            name, told = self.said.get(timeout=max(self.deadline - time.monotonic(), 0.01))
        except queue.Empty:
            told = f"not finished after {TIMEOUT:.0f} s; so far: {self.figures}"
            raise SystemExit(f"demo: {told}; see {self.folder}/spark.log") from None
        self.figures.setdefault(name, {}).update(told)
        if told.get("gone") and not self.figures[name].get("done"):
            raise SystemExit(
                f"demo: {name} ended early with exit status {told['gone']}; see {self.folder}/spark.log"
            )
        return name

    def run(self) -> bool:
        """Run everything; return whether the numbers agree."""
        module = "examples.demo."
        self.start("subscriber", "-m", module + "subscriber")
        self.wait_for("subscriber", "ready")
        self.start("broker", "-m", "kernel", "run", "--json", str(HERE / "broker.toml"))
        wait_for_port(int(self.env["AMQP_PORT"]), self.deadline)
        self.start("consumer", "-m", module + "consume_with_pika")
        self.start("results", "-m", module + "consume_results_with_pika")
        self.wait_for("consumer", "ready")
        self.wait_for("results", "ready")
        self.console.print("Spark starts ...")
        self.start("spark", "-m", module + "aggregate_with_spark")
        self.start("everyone", "-m", module + "exchange_between_protocols")
        self.wait_for("spark", "ready")
        self.console.print(f"{self.expected:,} records; AMQP on port {self.env['AMQP_PORT']}")
        self.start("pika", "-m", module + "publish_with_pika")
        self.start("aio-pika", "-m", module + "publish_with_aio_pika")
        self.show_progress()
        self.wait_for("everyone", "done")
        self.start("batches", "-m", module + "publish_in_batches")
        self.wait_for("batches", "done")
        self.console.print("Spark writes a report ...")
        for name in ("spark", "broker"):
            next(part for part in self.parts if part.name == name).process.terminate()
            self.wait_for(name, "gone")
        agree = self.everyone() & self.table()
        self.paces()
        self.console.print("[green]the numbers agree" if agree else "[red]the numbers do not agree")
        return agree

    def reported(self) -> tuple[int, int, int]:
        """What the report's tables say: messages of the feed, missing, and duplicates."""
        with (self.folder / "report" / "sequences.csv").open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        return (
            sum(int(row["messages"]) for row in rows),
            sum(int(row["missing"]) for row in rows),
            sum(int(row["duplicates"]) for row in rows),
        )

    def show_progress(self) -> None:
        """Show bars until all are done."""
        columns = (
            TextColumn("{task.description:32}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        watched = {
            "pika": "published by pika",
            "aio-pika": "published by aio-pika",
            "consumer": "consumed from the broker (pika)",
            "subscriber": "received over the bridge",
            "results": "counted by Spark, received (pika)",
        }
        with Progress(*columns, console=self.console) as progress:
            totals = {"pika": count(0), "aio-pika": count(1)}
            bars = {
                name: progress.add_task(text, total=totals.get(name, self.expected))
                for name, text in watched.items()
            }
            while not all(self.figures.get(name, {}).get("done") for name in watched):
                name = self.listen()
                if name in bars:
                    told = self.figures[name]
                    done = told.get("delivered", told.get("received", told.get("published", 0)))
                    progress.update(bars[name], completed=done)

    def everyone(self) -> bool:
        """Print who got how many messages of whom; return whether nobody misses one."""
        told = self.figures["everyone"]
        table = Table(title="Three protocols, one topic")
        table.add_column("published by")
        titles = {
            "pika": "pika (AMQP)",
            "paho": "paho (MQTT)",
            "stomp.py": "stomp.py (STOMP)",
            "browser": "browser (STOMP, WebSocket)",
        }
        names = {name: titles[name] for name in told["received"]}
        for name in names:
            table.add_column(f"got by {name}", justify="right")
        for publisher, title in names.items():
            counts = [told["received"][name].get(publisher, 0) for name in names]
            table.add_row(title, *[f"{count:,}" for count in counts])
        self.console.print(table)
        return all(
            told["received"][name].get(publisher) == told["expected"] for name in names for publisher in names
        )

    def table(self) -> bool:
        """Print the table; return whether the numbers agree."""
        published = self.figures["pika"]["published"] + self.figures["aio-pika"]["published"]
        routed = routed_by(self.figures["broker"])
        table = Table(title="The feed, end to end")
        for heading in ("", "messages", "lost", "twice", "p50 ms", "p99 ms", "max"):
            table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
        table.add_row("published", f"{published:,}")
        if routed is not None:
            table.add_row("routed to bridge", f"{routed:,}", f"{published - routed}")
        agree = published == self.expected and routed in (None, published)
        for name, text in (
            ("consumer", "from the broker"),
            ("subscriber", "over the bridge"),
        ):
            told = self.figures[name]
            lost = published - told["delivered"]
            agree = agree and lost == 0 and told["duplicates"] == 0
            row = [f"{told['delivered']:,}", str(lost), str(told["duplicates"])]
            table.add_row(text, *row, *(f"{told[name]:.1f}" for name in ("p50", "p99", "most")))
        windows = self.figures["results"]
        kept, missing, twice = self.reported()
        table.add_row("counted by Spark", f"{windows['delivered']:,}", f"{published - windows['delivered']}")
        table.add_row("in the journal", f"{kept:,}", str(missing), str(twice))
        agree = agree and windows["delivered"] == kept == published and missing == twice == 0
        self.console.print(table)
        self.console.print(
            f"Spark counted {windows['countries']} countries in {windows['windows']} windows of a second. "
            f"The report: {self.folder / 'report' / 'index.html'}",
            soft_wrap=True,
        )
        return agree

    def paces(self) -> None:
        """Print how fast each program published to the broker, and what it waited for."""
        table = Table(title="Who sets the pace")
        for heading in ("published by", "messages", "msg/s", "it waits"):
            text = heading in ("published by", "it waits")
            table.add_column(heading, justify="left" if text else "right")
        for name, text, waits in (
            ("pika", "pika", "for the confirm of each message"),
            ("aio-pika", "aio-pika", "for the confirms of 500 messages at a time"),
            (
                "batches",
                "a kernel, over AMQP",
                "for nothing but full buffers; all are confirmed and consumed",
            ),
        ):
            told = self.figures[name]
            table.add_row(text, f"{told['published']:,}", f"{told['per_second']:,.0f}", waits)
        self.console.print(table)

    def stop(self) -> None:
        """Leave nothing running."""
        for part in self.parts:
            if part.process.poll() is None:
                part.process.kill()
            part.process.wait()
        for name in ("journal", "checkpoint"):
            shutil.rmtree(self.folder / name, ignore_errors=True)


def count(part: int) -> int:
    """How many records one of the programs publishes."""
    return sum(1 for _ in records(part))


def routed_by(broker: dict[str, Any]) -> int | None:
    """How many messages the broker's kernel says it wrote to the bridge; None when it did not say."""
    routes = broker.get("statistics", {}).get("routes", ())
    return next(
        (int(route["written"]) for route in routes if route["name"].startswith("broker -> bridge")), None
    )


def free_port() -> int:
    """Return a port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_port(port: int, deadline: float) -> None:
    """Return once somebody listens."""
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise SystemExit(f"demo: nobody listens on port {port}") from None
            time.sleep(0.05)


def main() -> int:
    """Run the demonstration; 0 if the numbers agree."""
    demonstration = Demonstration(Console())
    try:
        return 0 if demonstration.run() else 1
    finally:
        demonstration.stop()


if __name__ == "__main__":
    sys.exit(main())
