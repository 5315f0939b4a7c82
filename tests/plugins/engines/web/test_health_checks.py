"""Health checks of the management API: what they answer, with listeners of all sorts."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest
import trustme

from kernel.hosting.certificate_dates import ends_of
from kernel.testing.fixtures import KernelFactory
from kernel.topology.plan import EnginePlan
from kernel.topology.system import Kernel
from tests.plugins.engines.web.pages import THREADS, USERS, Got, get, web

pytestmark = pytest.mark.peer("prometheus-client")

GUEST = "guest:guest"
NOW = datetime.datetime.now(datetime.UTC)


def in_days(days: int) -> datetime.datetime:
    return (NOW + datetime.timedelta(days=days)).replace(microsecond=0)


def certified(folder: Path, days: int) -> tuple[dict[str, str], datetime.datetime]:
    """Write a certificate that expires after so many days; return options of TLS, and when that is."""
    end = in_days(days)
    authority = trustme.CA()
    issued = authority.issue_cert("localhost", not_after=end)
    issued.private_key_and_cert_chain_pem.write_to_path(folder / "server.pem")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    return {"certificate": str(folder / "server.pem"), "authorities": str(folder / "ca.pem")}, end


@pytest.fixture
def kernel(kernel_factory: KernelFactory, tmp_path: Path) -> Kernel:
    """A broker with a plain listener and one with a certificate that expires in 20 days."""
    tls, _ = certified(tmp_path, 20)
    options: dict[str, Any] = {
        "users": USERS,
        "listeners": [
            {"protocol": "amqp", "address": "127.0.0.1:0"},
            {"protocol": "amqp", "address": "amqp+tls://127.0.0.1:0", "tls": tls},
            {"protocol": "mqtt", "address": "mqtt+ws://127.0.0.1:0"},
        ],
    }
    broker = EnginePlan(name="broker", kind="broker", thread="brokers", options=options)
    return kernel_factory(*THREADS, broker, web(broker="broker"))


def check(kernel: Kernel, path: str) -> Got:
    return get(kernel, f"/api/health/checks/{path}", GUEST)


@pytest.mark.parametrize("within", ["19/days", "2/weeks", "0/days", "-1/years", "19/DAYS"])
def test_a_certificate_that_is_valid_for_longer_is_well(kernel: Kernel, within: str) -> None:
    got = check(kernel, f"certificate-expiration/{within}")
    assert (got.status, got.json()) == (200, {"status": "ok"})


@pytest.mark.parametrize("within", ["21/days", "3/weeks", "1/months", "1/years"])
def test_a_certificate_that_expires_is_told(kernel: Kernel, tmp_path: Path, within: str) -> None:
    got = check(kernel, f"certificate-expiration/{within}")
    failed = got.json()
    assert (got.status, failed["status"], failed["reason"]) == (503, "failed", "Certificates expiring")
    [found] = failed["expired"]
    tls = next(
        each
        for each in get(kernel, "/api/overview", GUEST).json()["listeners"]
        if each["protocol"] == "amqp/ssl"
    )
    assert found == {
        "node": tls["node"],
        "protocol": "amqp/ssl",
        "interface": "127.0.0.1",
        "port": tls["port"],
        "cacertfile": str(tmp_path / "ca.pem"),
        "cacertfile_expires_on": [],
        "certfile": str(tmp_path / "server.pem"),
        "certfile_expires_on": [in_days(20).strftime("%Y-%m-%d %H:%M:%S")],
    }


def test_a_certificate_that_cannot_be_read_is_not_well(kernel: Kernel, tmp_path: Path) -> None:
    (tmp_path / "server.pem").unlink()
    got = check(kernel, "certificate-expiration/1/days")
    assert got.status == 503
    assert str(tmp_path / "server.pem") in got.json()["reason"]


@pytest.mark.parametrize(
    "protocol, known",
    [
        ("amqp", "amqp"),
        ("AMQP091", "amqp"),
        ("amqps", "amqp/ssl"),
        ("amqp%2Fssl", "amqp/ssl"),
        ("web-mqtt", "http/web-mqtt"),
        ("http", "http"),
    ],
)
def test_listeners_have_rabbitmqs_names(kernel: Kernel, protocol: str, known: str) -> None:
    got = check(kernel, f"protocol-listener/{protocol}")
    assert (got.status, got.json()) == (200, {"status": "ok", "protocol": known})


def test_what_does_not_listen_is_missing(kernel: Kernel) -> None:
    got = check(kernel, "protocol-listener/mqtt")
    assert (got.status, got.json()["missing"]) == (503, "mqtt")
    assert sorted(got.json()["protocols"]) == ["amqp", "amqp/ssl", "http", "http/web-mqtt"]
    assert check(kernel, "protocol-listener/https").status == 503


def test_the_files_of_certificates_are_read(tmp_path: Path) -> None:
    _, end = certified(tmp_path, 20)
    # trustme's authority: its own end, in a year behind 2049, has four digits.
    leaf, *_ = ends_of(str(tmp_path / "server.pem"))
    assert leaf == end
    both = tmp_path / "both.pem"
    both.write_bytes((tmp_path / "ca.pem").read_bytes() + (tmp_path / "server.pem").read_bytes())
    first, second, *_ = ends_of(str(both))
    assert (first.year > 2026, second) == (True, end)
    later = trustme.CA().issue_cert(
        "x", not_after=datetime.datetime(2051, 2, 3, 4, 5, 6, tzinfo=datetime.UTC)
    )
    later.cert_chain_pems[0].write_to_path(both)
    assert ends_of(str(both))[0] == datetime.datetime(2051, 2, 3, 4, 5, 6, tzinfo=datetime.UTC)


@pytest.mark.parametrize("cut", [0, 40, 80])
def test_a_damaged_file_is_named(tmp_path: Path, cut: int) -> None:
    _, _ = certified(tmp_path, 20)
    lines = (tmp_path / "ca.pem").read_text().splitlines()
    damaged = tmp_path / "damaged.pem"
    damaged.write_text("\n".join([lines[0], "".join(lines[1:-1])[:cut], lines[-1]]) if cut else "nothing")
    with pytest.raises(ValueError, match="damaged.pem: "):
        ends_of(str(damaged))
