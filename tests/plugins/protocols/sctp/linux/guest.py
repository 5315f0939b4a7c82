"""Linux, and its SCTP, in QEMU without KVM or root: an echo to which UDP on the loopback interface leads (RFC 6951), or tap devices.

Tap devices take root. For programs of ours beside Linux's SCTP there is ``user_mode.py``, which emulates no processor.
"""

from __future__ import annotations

import contextlib
import platform
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.ports import free_port

_HERE = Path(__file__).parent
_IMAGE = _HERE / "image"
_QEMU, _BUSYBOX = "qemu-system-x86_64", "/bin/busybox"
PORT = 7777
"""Of the echo."""
DIAL, ABORT, CLOSE = 1000, 1001, 1002
"""Protocol identifiers that make it dial the port of the sender's that the message is; abort the association; shut it down."""
ADDRESS = bytes((10, 0, 2, 15))
OURS = bytes((10, 0, 2, 2))
_TIMEOUT = 120.0
"""Seconds until a guest that runs has printed what it is to print."""
_BOOT_TIMEOUT = 400.0
"""Seconds until it runs: some five by itself, minutes beside other work, because every instruction is emulated."""
_BOOT_WORDS = "console=ttyS0 quiet panic=-1 no_timer_check"
"""Words for Linux.  Its check of the timer counts interrupts in a moment of real time, and a guest that gets too little of the
processor in that moment panics ("IO-APIC + timer doesn't work")."""


def is_there() -> bool:
    """Whether all is there that a guest is made of."""
    commands = all(map(shutil.which, (_QEMU, "cpio", "gcc")))
    return (
        commands
        and (_IMAGE / "vmlinuz").exists()
        and (_IMAGE / "modules" / "sctp.ko").exists()
        and Path(_BUSYBOX).exists()
        and platform.machine() == "x86_64"
    )


def _build(folder: Path) -> Path:
    """Return the guest's first file system: a shell, modules, and the echo."""
    root = folder / "root"
    for each in ("bin", "proc", "dev", "sys"):
        (root / each).mkdir(parents=True)
    shutil.copy(_BUSYBOX, root / "bin" / "busybox")
    shutil.copytree(_IMAGE / "modules", root / "modules")
    shutil.copy(_HERE / "init", root / "init")
    (root / "init").chmod(0o755)
    subprocess.run(["gcc", "-static", "-O1", "-o", root / "echo", _HERE / "echo.c"], check=True)
    names = "\n".join(str(each.relative_to(root)) for each in sorted(root.rglob("*")))
    archive = subprocess.run(
        ["cpio", "-o", "-H", "newc", "--quiet"],
        cwd=root,
        input=names.encode(),
        check=True,
        stdout=subprocess.PIPE,
    )
    made = folder / "initrd"
    made.write_bytes(archive.stdout)
    return made


def _command(initrd: Path, words: str, *devices: str) -> list[str]:
    return [
        _QEMU, "-M", "q35", "-accel", "tcg", "-cpu", "max", "-smp", "1", "-m", "256", "-nographic", "-no-reboot",
        "-nic", "none", "-kernel", str(_IMAGE / "vmlinuz"), "-initrd", str(initrd),
        "-append", f"{_BOOT_WORDS} {words}", *devices,
    ]  # fmt: skip


class Console:
    """What a guest prints."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process, self._log = process, log
        self._at = 0

    def skip(self) -> None:
        """Forget what was printed until now."""
        self._at = len(self._read())

    def until(self, text: str, timeout: float = _TIMEOUT) -> None:
        """Wait until it is printed, behind what was waited for before."""
        deadline = time.monotonic() + timeout
        while (found := self._read().find(text, self._at)) < 0:
            assert self._process.poll() is None, f"the guest is gone:\n{self._read()}"
            assert time.monotonic() < deadline, f"no {text!r} behind character {self._at} of\n{self._read()}"
            time.sleep(0.05)
        self._at = found + len(text)

    def _read(self) -> str:
        return self._log.read_text(errors="replace")


@contextlib.contextmanager
def _echo(folder: Path, words: str, *devices: str, within: Sequence[str] = ()) -> Iterator[Console]:
    """Boot an echo; ``within`` is the command that runs QEMU in its place."""
    log = folder / "console"
    command = [*within, *_command(_build(folder), words, *devices)]
    with log.open("wb") as console:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=console, stderr=console)
    try:
        printed = Console(process, log)
        printed.until("listening", _BOOT_TIMEOUT)
        yield printed
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def guest(folder: Path, encap: int) -> Iterator[int]:
    """Boot; give the UDP port that leads to the guest, whose own packets go to ``encap``."""
    port = free_port()
    network = f"user,id=n0,hostfwd=udp:127.0.0.1:{port}-10.0.2.15:9899"
    devices = ("-netdev", network, "-device", "virtio-net-pci,netdev=n0")
    with _echo(folder, f"addresses=10.0.2.15/24 encap={encap}", *devices):
        yield port


@contextlib.contextmanager
def guest_on_taps(folder: Path, namespace: str, taps: Mapping[str, str]) -> Iterator[Console]:
    """Boot, with an interface for each tap device of a network namespace: ``taps`` are the guest's address there, by name.

    Checksums are the guest's own: what is left to a virtual device reaches nobody who would complete it.
    """
    devices: list[str] = []
    for name in taps:
        devices += ["-netdev", f"tap,id={name},ifname={name},script=no,downscript=no"]
        devices += ["-device", f"virtio-net-pci,netdev={name},csum=off,gso=off"]
    within = ("ip", "netns", "exec", namespace)
    with _echo(folder, f"addresses={','.join(taps.values())}", *devices, within=within) as console:
        yield console
