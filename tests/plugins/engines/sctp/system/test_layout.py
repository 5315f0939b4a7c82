"""Structures and numbers, against those that C's compiler makes of ``linux/sctp.h``, and against what Linux has sent."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import pytest

from plugins.engines.sctp.options import HostedSctp, SctpEngineOptions
from plugins.engines.sctp.system import layout, notifications
from plugins.engines.sctp.system.layout import Cmsg, Option
from plugins.engines.sctp.system.notifications import Change, Kind, Reachability
from plugins.engines.sctp.system.sockets import SCHEDULERS, settings
from tests.notes import for_each

V4, V6 = bytes((127, 0, 0, 1)), bytes(15) + b"\1"
OPTIONS = SctpEngineOptions(
    address="backend+sctp://127.0.0.1:5000",
    transport="system",
    streams=10,
    sctp=HostedSctp(
        streams_in=300,
        init_tries=7,
        rto_initial=0.5,
        rto_max=5.0,
        rto_min=0.2,
        association_tries=6,
        cookie_lifetime=60.0,
        heartbeat=5.0,
        path_tries=3,
        sack_delay=0.02,
        burst=32,
        ecn=True,
        schedule="priority",
    ),
)
SET = dict(settings(OPTIONS))

STRUCTURES: dict[str, tuple[str, str, bytes]] = {
    "sndinfo": (
        "struct sctp_sndinfo",
        ".snd_sid = 3, .snd_flags = 9, .snd_ppid = htonl(0x6b6e0002), .snd_context = 77",
        layout.sending(3, 0x6B6E0002, 9, 77)[2],
    ),
    "prinfo": (
        "struct sctp_prinfo",
        ".pr_policy = SCTP_PR_SCTP_TTL, .pr_value = 1500",
        layout.expiring(1500)[2],
    ),
    "initmsg": (
        "struct sctp_initmsg",
        ".sinit_num_ostreams = 10, .sinit_max_instreams = 300, .sinit_max_attempts = 7, .sinit_max_init_timeo = 5000",
        SET[Option.INITMSG],
    ),
    "rtoinfo": (
        "struct sctp_rtoinfo",
        ".srto_initial = 500, .srto_max = 5000, .srto_min = 200",
        SET[Option.RTOINFO],
    ),
    "assocparams": (
        "struct sctp_assocparams",
        ".sasoc_asocmaxrxt = 6, .sasoc_cookie_life = 60000",
        SET[Option.ASSOCINFO],
    ),
    "paddrparams": (
        "struct sctp_paddrparams",
        ".spp_hbinterval = 5000, .spp_pathmaxrxt = 3, .spp_sackdelay = 20,"
        ".spp_flags = SPP_HB_ENABLE | SPP_SACKDELAY_ENABLE",
        SET[Option.PEER_ADDR_PARAMS],
    ),
    "sack_info": ("struct sctp_sack_info", ".sack_delay = 20, .sack_freq = 2", SET[Option.DELAYED_SACK]),
    "burst": ("struct sctp_assoc_value", ".assoc_value = 32", SET[Option.MAX_BURST]),
    "prsctp": ("struct sctp_assoc_value", ".assoc_value = 1", SET[Option.PR_SUPPORTED]),
    "reconf": ("struct sctp_assoc_value", ".assoc_value = 1", SET[Option.RECONFIG_SUPPORTED]),
    "ecn": ("struct sctp_assoc_value", ".assoc_value = 1", SET[Option.ECN_SUPPORTED]),
    "scheduler": ("struct sctp_assoc_value", ".assoc_value = SCTP_SS_PRIO", SET[Option.STREAM_SCHEDULER]),
    "stream_value": (
        "struct sctp_stream_value",
        ".stream_id = 4, .stream_value = 250",
        layout.STREAM_VALUE.pack(0, 4, 250),
    ),
    "event": (
        "struct sctp_event",
        ".se_type = SCTP_SENDER_DRY_EVENT, .se_on = 1",
        layout.EVENT.pack(0, Kind.SENDER_DRY_EVENT, 1),
    ),
    "udpencaps": (
        "struct sctp_udpencaps",
        ".sue_port = htons(9899)",
        layout.UDP_ENCAPS.pack(0, b"", socket.htons(9899)),
    ),
    "sockaddr_in": (
        "struct sockaddr_in",
        ".sin_family = AF_INET, .sin_port = htons(5000), .sin_addr.s_addr = htonl(0x7f000001)",
        layout.socket_address(V4, 5000),
    ),
    "sockaddr_in6": (
        "struct sockaddr_in6",
        ".sin6_family = AF_INET6, .sin6_port = htons(5000), .sin6_addr.s6_addr = {[15] = 1}",
        layout.socket_address(V6, 5000),
    ),
}
NEWS: dict[str, tuple[str, str, notifications.Notification]] = {
    "up": (
        "struct sctp_assoc_change",
        ".sac_type = SCTP_ASSOC_CHANGE, .sac_state = SCTP_RESTART, .sac_outbound_streams = 5, .sac_inbound_streams = 6",
        notifications.AssociationChange(Change.RESTART, 5, b""),
    ),
    "address": (
        "struct sctp_paddr_change",
        ".spc_type = SCTP_PEER_ADDR_CHANGE, .spc_aaddr = {.ss_family = AF_INET, .__ss_padding = {0, 0, 127, 0, 0, 1}},"
        ".spc_state = SCTP_ADDR_UNREACHABLE, .spc_error = 9",
        notifications.AddressChange(V4, Reachability.UNREACHABLE),
    ),
    "error": (
        "struct sctp_remote_error",
        ".sre_type = SCTP_REMOTE_ERROR, .sre_error = htons(1), .sre_assoc_id = 7",
        notifications.RemoteError(1),
    ),
    "failed": (
        "struct sctp_send_failed_event",
        ".ssf_type = SCTP_SEND_FAILED_EVENT, .ssf_error = 3, .ssfe_info.snd_sid = 4, .ssfe_info.snd_context = 77",
        notifications.Failed(77),
    ),
    "partial": (
        "struct sctp_pdapi_event",
        ".pdapi_type = SCTP_PARTIAL_DELIVERY_EVENT, .pdapi_assoc_id = 1, .pdapi_stream = 12, .pdapi_seq = 3",
        notifications.PartialAborted(12),
    ),
    "shutdown": (
        "struct sctp_shutdown_event",
        ".sse_type = SCTP_SHUTDOWN_EVENT",
        notifications.ShuttingDown(),
    ),
    "dry": (
        "struct sctp_sender_dry_event",
        ".sender_dry_type = SCTP_SENDER_DRY_EVENT",
        notifications.Dry(),
    ),
}
NUMBERS: dict[str, int] = {
    **{f"SCTP_{each.name}": each for each in Option if each.name not in ("BINDX_ADD", "CONNECTX")},
    "SCTP_SOCKOPT_BINDX_ADD": Option.BINDX_ADD,
    "SCTP_SOCKOPT_CONNECTX": Option.CONNECTX,
    **{f"SCTP_{each.name}": each for each in (*Cmsg, *Kind, *Change)},
    **{f"SCTP_ADDR_{each.name}": each for each in Reachability},
    "SCTP_UNORDERED": layout.UNORDERED,
    "SCTP_SACK_IMMEDIATELY": layout.SACK_IMMEDIATELY,
    "MSG_NOTIFICATION": layout.MSG_NOTIFICATION,
    "IPPROTO_SCTP": layout.IPPROTO_SCTP,
    "SO_MEMINFO": layout.SO_MEMINFO,
    "sizeof(struct sctp_getaddrs)": 8,
    "offsetof(struct sctp_status, sstat_rwnd)": 8,
    "offsetof(struct sctp_status, sstat_primary)": layout.STATUS.size,
    "SCTP_SS_FCFS": SCHEDULERS["first-come"],
    "SCTP_SS_RR": SCHEDULERS["round-robin"],
}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What a C program says of each structure, in hexadecimal digits, and of each number."""
    folder: Path = tmp_path_factory.mktemp("layout")
    lines = [
        f'{{ {kind} it; memset(&it, 0, sizeof it); it = ({kind}){{{value}}}; tell("{name}", &it, sizeof it); }}'
        for name, (kind, value, _) in [*STRUCTURES.items(), *NEWS.items()]
    ]
    lines += [f'printf("{name}=%ld\\n", (long)({name}));' for name in NUMBERS]
    (folder / "tell.c").write_text(
        """
        #include <stddef.h>
        #include <stdio.h>
        #include <string.h>
        #include <arpa/inet.h>
        #include <netinet/in.h>
        #include <sys/socket.h>
        #include <linux/sctp.h>
        static void tell(const char *name, const void *at, size_t size)
        {
            printf("%s=", name);
            for (size_t n = 0; n < size; n++)
                printf("%02x", ((const unsigned char *)at)[n]);
            puts("");
        }
        int main(void) {
        """
        + "\n".join(lines)
        + "}\n"
    )
    subprocess.run(["gcc", "-w", "-o", folder / "tell", folder / "tell.c"], check=True)
    printed = subprocess.run([folder / "tell"], check=True, stdout=subprocess.PIPE, text=True).stdout
    return dict(line.split("=") for line in printed.splitlines())


@pytest.mark.peer("gcc")
@pytest.mark.parametrize("name", STRUCTURES)
def test_what_the_system_is_told_lies_as_in_c(name: str, compiled: dict[str, str]) -> None:
    assert STRUCTURES[name][2].hex() == compiled[name]


@pytest.mark.peer("gcc")
@pytest.mark.parametrize("name", NEWS)
def test_what_the_system_tells_is_read_as_it_lies_in_c(name: str, compiled: dict[str, str]) -> None:
    assert notifications.decode(bytes.fromhex(compiled[name])) == NEWS[name][2]


@pytest.mark.peer("gcc")
@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_are_those_of_the_header(name: str, compiled: dict[str, str]) -> None:
    assert int(compiled[name]) == NUMBERS[name]


# ---------------------------------------------------------------------- as Linux 6.1 has sent them, on x86-64

LINUX: dict[str, tuple[str, notifications.Notification]] = {
    "up": ("01800000140000000000 00000a000a0003000000", notifications.AssociationChange(Change.COMM_UP, 10, b"")),
    "aborted": (
        "0180000018000000 0100000c 00000000 08000000 000c0004",
        notifications.AssociationChange(Change.COMM_LOST, 0, b"\0\x0c\0\4"),
    ),
    "refused": (
        "0180000014000000 0400000000000000 00000000",
        notifications.AssociationChange(Change.CANT_STR_ASSOC, 0, b""),
    ),
    "dry": ("098000000c00000003000000", notifications.Dry()),
    "shutdown": ("058000000c00000006000000", notifications.ShuttingDown()),
    "expired": (
        "0d80000028000000 00000000 0100 0300 00000007 be000000 00000000 03000000 79797979",
        notifications.Failed(0xBE),
    ),
}  # fmt: skip


@for_each("name", LINUX)
def test_notifications_of_linux_are_understood(name: str) -> None:
    data, expected = LINUX[name]
    assert notifications.decode(bytes.fromhex(data)) == expected


def test_what_nobody_has_asked_for_is_passed_over() -> None:
    assert notifications.decode(bytes.fromhex("0b800000 08000000")) is None


def test_where_a_message_belongs() -> None:
    """As Linux 6.1 said of one on stream 0 with the identifier 7."""
    data = bytes.fromhex("0000ab00 0000 0000 00000007 8a9750b2 00000000 00000000 04000000")
    other = (socket.SOL_SOCKET, 29, b"")
    assert layout.received([other, (132, Cmsg.RCVINFO, data)]) == (0, 7, False)
    unordered = bytes.fromhex("0500ab00 0100 0000 00000007 8a9750b2 00000000 00000000 04000000")
    assert layout.received([(132, Cmsg.RCVINFO, unordered)]) == (5, 7, True)
    with pytest.raises(ValueError, match="without SCTP_RCVINFO"):
        layout.received([other])


def test_addresses_of_a_peer_are_read() -> None:
    places = layout.socket_address(V4, 5000) + layout.socket_address(V6, 5000)
    assert layout.peer_addresses(bytes.fromhex("00000000 02000000") + places) == [V4, V6]
    assert layout.address_of(bytes(28)) == b""
