"""What is said of a system that has no SCTP, or not all of it, and of options that are not for it."""

from __future__ import annotations

import errno
import socket
from typing import Any

import pytest

from kernel.testing.fixtures import KernelFactory
from plugins.engines.sctp.options import HostedSctp, SctpEngineOptions
from plugins.engines.sctp.system import layout, sockets
from plugins.engines.sctp.system.layout import Option
from plugins.engines.sctp.system.sockets import SocketFactory
from tests.events import Events
from tests.plugins.engines.sctp.plans import dialler, listener


class Strange:
    """A socket whose system does not know some options, and has addresses of its own."""

    unknown: tuple[int, ...] = ()
    foreign: tuple[bytes, ...] = ()
    made: list[Strange] = []

    def __init__(self, family: int, kind: int, protocol: int) -> None:
        assert (kind, protocol) == (socket.SOCK_STREAM, layout.IPPROTO_SCTP)
        self.family = family
        self.bound: tuple[str, int] | None = None
        self.set: dict[int, Any] = {}
        self.closed = False
        Strange.made.append(self)

    def setsockopt(self, level: int, option: int, value: Any) -> None:
        if level == layout.IPPROTO_SCTP:
            if option in self.unknown:
                raise OSError(errno.ENOPROTOOPT, "Protocol not available")
            if option == Option.BINDX_ADD and value[4:8] in self.foreign:
                raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")
            self.set[option] = value

    def getsockopt(self, level: int, option: int) -> int:
        return 1 << 30

    def setblocking(self, on: bool) -> None:
        assert not on

    def bind(self, place: tuple[str, int]) -> None:
        self.bound = place

    def getsockname(self) -> tuple[str, int]:
        return "127.0.0.1", 4711

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def strange(monkeypatch: pytest.MonkeyPatch) -> type[Strange]:
    monkeypatch.setattr(sockets.socket, "socket", Strange)
    monkeypatch.setattr(Strange, "unknown", ())
    monkeypatch.setattr(Strange, "foreign", ())
    monkeypatch.setattr(Strange, "made", [])
    return Strange


def options(**others: Any) -> SctpEngineOptions:
    return SctpEngineOptions(address="backend+sctp://127.0.0.1:5000", transport="system", **others)


@pytest.mark.parametrize(
    "plan", [listener("127.0.0.1:0", transport="system"), dialler("127.0.0.1:5", transport="system")]
)
def test_a_system_without_sctp_is_told_what_to_do(
    plan: Any, kernel_factory: KernelFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = socket.socket

    def refusing(family: int = -1, kind: int = -1, protocol: int = -1, *rest: Any) -> socket.socket:
        if protocol == layout.IPPROTO_SCTP:
            raise OSError(errno.EPROTONOSUPPORT, "Protocol not supported")
        return real(family, kind, protocol, *rest)

    monkeypatch.setattr("plugins.engines.sctp.system.sockets.socket.socket", refusing)
    events = Events()
    kernel_factory(plan, wait=False, on_event=events)
    detail = events.wait("failed").detail
    assert "modprobe sctp" in detail
    assert 'transport = "udp"' in detail


def test_what_the_system_does_not_know_is_told_once(strange: type[Strange]) -> None:
    strange.unknown = (Option.ECN_SUPPORTED,)
    opener = SocketFactory(
        options(sctp=HostedSctp(packet_size=1400, receive_window=8192)), ["127.0.0.1"], port=0, udp_port=None
    )
    opener.open()
    opener.open()
    assert opener.warnings == [
        'transport = "system": packet_size is ignored, the system chooses it',
        'transport = "system": receive_window is ignored, the system chooses it',
        "the system's SCTP does not accept ECN_SUPPORTED: Protocol not available",
    ]


def test_all_addresses_are_bound_to_one_port(strange: type[Strange]) -> None:
    SocketFactory(options(), ["127.0.0.1", "::1", "127.0.0.2"], port=0, udp_port=None).open()
    (made,) = strange.made
    assert made.family == socket.AF_INET6
    assert made.bound == ("::1", 0)
    assert made.set[Option.BINDX_ADD] == layout.socket_address(bytes((127, 0, 0, 2)), 4711)


def test_an_address_that_is_not_ours_is_told(strange: type[Strange]) -> None:
    strange.foreign = (bytes((10, 0, 0, 9)),)
    opener = SocketFactory(options(), ["127.0.0.1", "10.0.0.9"], port=5000, udp_port=None)
    with pytest.raises(OSError, match=r"cannot bind SCTP to port 5000 of 127.0.0.1, 10.0.0.9: Cannot assign"):
        opener.open()
    assert strange.made[0].closed


def test_packets_over_udp_take_a_port_of_the_systems(
    strange: type[Strange], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    port = tmp_path / "udp_port"
    monkeypatch.setattr(sockets, "_UDP_PORT", port)
    opener = SocketFactory(options(), ["127.0.0.1"], port=0, udp_port=9900)
    for said in (None, "0\n"):
        if said is not None:
            port.write_text(said)
        with pytest.raises(OSError, match=r"sysctl -w net.sctp.udp_port=9899"):
            opener.open()
    port.write_text("9899\n")
    opener.open()
    encapsulated = layout.UDP_ENCAPS.pack(0, b"", socket.htons(9900))
    assert strange.made[-1].set[Option.REMOTE_UDP_ENCAPS_PORT] == encapsulated
