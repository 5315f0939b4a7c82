"""Whole suites of AMQP clients: our broker passes what RabbitMQ passes.

Their tests are unchanged.  AMQPStorm looks for answers every millisecond in place of ten (``suites/amqpstorm_ports.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import trustme

from tests.interop.brokers import KernelProcess
from tests.interop.client_suites import Suite, check_results, own_environment, run_suite
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
            "management": "needs the HTTP interface; see test_amqpstorm_management.py",
            "test_web_based": "needs the HTTP interface; see test_amqpstorm_management.py",
        },
        ("-p", "tests.interop.suites.amqpstorm_ports"),
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
    }


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.folder)
def test_the_suite_passes(suite: Suite, suite_broker: SuiteBroker) -> None:
    results = run_suite(suite, suite_broker.folder, _environment(suite_broker))
    check_results(suite, results)
