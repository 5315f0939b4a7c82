"""The operating system's SCTP sockets: one that listens, and one for each association (RFC 6458, 4)."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

from kernel.hosting.datagram_wire import want_buffer
from plugins.engines.sctp.options import HostedSctp, SctpEngineOptions
from plugins.engines.sctp.system import layout
from plugins.engines.sctp.system.layout import IPPROTO_SCTP, Option
from plugins.engines.sctp.system.notifications import Kind
from plugins.engines.sctp.transport import packed

BACKLOG = 128
_UDP_PORT = Path("/proc/sys/net/sctp/udp_port")
_NO_SCTP = (errno.EPROTONOSUPPORT, errno.ESOCKTNOSUPPORT)
_HEARTBEATS, _SACKS = 1 << 0, 1 << 5
"""SPP_HB_ENABLE, SPP_SACKDELAY_ENABLE."""
SCHEDULERS = {"first-come": 0, "priority": 1, "round-robin": 2, "fair": 2}
"""SCTP_SS_FCFS, SCTP_SS_PRIO, SCTP_SS_RR. Linux has a fair scheduler since 6.4 only."""
_NOT_THE_SYSTEMS = ("packet_size", "packet_size_max", "receive_window")


class SocketFactory:
    """Makes sockets with the options and addresses of one side."""

    def __init__(
        self, options: SctpEngineOptions, hosts: Sequence[str], *, port: int, udp_port: int | None
    ) -> None:
        """Make a factory; ``udp_port`` is the peer's or our own UDP port (RFC 6951), None means over IP."""
        self.warnings: list[str] = []
        """Options that the system does not support. The first socket fills the list."""
        self._options = options
        self._hosts = ["::"] if "::" in hosts else [host or "0.0.0.0" for host in hosts]
        self._family = socket.AF_INET6 if any(":" in host for host in hosts) else socket.AF_INET
        # An IPv4 address on an IPv6 socket can only be bound with BINDX_ADD, so that IPv6 comes first.
        if self._family == socket.AF_INET6:
            self._hosts.sort(key=lambda host: ":" not in host)
        self._port = port
        self._udp_port = udp_port
        self._warned = False

    def open(self) -> socket.socket:
        """Return a bound, non-blocking socket. Raises ``OSError`` with the reason."""
        made = self._create()
        try:
            self._set(made)
            self._bind(made)
        except BaseException:
            made.close()
            raise
        self._warned = True
        return made

    def _create(self) -> socket.socket:
        try:
            made = socket.socket(self._family, socket.SOCK_STREAM, IPPROTO_SCTP)
        except OSError as error:
            if error.errno not in _NO_SCTP:
                raise
            text = 'transport = "system": this system has no SCTP, or its module is not loaded (modprobe sctp); use transport = "udp"'
            raise OSError(error.errno, text) from None
        made.setblocking(False)
        return made

    def _warn(self, text: str) -> None:
        if not self._warned:
            self.warnings.append(text)

    def _set(self, made: socket.socket) -> None:
        options = self._options
        for option, size in (
            (socket.SO_SNDBUF, options.send_buffer),
            (socket.SO_RCVBUF, options.receive_buffer),
        ):
            if (warning := want_buffer(made, option, size)) is not None:
                self._warn(warning)
        # Only a value that differs from the default was set by somebody, who should know that it has no
        # effect.
        for name in _NOT_THE_SYSTEMS:
            if getattr(options.sctp, name) != getattr(HostedSctp(), name):
                self._warn(f'transport = "system": {name} is ignored, the system chooses it')
        # Notifications have to be asked for one by one (RFC 6458, 6.2.2).
        for kind in Kind:
            made.setsockopt(IPPROTO_SCTP, Option.EVENT, layout.EVENT.pack(0, kind, 1))
        # Without it, messages would come without their stream and protocol identifier (RFC 6458, 5.3.5).
        made.setsockopt(IPPROTO_SCTP, Option.RECVRCVINFO, 1)
        for option, value in settings(options):
            try:
                made.setsockopt(IPPROTO_SCTP, option, value)
            # An option that this system does not know is reported, and no reason to refuse the whole.
            except OSError as error:
                self._warn(f"the system's SCTP does not accept {option.name}: {error.strerror}")
        # Without it packets go over IP. The option is for the peer's port; our own is the system's
        # (``_UDP_PORT``).
        if self._udp_port:
            _check_udp_port()
            encapsulated = layout.UDP_ENCAPS.pack(0, b"", socket.htons(self._udp_port))
            made.setsockopt(IPPROTO_SCTP, Option.REMOTE_UDP_ENCAPS_PORT, encapsulated)

    def _bind(self, made: socket.socket) -> None:
        if self._family == socket.AF_INET6:
            # IPv4 addresses come as such, as everywhere here, and not mapped into IPv6.
            made.setsockopt(IPPROTO_SCTP, Option.I_WANT_MAPPED_V4_ADDR, 0)
        try:
            first, *others = self._hosts
            made.bind((first, self._port))
            # With port 0 the first address gets any port; the others must have the same.
            port = made.getsockname()[1]
            for host in others:
                sockaddr = layout.socket_address(packed(host), port)
                made.setsockopt(IPPROTO_SCTP, Option.BINDX_ADD, sockaddr)
        except OSError as error:
            where = f"port {self._port} of {', '.join(self._hosts)}"
            raise OSError(error.errno, f"cannot bind SCTP to {where}: {error.strerror}") from None


def settings(options: SctpEngineOptions) -> Iterator[tuple[Option, bytes]]:
    """Yield the options as the system's socket options."""
    sctp = options.sctp
    # No Nagle: units are filled already (RFC 6458, 8.1.5).
    yield Option.NODELAY, layout.NUMBER.pack(1)
    yield (
        Option.INITMSG,
        layout.INITMSG.pack(options.streams, sctp.streams_in, sctp.init_tries, _ms(sctp.rto_max)),
    )
    yield (
        Option.RTOINFO,
        layout.RTOINFO.pack(0, _ms(sctp.rto_initial), _ms(sctp.rto_max), _ms(sctp.rto_min)),
    )
    yield (
        Option.ASSOCINFO,
        layout.ASSOCINFO.pack(0, sctp.association_tries, 0, 0, 0, _ms(sctp.cookie_lifetime)),
    )
    delay = _ms(sctp.sack_delay) if sctp.sack_delay else 0
    yield (
        Option.PEER_ADDR_PARAMS,
        layout.PEER_ADDR_PARAMS.pack(
            0,
            b"",
            _ms(sctp.heartbeat),
            sctp.path_tries,
            0,
            delay,
            _HEARTBEATS | (_SACKS if delay else 0),
            0,
            0,
        ),
    )
    # 1 packet means no delay (RFC 6458, 8.1.19).
    yield Option.DELAYED_SACK, layout.DELAYED_SACK.pack(0, delay, 2 if delay else 1)
    for option, value in (
        (Option.MAX_BURST, sctp.burst),
        (Option.PR_SUPPORTED, int(sctp.partial_reliability)),
        (Option.RECONFIG_SUPPORTED, int(sctp.stream_reset)),
        (Option.ECN_SUPPORTED, int(sctp.ecn)),
        (Option.STREAM_SCHEDULER, SCHEDULERS[sctp.schedule]),
    ):
        yield option, layout.ASSOC_VALUE.pack(0, value)


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def _check_udp_port() -> None:
    """Raise ``OSError`` if the system does not accept SCTP over UDP (RFC 6951)."""
    found = _UDP_PORT.read_text().strip() if _UDP_PORT.exists() else "0"
    if found == "0":
        text = "the system's SCTP listens on no UDP port: sysctl -w net.sctp.udp_port=9899, or leave out the UDP port"
        raise OSError(errno.EPROTONOSUPPORT, text)
