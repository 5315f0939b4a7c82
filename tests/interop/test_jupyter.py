"""A notebook's cells with jupyter_client and ipykernel, unmodified, on our backend for pyzmq in client and kernel."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.peers import PROGRAMS_PYTHON

pytestmark = [pytest.mark.peer("programs"), pytest.mark.slow, pytest.mark.timeout(250)]

CLIENT = """
import os
import sys
from jupyter_client.manager import KernelManager

manager = KernelManager()
manager.start_kernel(env=dict(os.environ))
client = manager.client()
client.start_channels()

def show(message):
    content = message["content"]
    if message["msg_type"] in ("stream", "execute_result", "error"):
        print(content.get("text") or content.get("evalue") or content["data"]["text/plain"], end="")

def run(cell):
    reply = client.execute_interactive(
        cell, output_hook=show, stdin_hook=lambda _: client.input("anna"), allow_stdin=True, timeout=60
    )
    print("", reply["content"]["status"])

try:
    client.wait_for_ready(timeout=60)
    run("x = 6 * 7\\nprint(x)")
    run("import sys; 'zmq.backend.cython._zmq' in sys.modules")
    run("1 / 0")
    run("input('name? ')")
    client.execute("print('sleeping', flush=True); import time; time.sleep(600)")
    while client.get_iopub_msg(timeout=60)["msg_type"] != "stream":
        pass
    manager.interrupt_kernel()
    print(client.get_shell_msg(timeout=60)["content"]["ename"])
    manager.restart_kernel()
    client.wait_for_ready(timeout=60)
    run("x")
finally:
    client.stop_channels()
    manager.shutdown_kernel()
    manager.cleanup_resources()
print('zmq.backend.cython._zmq' in sys.modules)
"""


def test_cells_run() -> None:
    environment = os.environ | {
        "PYZMQ_BACKEND": "plugins.apis.sockets.pyzmq_backend",
        "JUPYTER_PLATFORM_DIRS": "1",
    }
    done = subprocess.run(
        [str(PROGRAMS_PYTHON), "-c", CLIENT], env=environment, capture_output=True, text=True, timeout=200
    )
    assert done.stdout.splitlines() == [
        "42",
        " ok",
        "False ok",
        "division by zero error",
        "'anna' ok",
        "KeyboardInterrupt",
        "name 'x' is not defined error",
        "False",
    ], done.stderr
