"""Certificates are renewed while an engine runs: new connections get them, and those that are there go on."""

from __future__ import annotations

import os
import socket
import ssl
from contextlib import closing
from pathlib import Path

import pytest
import trustme

from kernel.hosting.address import parse_address
from kernel.hosting.handshakes import Handshakes
from kernel.hosting.tls import RenewedContext, server_context
from kernel.hosting.tls_options import TlsOptions
from kernel.testing.fixtures import KernelFactory
from kernel.topology.plan import EnginePlan
from tests.events import Events
from tests.system.conftest import dialler

READ = "certificates read"
UNREAD = "certificates unread"


class Authority:
    """Issues certificates for 127.0.0.1, as certbot and Kubernetes put them: behind a symbolic link."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._issuer = trustme.CA()
        self.authorities = str(folder / "ca.pem")
        self._issuer.cert_pem.write_to_path(self.authorities)
        self.certificate, self.key = str(folder / "server.pem"), str(folder / "server.key")
        self._issued = 0
        self.renew()

    def renew(self) -> None:
        """Replace certificate and key, one after the other."""
        issued = self._issuer.issue_cert("127.0.0.1")
        self._issued += 1
        chain, key = (self._folder / f"{self._issued}.{suffix}" for suffix in ("pem", "key"))
        chain.write_bytes(b"".join(each.bytes() for each in issued.cert_chain_pems))
        key.write_bytes(issued.private_key_pem.bytes())
        for link, target in ((self.certificate, chain), (self.key, key)):
            new = link + ".new"
            os.symlink(target, new)
            os.replace(new, link)

    @property
    def files(self) -> dict[str, str]:
        return {"certificate": self.certificate, "key": self.key}


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def shake(address: str, authority: Authority) -> tuple[ssl.SSLSocket, str]:
    """Return a connection, and the serial number of the certificate that the server has shown."""
    host, _, port = address.rpartition(":")
    context = ssl.create_default_context(cafile=authority.authorities)
    wire = context.wrap_socket(socket.create_connection((host, int(port)), 10), server_hostname=host)
    certificate = wire.getpeercert()
    assert certificate
    return wire, str(certificate["serialNumber"])


def test_a_listener_shows_what_is_in_its_files_now(
    kernel_factory: KernelFactory, authority: Authority
) -> None:
    events = Events()
    options = {"address": "amqp+tls://127.0.0.1:0", "tls": authority.files}
    kernel = kernel_factory(EnginePlan(name="broker", kind="amqp", options=options), on_event=events)
    with kernel:
        address = kernel.address_of("broker")
        before, first = shake(address, authority)
        with closing(before):
            again, second = shake(address, authority)
            again.close()
            assert second == first
            authority.renew()
            after, third = shake(address, authority)
            after.close()
            assert third != first
            # The connection from before is served.
            before.sendall(b"AMQP\0\0\x09\1")
            before.settimeout(30)
            assert before.recv(1) == b"\1"
    assert [event.what for event in events.seen if event.what in (READ, UNREAD)] == [READ]


def test_a_dialler_shows_what_is_in_its_files_when_it_connects_again(
    kernel_factory: KernelFactory, authority: Authority
) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.authorities)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(authority.certificate, authority.key)

    def serial_number(listening: socket.socket) -> str:
        connected, _ = listening.accept()
        with context.wrap_socket(connected, server_side=True) as wire:
            certificate = wire.getpeercert()
        assert certificate
        return str(certificate["serialNumber"])

    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(30)
        place = "backend+tls://{}:{}".format(*listening.getsockname())
        tls = {**authority.files, "authorities": authority.authorities}
        with kernel_factory(dialler(place, tls=tls)):
            first, second = serial_number(listening), serial_number(listening)
            assert second == first
            authority.renew()
            # One may be under way that began before.
            assert first != serial_number(listening) or first != serial_number(listening)


class Told:
    """A context with what it has told."""

    def __init__(self, options: TlsOptions) -> None:
        self.told: list[tuple[str, str]] = []
        self.made = RenewedContext(server_context, options, lambda what, text: self.told.append((what, text)))

    @property
    def what(self) -> list[str]:
        return [what for what, _ in self.told]


def test_half_of_a_renewal_leaves_what_was_there(authority: Authority) -> None:
    """The certificate is there before its key."""
    told = Told(TlsOptions(**authority.files))
    first = told.made.current()
    key = Path(os.readlink(authority.key)).read_bytes()
    authority.renew()
    right = Path(authority.key).read_bytes()
    Path(authority.key).unlink()
    Path(authority.key).write_bytes(key)
    assert told.made.current() is first
    assert told.made.current() is first
    assert told.what == [UNREAD]
    assert authority.certificate in told.told[0][1]
    Path(authority.key).write_bytes(right + b"\n")
    assert told.made.current() is not first
    assert told.what == [UNREAD, READ]


def test_files_that_are_gone_leave_what_was_there(authority: Authority) -> None:
    told = Told(TlsOptions(**authority.files))
    first = told.made.current()
    os.unlink(authority.certificate)
    assert told.made.current() is first
    assert told.what == [UNREAD]
    assert "No such file" in told.told[0][1]
    authority.renew()
    assert told.made.current() is not first


def test_whoever_has_no_events_writes_it_to_the_log(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    address = parse_address("backend+tls://127.0.0.1:1")
    handshakes = Handshakes(address, server_side=False, tls=TlsOptions(**authority.files), seconds=1)
    authority.renew()
    assert handshakes._context is not None
    handshakes._context.current()
    assert "certificates read: their files have changed" in caplog.text
