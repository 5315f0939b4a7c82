"""Prometheus itself: it scrapes ``examples/watched_broker.toml``, and has the figures."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.managed_brokers import Managed
from tests.interop.management_requests import Asked, ask
from tests.interop.until import TIMEOUT, until
from tests.ports import free_port

pytestmark = [
    pytest.mark.peer("prometheus-client"),
    pytest.mark.peer("prometheus"),
    pytest.mark.slow,
]

CONFIGURATION = """
global: {{ scrape_interval: 200ms, scrape_timeout: 200ms }}
scrape_configs:
  - job_name: messaging
    basic_auth: {{ username: guest, password: guest }}
    static_configs: [{{ targets: ["127.0.0.1:{port}"] }}]
"""


class Prometheus:
    """A process of it."""

    def __init__(self, folder: Path, scraped: int) -> None:
        self._port = free_port()
        self._log = folder / "log"
        configuration = folder / "prometheus.yml"
        configuration.write_text(CONFIGURATION.format(port=scraped))
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={configuration}",
                    f"--storage.tsdb.path={folder / 'data'}",
                    f"--web.listen-address=127.0.0.1:{self._port}",
                ],
                stdout=log,
                stderr=log,
            )

    def ask(self, path: str) -> Any:
        """Return its answer; None as long as it does not listen."""
        assert self._process.poll() is None, self._log.read_text()
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self._port}/api/v1/{path}", timeout=TIMEOUT
            ) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            error.close()  # 503 while it starts
            return None
        except OSError:
            return None

    def value(self, query: str) -> float | None:
        """Return the figure that a query finds; None without one."""
        answer = self.ask(f"query?query={urllib.parse.quote(query)}")
        rows = [] if answer is None else answer["result"]
        return float(rows[0]["value"][1]) if rows else None

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(TIMEOUT)


@pytest.fixture
def prometheus(managed_by_kernel: Managed, tmp_path: Path) -> Iterator[Prometheus]:
    found = Prometheus(tmp_path, managed_by_kernel.web)
    yield found
    found.stop()


def test_it_scrapes(prometheus: Prometheus, managed_by_kernel: Managed, name: str) -> None:
    hostile = name + '"\\\n<b>é'
    path = f"queues/%2F/{urllib.parse.quote(hostile, safe='')}"
    assert ask(managed_by_kernel.web, Asked("PUT", path, {})).status == 201
    body = {"routing_key": hostile, "payload": "x", "payload_encoding": "string", "properties": {}}
    ask(managed_by_kernel.web, Asked("POST", "exchanges/%2F/amq.default/publish", body))
    labels = json.dumps(hostile, ensure_ascii=False)
    until(lambda: prometheus.value(f"kernel_queue_messages_ready{{queue={labels}}}") == 1.0)
    [target] = prometheus.ask("targets")["activeTargets"]
    assert (target["health"], target["lastError"]) == ("up", "")
    assert prometheus.value('kernel_engine_up{engine="broker"}') == 1.0
    assert (prometheus.value("rabbitmq_queue_messages_ready") or 0.0) >= 1.0
    ask(managed_by_kernel.web, Asked("DELETE", path))
