"""A kernel with a broker and pages, and a client for them."""

from __future__ import annotations

import http.client
import json
from base64 import b64encode
from typing import Any, NamedTuple

from kernel.testing.fixtures import KernelFactory
from kernel.topology.plan import EnginePlan, ThreadPlan
from kernel.topology.system import Kernel

TIMEOUT = 30.0
USERS: dict[str, Any] = {
    "guest": {"password": "guest", "tags": ["administrator"], "from_anywhere": False},
    "watcher": {"password": "pa:ss", "tags": ["monitoring"]},
    "worker": {"password": "guest", "tags": ["management"]},
}
THREADS = (ThreadPlan(name="brokers"), ThreadPlan(name="web"))


class Got(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    def json(self) -> Any:
        assert self.headers["content-type"] == "application/json"
        return json.loads(self.body)


def broker(**options: Any) -> EnginePlan:
    options = {"address": "127.0.0.1:0", "users": USERS, **options}
    return EnginePlan(name="broker", kind="amqp", thread="brokers", options=options)


def web(**options: Any) -> EnginePlan:
    return EnginePlan(name="web", kind="web", thread="web", options={"address": "127.0.0.1:0", **options})


def watched(kernel_factory: KernelFactory, **options: Any) -> Kernel:
    """A broker with queues, and pages for which its users have to log in."""
    return kernel_factory(*THREADS, broker(**options), web(broker="broker"))


def get(
    kernel: Kernel, path: str, login: str = "", method: str = "GET", body: str | None = None, **headers: str
) -> Got:
    if login:
        headers["Authorization"] = "Basic " + b64encode(login.encode()).decode()
    host, port = kernel.address_of("web").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=TIMEOUT)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return Got(answer.status, answer.headers, answer.read())
    finally:
        connection.close()
