"""Two kernels in one process, connected by real sockets."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trustme

from kernel.testing.fixtures import kernel_factory
from kernel.topology.plan import EnginePlan
from kernel.topology.system import Kernel
from tests.plans import route

__all__ = ["kernel_factory", "route"]

FAST = {"first": 0.01, "most": 0.05}
"""Reconnection that tests do not have to wait for."""


def listener(name: str = "net", address: str = "backend+tcp://127.0.0.1:0", **options: Any) -> EnginePlan:
    return EnginePlan(name=name, kind="stream", options={"address": address, "mode": "listen", **options})


def dialler(address: str, name: str = "net", **options: Any) -> EnginePlan:
    return EnginePlan(name=name, kind="stream", options={"address": address, "reconnect": FAST, **options})


@contextmanager
def held_up(kernel: Kernel) -> Iterator[None]:
    """Meanwhile the kernel's threads do nothing; afterwards they find at once what they have missed."""
    over = threading.Event()
    for thread in kernel._threads():
        begun = threading.Event()
        thread.mailbox.post(partial(_hold, begun, over))
        assert begun.wait(60)
    try:
        yield
    finally:
        over.set()


def _hold(begun: threading.Event, over: threading.Event) -> None:
    begun.set()
    over.wait(60)


class Transport:
    """How two kernels reach each other."""

    def __init__(self, kind: str, folder: Path, listens: dict[str, Any], dials: dict[str, Any]) -> None:
        self.kind = kind
        self._folder = folder
        self._listens = listens
        self._dials = dials
        self._path = "/feed" if kind in ("ws", "wss") else ""

    def listener(self, **options: Any) -> EnginePlan:
        place = f"{self._folder}/s" if self.kind == "unix" else f"127.0.0.1:0{self._path}"
        return listener(address=f"backend+{self.kind}://{place}", **self._listens, **options)

    def dialler(self, server: Kernel, **options: Any) -> EnginePlan:
        return dialler(**self.dials_to(server), **options)

    def dialler_to(self, address: str) -> EnginePlan:
        return dialler(address, **self._dials)

    def listens(self) -> dict[str, Any]:
        """The options of a listener."""
        return self.listener().options

    def dials_to(self, server: Kernel) -> dict[str, Any]:
        """The options that lead to the listener of a kernel."""
        return {"address": f"backend+{self.kind}://{server.address_of('net')}{self._path}", **self._dials}


class Certificates:
    """Files of a certificate authority, a server and a client."""

    def __init__(self, folder: Path) -> None:
        authority = trustme.CA()
        self.authorities = str(folder / "ca.pem")
        authority.cert_pem.write_to_path(self.authorities)
        self.server = self._issue(authority, folder / "server.pem", "127.0.0.1")
        self.client = self._issue(authority, folder / "client.pem", "client.example")
        self.stranger = self._issue(trustme.CA(), folder / "stranger.pem", "127.0.0.1")

    def _issue(self, authority: trustme.CA, path: Path, name: str) -> str:
        authority.issue_cert(name).private_key_and_cert_chain_pem.write_to_path(str(path))
        return str(path)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(params=["tcp", "unix", "tls", "ws", "wss"])
def transport(request: pytest.FixtureRequest, tmp_path: Path) -> Transport:
    listens: dict[str, Any] = {}
    dials: dict[str, Any] = {}
    if request.param in ("tls", "wss"):
        files: Certificates = request.getfixturevalue("certificates")
        trust = {"authorities": files.authorities}
        listens = {"tls": {"certificate": files.server, "require_client_certificate": True, **trust}}
        dials = {"tls": {"certificate": files.client, **trust}}
    return Transport(request.param, tmp_path, listens, dials)
