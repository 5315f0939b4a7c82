"""Whole suites of AMQP clients, unchanged: our broker passes what RabbitMQ passes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
import trustme

from tests.interop.brokers import KernelProcess
from tests.peers import CLIENT_SUITES
from tests.plugins.engines.amqp_client.rabbitmq import RabbitMq
from tests.ports import free_port
from tests.seeds import FACTOR

pytestmark = [pytest.mark.peer("client-suites"), pytest.mark.slow, pytest.mark.timeout(600)]

_LISTENERS = """
[engines.broker]
kind = "broker"
{{options}}

[[engines.broker.listeners]]
protocol = "amqp"
address = "127.0.0.1:{{port}}"

[[engines.broker.listeners]]
protocol = "amqp"
address = "tls://127.0.0.1:{tls}"
tls = {{{{ certificate = "{certificate}" }}}}
"""


class SuiteBroker(msgspec.Struct, frozen=True):
    """A broker that listens on 127.0.0.1 with and without TLS, for guest/guest."""

    port: int
    tls_port: int
    folder: Path
    """Certificates are in its folder ``t/certs``."""


class Suite(msgspec.Struct, frozen=True):
    """A suite, and what of it is not for any broker of a test."""

    folder: str
    tests: tuple[str, ...]
    least: int
    """How many tests it has at least: fewer, and it did not run."""
    left_out: dict[str, str] = {}
    """Parts of tests' names, and why neither broker can pass them here."""
    options: tuple[str, ...] = ()
    configuration: str = "setup.cfg"
    may_skip: bool = False
    """Whether tests may leave themselves out, because of what the broker has nothing to do with."""


SUITES = (
    Suite(
        "amqp",
        ("t/integration",),
        61,
        {
            "test_tls_default_certs": "talks to a site on the Internet",
            "test_tls_no_default_certs_fails": "talks to a site on the Internet",
        },
    ),
    Suite("kombu", ("t/integration/test_py_amqp.py",), 51),
    Suite(
        "amqpstorm",
        ("amqpstorm/tests/functional",),
        105,
        {
            "management": "needs the HTTP interface at its port; see test_management_tools.py",
            "test_web_based": "needs the HTTP interface at its port; see test_management_tools.py",
        },
        ("-p", "tests.interop.suites.amqpstorm_ports"),
    ),
    # Those of its tests that have a worker and do not need Redis for the results: these come over the broker, too.
    Suite(
        "celery",
        tuple(f"t/integration/test_{name}.py" for name in ("tasks", "inspect", "group_chains", "loader")),
        57,
        {
            "pydantic": "needs pydantic, which we do not install",
            "test_expired": "only waits, for 16 seconds",
            "test_replaced_task_nesting_level": "prepares after it has sent: it fails if the answer comes soon",
            "(test_retry and not test_retry_)": "asks for a state that results over a broker do not have",
            "test_trace_log_arguments": "reads logs in which the worker writes nothing under this configuration of pytest",
        },
        ("-p", "celery.contrib.pytest", "-p", "tests.interop.suites.celery_alone"),
        "pyproject.toml",
        may_skip=True,
    ),
)


def _write_certificates(folder: Path) -> Path:
    """Write the files that the suites name; return the server's certificate with its key."""
    certificates = folder / "t" / "certs"
    certificates.mkdir(parents=True)
    authority = trustme.CA()
    authority.cert_pem.write_to_path(certificates / "ca_certificate.pem")
    client = authority.issue_cert("client")
    client.private_key_pem.write_to_path(certificates / "client_key.pem")
    client.cert_chain_pems[0].write_to_path(certificates / "client_certificate.pem")
    for broken in ("client_key_broken.pem", "client_certificate_broken.pem"):
        (certificates / broken).write_text("broken")
    server = certificates / "server.pem"
    authority.issue_cert("localhost", "127.0.0.1").private_key_and_cert_chain_pem.write_to_path(server)
    return server


@pytest.fixture(scope="module")
def kernel_with_tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SuiteBroker]:
    folder = tmp_path_factory.mktemp("suites-kernel")
    tls = free_port()
    topology = _LISTENERS.format(tls=tls, certificate=_write_certificates(folder))
    with KernelProcess(folder, topology=topology) as process:
        yield SuiteBroker(process.broker.port, tls, folder)


@pytest.fixture(scope="module")
def rabbitmq_with_tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SuiteBroker]:
    folder = tmp_path_factory.mktemp("suites-rabbitmq")
    tls = free_port()
    server = _write_certificates(folder)
    files = {"cacertfile": server.parent / "ca_certificate.pem", "certfile": server, "keyfile": server}
    settings = [f"ssl_options.{name} = {file}" for name, file in files.items()]
    node = RabbitMq(folder, settings=[f"listeners.ssl.default = 127.0.0.1:{tls}", *settings])
    try:
        node.start()
        yield SuiteBroker(node.port, tls, folder)
    finally:
        node.close()


@pytest.fixture(
    params=[
        pytest.param("kernel", marks=pytest.mark.xdist_group("suites")),
        pytest.param(
            "rabbitmq",
            marks=[
                pytest.mark.peer("rabbitmq"),
                pytest.mark.xdist_group("suites-rabbitmq"),
                # What RabbitMQ passes changes with its version and those of the suites, and not with our code.
                pytest.mark.skipif(FACTOR < 1, reason="KERNEL_SEEDS=1 compares with RabbitMQ, as CI does"),
            ],
        ),
    ]
)
def suite_broker(request: pytest.FixtureRequest) -> SuiteBroker:
    """Our broker, then RabbitMQ."""
    found: SuiteBroker = request.getfixturevalue(f"{request.param}_with_tls")
    return found


def own_environment() -> dict[str, str]:
    """Return the environment of a process that runs a suite with plugins of ours."""
    # What this run of pytest has set is not for another one, such as the number of its process.
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return own | {"PYTHONPATH": str(Path(__file__).parents[2])}


def _environment(broker: SuiteBroker) -> dict[str, str]:
    certificates = broker.folder / "t" / "certs"
    return own_environment() | {
        # amqp and kombu
        "RABBITMQ_HOST": "127.0.0.1",
        "RABBITMQ_5672_TCP": str(broker.port),
        "RABBITMQ_5671_TCP": str(broker.tls_port),
        # AMQPStorm
        "AMQP_HOST": "127.0.0.1",
        "AMQP_USERNAME": "guest",
        "AMQP_PASSWORD": "guest",
        "AMQP_URI": "amqp://guest:guest@127.0.0.1:5672/%2F",
        "AMQP_HTTP_URL": "http://127.0.0.1:1",
        "AMQP_SSL_HOST": "localhost",
        "AMQP_SSL_URI": "amqps://guest:guest@localhost:5671/%2F",
        "AMQP_CAFILE": str(certificates / "ca_certificate.pem"),
        "AMQP_CERTFILE": str(certificates / "client_certificate.pem"),
        "AMQP_KEYFILE": str(certificates / "client_key.pem"),
        "SUITE_PORT": str(broker.port),
        "SUITE_TLS_PORT": str(broker.tls_port),
        # Celery
        "TEST_BROKER": f"pyamqp://guest:guest@127.0.0.1:{broker.port}//",
        "TEST_BACKEND": "rpc://",
    }


def run_suite(suite: Suite, here: Path, environment: dict[str, str]) -> dict[str, str]:
    """Run a suite in a process of its own; return what went wrong in each of its tests, empty if nothing.

    ``here``: its working directory, which has files for it.
    """
    folder = CLIENT_SUITES / suite.folder
    results = here / f"{suite.folder}.xml"
    done = subprocess.run(
        [
            *(
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "--rootdir",
                str(folder),
                "-c",
                str(folder / suite.configuration),
            ),
            *("-p", "no:cacheprovider", "-W", "ignore", "--timeout", "60", f"--junitxml={results}"),
            # AMQPStorm's wheel has the suite as well, and a plugin of ours imports it from there.
            *("--import-mode=importlib", "-k", " and ".join(f"not {name}" for name in suite.left_out)),
            *(*suite.options, *(str(folder / tests) for tests in suite.tests)),
        ],
        cwd=here,
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert results.exists(), done.stdout + done.stderr
    return {
        f"{case.get('classname')}.{case.get('name')}": "".join(
            f"{problem.tag}: {problem.get('message')}\n{problem.text}"
            for problem in case
            if problem.tag in ("failure", "error", "skipped")
        )
        for case in ElementTree.parse(results).iter("testcase")
        if not suite.may_skip or case.find("skipped") is None
    }


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.folder)
def test_the_suite_passes(suite: Suite, suite_broker: SuiteBroker) -> None:
    results = run_suite(suite, suite_broker.folder, _environment(suite_broker))
    check_results(suite, results)


def check_results(suite: Suite, results: dict[str, str]) -> None:
    """Fail if a test of a suite has failed, or if it did not run."""
    failed = {name: why for name, why in results.items() if why}
    assert not failed, "\n".join(f"{name}: {why}" for name, why in failed.items())
    assert len(results) >= suite.least
