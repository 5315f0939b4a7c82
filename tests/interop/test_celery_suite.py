"""Celery's own integration suite: our broker passes what RabbitMQ passes.

Its tests are unchanged.  One wait is shortened: a question to all workers ends with the first answer, since there is one
worker (``suites/celery_alone.py``).

Celery's other suites are not run: t/unit has no broker, and t/smoke starts brokers and workers as containers of Docker.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from tests.interop.brokers import TIMEOUT, KernelProcess
from tests.interop.client_suites import Suite, check_results, own_environment, run_suite
from tests.interop.until import until
from tests.peers import CLIENT_SUITES
from tests.plugins.engines.amqp_client.rabbitmq import RabbitMq
from tests.ports import free_port
from tests.seeds import FACTOR

pytestmark = [
    pytest.mark.peer("client-suites"),
    pytest.mark.peer("celery"),
    pytest.mark.peer("redis"),
    pytest.mark.peer("redis-server"),
    pytest.mark.slow,
    pytest.mark.timeout(1200),
]

_INTEGRATION = CLIENT_SUITES / "celery" / "t" / "integration"
_OTHER_MODULES = {
    "backend": "results in Azure",
    "backend_leak_in_fixture_teardown": "a broker in memory",
    "cache_backend": "results in memcached",
    "connection_recovery": "a Redis as the broker",
    "database_backend": "results in a database, and no broker",
    "events_state_memory_leak": "a broker in memory",
    "mem_leak_in_exception_handling": "a broker in memory",
    "redis_backend": "results in Redis, and no broker",
    "request_backend_down": "a broker in memory",
    "upgrade": "a command that changes a file",
}
"""Modules that are not run, and what they have instead of an AMQP broker."""
_OPTIONS = ("-p", "celery.contrib.pytest", "-p", "tests.interop.suites.celery_alone", "--timeout", "180")
_AGAIN = 5
"""So many tests of a part that failed are tried again, alone: their authors try the ones that depend on time five times."""
_CHORDS = "t/integration/test_canvas.py::test_chord"
_SLOW_ERRORS = (
    "waits for ten seconds many times, for callbacks that should not come: the three take five minutes"
)
_KNOWN = "its authors expect it to fail, or leave it out"
_TOO_LATE = "prepares after it has sent: it fails if the answer comes soon"
_LOGS = "reads logs in which the worker writes nothing under this configuration of pytest"
RESULTS_OVER_BROKER = "results-over-broker"


def _part(
    least: int,
    tests: tuple[str, ...],
    left_out: dict[str, str],
    options: tuple[str, ...] = (),
    *,
    may_skip: bool = False,
    soon: dict[str, str] | None = None,
) -> Suite:
    chosen = (*_OPTIONS, *options)
    return Suite("celery", tests, least, left_out, chosen, "pyproject.toml", may_skip, soon=soon or {})


def _modules(*names: str) -> tuple[str, ...]:
    return tuple(f"t/integration/test_{name}.py" for name in names)


# They wait most of the time, and so run at the same time, each with a virtual host, a worker and a Redis of its own.
PARTS = {
    "chords": _part(
        95,
        (_CHORDS,),
        {
            "test_disabling_flag_allow_error_cb_on_chord_header": _SLOW_ERRORS,
            "test_enabling_flag_allow_error_cb_on_chord_header": _SLOW_ERRORS,
            "test_flag_allow_error_cb_on_chord_header_on_upgraded_chord": _SLOW_ERRORS,
            "test_error_propagates_from_chord": _KNOWN,
            "test_redis_subscribed_channels_leak": _KNOWN,
        },
        soon={
            "test_reapplying_frozen_chord_dispatches_body_again": "applies a chord again when its callback has "
            "run, and the worker removes the chord's data from Redis only after it has sent the callback"
        },
    ),
    "canvas": _part(135, _modules("canvas"), {}, ("--deselect", _CHORDS)),
    "tasks": _part(
        55,
        _modules("tasks"),
        {
            "test_multiprocess_producer": _KNOWN,
            "test_multithread_producer": _KNOWN,
            "test_task_accepted": _KNOWN,
            "test_replaced_task_nesting_level": _TOO_LATE,
            "test_revoked_by_headers_complex_canvas": "has 20 seconds for tasks that sleep longer than that",
            "test_trace_log_arguments": _LOGS,
        },
    ),
    RESULTS_OVER_BROKER: _part(
        60,
        _modules("tasks", "inspect", "loader"),
        {
            "test_replaced_task_nesting_level": _TOO_LATE,
            "(test_retry and not test_retry_)": "asks for a state that results over a broker do not have",
            "test_trace_log_arguments": _LOGS,
        },
        may_skip=True,
    ),
    "others": _part(
        60,
        _modules("beat", "group_chains", "logfile_format", "security", "serialization", "worker"),
        {
            "test_security_task_done": _KNOWN,
            "django": "needs Django, which we do not install",
            "test_run_worker": "asks name servers of the Internet for a host that does not exist",
        },
    ),
}


_NAMES = [name for name in PARTS if FACTOR >= 1 or name not in ("chords", "canvas")]
"""Those that are run: the two longest only with all random courses, as in CI."""


@pytest.fixture(scope="module")
def port_of_kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with KernelProcess(
        tmp_path_factory.mktemp("celery-kernel"), f"vhosts = {json.dumps(['/', *PARTS])}"
    ) as process:
        yield process.broker.port


@pytest.fixture(scope="module")
def port_of_rabbitmq(rabbitmq: RabbitMq, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    file = tmp_path_factory.mktemp("celery-rabbitmq") / "definitions.json"
    everything = {"user": "guest", "configure": ".*", "write": ".*", "read": ".*"}
    definitions = {
        "vhosts": [{"name": name} for name in PARTS],
        "permissions": [{"vhost": name, **everything} for name in PARTS],
    }
    file.write_text(json.dumps(definitions))
    rabbitmq.control("import_definitions", str(file))
    yield rabbitmq.port
    for name in PARTS:
        rabbitmq.control("delete_vhost", name)


@pytest.fixture(
    params=[
        "kernel",
        pytest.param(
            "rabbitmq",
            marks=[
                pytest.mark.peer("rabbitmq"),
                pytest.mark.xdist_group("suites-rabbitmq"),
                pytest.mark.skipif(FACTOR < 1, reason="KERNEL_SEEDS=1 compares with RabbitMQ, as CI does"),
            ],
        ),
    ]
)
def port(request: pytest.FixtureRequest) -> int:
    """Our broker's port, then RabbitMQ's.  Each part has a virtual host of its name."""
    found: int = request.getfixturevalue(f"port_of_{request.param}")
    return found


@contextmanager
def _redis(folder: Path) -> Iterator[int]:
    """Run a Redis that keeps nothing; give its port."""
    port = free_port()
    place = ("--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder))
    log = folder / "redis.log"
    with log.open("w") as file:
        server = subprocess.Popen(["redis-server", *place, "--save", ""], stdout=file)
    try:
        until(lambda: "Ready to accept connections" in log.read_text())
        yield port
    finally:
        server.terminate()
        server.wait(TIMEOUT)


def _run(name: str, port: int, folder: Path) -> dict[str, str]:
    """Run a part; return what went wrong in each of its tests, empty if nothing."""
    folder.mkdir()
    with _redis(folder) as redis:
        environment = own_environment() | {
            "TEST_BROKER": f"pyamqp://guest:guest@127.0.0.1:{port}/{name}",
            "TEST_BACKEND": "rpc://" if name == RESULTS_OVER_BROKER else f"redis://127.0.0.1:{redis}/0",
            "REDIS_HOST": "127.0.0.1",
            "REDIS_PORT": str(redis),
            # The tests start workers with the command ``celery``.
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        results = run_suite(PARTS[name], folder, environment, seconds=900)
        failed = [test for test, why in results.items() if why]
        if 0 < len(failed) <= _AGAIN:
            again = msgspec.structs.replace(
                PARTS[name], tests=tuple(_path_of(test) for test in failed), options=_OPTIONS
            )
            results |= run_suite(again, folder, environment)
        return results


def _path_of(test: str) -> str:
    """Return what pytest calls a test of which the results say ``t.integration.test_module.test_class.test_name``."""
    *_, module, rest = re.split(r"^t\.integration\.(test_\w+)\.", test)
    return f"t/integration/{module}.py::" + re.sub(r"^(test_\w+)\.(?=test_)", r"\1::", rest)


def test_the_suite_passes(port: int, tmp_path: Path) -> None:
    with ThreadPoolExecutor(len(_NAMES)) as executor:
        found = {name: executor.submit(_run, name, port, tmp_path / name) for name in _NAMES}
    for name, results in found.items():
        check_results(PARTS[name], results.result())


def test_no_module_is_forgotten() -> None:
    there = {file.stem.removeprefix("test_") for file in _INTEGRATION.glob("test_*.py")}
    run = {
        Path(path.partition("::")[0]).stem.removeprefix("test_")
        for part in PARTS.values()
        for path in part.tests
    }
    assert there == run | set(_OTHER_MODULES)
