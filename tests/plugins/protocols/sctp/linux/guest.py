"""Linux, and its SCTP, in QEMU without KVM or root.

It is an echo that UDP on the loopback interface leads to (RFC 6951), or runs a program of ours: it reads the host's files, and its
memory is all that it writes to.
"""

from __future__ import annotations

import contextlib
import platform
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

_HERE = Path(__file__).parent
_IMAGE = _HERE / "image"
_QEMU, _BUSYBOX = "qemu-system-x86_64", "/bin/busybox"
PORT, DIAL = 7777, 1000
"""Of the echo; and the protocol identifier that makes it dial."""
ADDRESS = bytes((10, 0, 2, 15))
OURS = bytes((10, 0, 2, 2))
_PATIENCE = 120.0


def is_there() -> bool:
    """Whether all is there that a guest is made of."""
    commands = all(map(shutil.which, (_QEMU, "cpio", "gcc")))
    return (
        commands
        and (_IMAGE / "vmlinuz").exists()
        and (_IMAGE / "modules" / "9p.ko").exists()
        and Path(_BUSYBOX).exists()
        and platform.machine() == "x86_64"
    )


def _build(folder: Path, job: str | None) -> Path:
    """Return the guest's first file system: a shell, modules, and the echo or a shell's ``job``."""
    root = folder / "root"
    for each in ("bin", "proc", "dev", "sys", "host"):
        (root / each).mkdir(parents=True)
    shutil.copy(_BUSYBOX, root / "bin" / "busybox")
    shutil.copytree(_IMAGE / "modules", root / "modules")
    shutil.copy(_HERE / "init", root / "init")
    (root / "init").chmod(0o755)
    if job is None:
        subprocess.run(["gcc", "-static", "-O1", "-o", root / "echo", _HERE / "echo.c"], check=True)
    else:
        (root / "job").write_text(job)
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


def _command(initrd: Path, words: str, *devices: str, memory: int) -> list[str]:
    return [
        _QEMU, "-M", "q35", "-accel", "tcg", "-cpu", "max", "-smp", "1", "-m", str(memory), "-nographic", "-no-reboot",
        "-nic", "none", "-kernel", str(_IMAGE / "vmlinuz"), "-initrd", str(initrd),
        "-append", f"console=ttyS0 quiet panic=-1 {words}", *devices,
    ]  # fmt: skip


def run(folder: Path, job: str, seconds: float) -> tuple[int, str]:
    """Boot, have a shell do the job among the host's files, and return its status and what it printed."""
    files = "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap"
    command = _command(_build(folder, job), "", "-virtfs", files, memory=512)
    log = folder / "console"
    with log.open("wb") as console:
        subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=console, stderr=console, timeout=seconds, check=True
        )
    printed = log.read_text(errors="replace").replace("\r", "")
    found = re.search(r"^status (\d+)$", printed, re.MULTILINE)
    assert found is not None, printed
    return int(found[1]), printed


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def guest(folder: Path, encap: int) -> Iterator[int]:
    """Boot; give the UDP port that leads to the guest, whose own packets go to ``encap``."""
    port, log = _free_port(), folder / "console"
    network = f"user,id=n0,hostfwd=udp:127.0.0.1:{port}-10.0.2.15:9899"
    command = _command(
        _build(folder, None),
        f"encap={encap}",
        *("-netdev", network, "-device", "virtio-net-pci,netdev=n0"),
        memory=256,
    )
    with log.open("wb") as console:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=console, stderr=console)
    try:
        deadline = time.monotonic() + _PATIENCE
        while b"listening" not in log.read_bytes():
            assert process.poll() is None, log.read_text(errors="replace")
            assert time.monotonic() < deadline, log.read_text(errors="replace")
            time.sleep(0.05)
        yield port
    finally:
        process.kill()
        process.wait()
