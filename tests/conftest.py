"""What every test gets: peers that are missing are skipped in the open, or fail where they are required."""

from __future__ import annotations

import gc
import importlib.util
import os
import re
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests import java
from tests.object_store import CREDENTIALS
from tests.peers import PEERS
from tests.plugins.engines.amqp_client.rabbitmq import RabbitMq
from tests.seeds import examples

settings.register_profile(
    "any machine", max_examples=examples(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")  # how fast a machine is fails nothing
java.start_quickly()
if sys.platform == "darwin":
    # The path of a Unix socket has 103 octets at most, and the temporary folder of a user takes 50 of them.
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", "/tmp")

QUICK = "not slow and not peer"
"""What ``make quick`` asks for with ``-m``."""
ALL_MARKED = re.compile(r"^pytestmark = (?:\[[^\]]*?)?pytest\.mark\.(?:slow|peer\()", re.MULTILINE)
"""In a file all of whose tests are slow, or want a peer."""
WITHOUT_SPARK = importlib.util.find_spec("pyspark") is None and os.environ.get("KERNEL_REQUIRE_PEERS") != "1"
"""As in the small environment of ``make quick``: Spark is a third of the large one."""
OF_SPARK = ("plugins/apis/spark", "benchmarks/test_chosen.py", "docs/test_snippets.py::*docs/spark.md*")
"""What asks for Spark: folders, files, and single tests."""
MISSING = "missing peer"
"""What a report calls a peer that its test would have wanted."""


def _peers_of(item: pytest.Item) -> list[str]:
    names = [name for marker in item.iter_markers("peer") for name in marker.args]
    for name in names:
        if name not in PEERS:
            raise pytest.UsageError(
                f"{item.nodeid}: unknown peer {name!r}; tests/peers.py knows {', '.join(PEERS)}"
            )
    return names


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups in this hook
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        _peers_of(item)
    if WITHOUT_SPARK:
        items[:] = [
            item for item in items if not any(fnmatch(item.nodeid, f"tests/{one}") for one in OF_SPARK)
        ]
    if hasattr(config, "workerinput"):  # one of several processes of pytest-xdist
        _arrange(items)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out of ``make quick`` a file that has no quick test: to import it costs each process more than to look."""
    if WITHOUT_SPARK and collection_path.relative_to(Path(__file__).parent).as_posix() in OF_SPARK:
        return True
    if config.option.markexpr != QUICK or collection_path.suffix != ".py":
        return None
    return ALL_MARKED.search(collection_path.read_text()) is not None or None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """What collecting makes stays: no collection of garbage looks through it, now or later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_collection_finish(session: pytest.Session) -> None:
    if getattr(session.config.option, "loadgroup", False):  # --dist loadgroup, in one of the processes
        _see_groups(session.items)


def _arrange(items: list[pytest.Item]) -> None:
    """Keep together what shares a server or a JVM, and begin with what takes long: nobody waits for it in the end."""
    order: dict[pytest.Item, int] = {}
    for item in items:
        group = _shares(item)
        if group:
            item.add_marker(pytest.mark.xdist_group(group))
        marks = {marker.name for marker in item.iter_markers()}
        grouped = "xdist_group" in marks  # a group stays in one process, and the longest bounds the whole run
        order[item] = 0 if grouped else 1 if "timeout" in marks else 2 if "slow" in marks else 3
    items.sort(key=order.__getitem__)


def _see_groups(items: list[pytest.Item]) -> None:
    """A group that pytest-xdist has not taken into a test's name is one that it does not keep together."""
    for item in items:
        if item.get_closest_marker("xdist_group") is not None and "@" not in item.nodeid:
            raise pytest.UsageError(f"{item.nodeid}: this pytest-xdist does not group tests of this pytest")


def _shares(item: pytest.Item) -> str:
    """What a test shares that is too dear to have one in every process; a test with a server of its own has its own mark."""
    if item.get_closest_marker("xdist_group") is not None:
        return ""
    fixtures = getattr(item, "fixturenames", ())
    if "rabbitmq" in _peers_of(item):
        return "rabbitmq-management" if "managed" in fixtures else "rabbitmq"
    return "spark" if "spark" in fixtures else ""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    for name in _peers_of(item):
        peer = PEERS[name]
        if peer.present():
            continue
        item.user_properties.append((MISSING, name))
        if os.environ.get("KERNEL_REQUIRE_PEERS") == "1":
            pytest.fail(
                f"peer {name} is missing and KERNEL_REQUIRE_PEERS=1; get it with: {peer.install}",
                pytrace=False,
            )
        pytest.skip(f"peer {name} is missing")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    missing = Counter(
        str(name)
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "setup"
        for what, name in report.user_properties
        if what == MISSING
    )
    if not missing and not WITHOUT_SPARK:
        return
    terminalreporter.section("peers that are missing")
    if WITHOUT_SPARK:
        terminalreporter.line(
            f"pyspark: the tests of {', '.join(OF_SPARK[:2])} want it; get it with: make setup"
        )
    for name, count in sorted(missing.items()):
        tests = "test wants" if count == 1 else "tests want"
        terminalreporter.line(f"{name}: {count} {tests} it; get it with: {PEERS[name].install}")


@pytest.fixture
def short_login_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    """A login is refused sooner than it would be; that peers wait is for tests on a simulated clock."""
    for module in ("plugins.engines.broker.host.stream_client", "kernel.hosting.stream_host"):
        monkeypatch.setattr(f"{module}.LOGIN_DELAY", 0.01)


@pytest.fixture
def eager_alarms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our broker looks at its alarms in every turn; how often it does is for test_alarms.py."""
    monkeypatch.setattr("plugins.engines.broker.alarms.PERIOD", 0.0)


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMq]:
    """A RabbitMQ that all tests share, also those of MQTT and STOMP; one that stops it starts it again."""
    # As our broker is without the option ``anonymous``, beside which the tests of MQTT put it.
    settings = ["mqtt.allow_anonymous = false"]
    node = RabbitMq(tmp_path_factory.mktemp("rabbitmq"), ("rabbitmq_mqtt", "rabbitmq_stomp"), settings)
    try:
        node.start()
        yield node
    finally:
        node.close()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The one session of Spark: it takes seconds to start.  Its users are marked slow."""
    from plugins.apis.spark import session

    with pytest.MonkeyPatch.context() as patch:
        # The JVM's Python workers have its environment.
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        running = session(
            "tests",
            master="local[2]",
            configuration={
                "spark.driver.memory": "1g",
                "spark.sql.shuffle.partitions": "1",
                "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
            },
        )
    yield running
    running.stop()
