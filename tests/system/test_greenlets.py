"""A process in which gevent or eventlet has replaced threads: a kernel says so, instead of never running."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from kernel import Kernel
from kernel.contracts.errors import KernelError

# The names of the real ones: gevent 26.9 and eventlet 0.41.
PATCHERS = {
    "gevent": ("gevent.monkey", "is_module_patched", "threading"),
    "eventlet": ("eventlet.patcher", "is_monkey_patched", "thread"),
}


@pytest.mark.parametrize("library", PATCHERS)
def test_a_kernel_is_not_started_on_greenlets(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, question, what = PATCHERS[library]
    monkeypatch.setitem(sys.modules, module, SimpleNamespace(**{question: lambda name: name == what}))
    kernel = Kernel()
    with pytest.raises(KernelError, match=f"{library} has replaced the threads"):
        kernel.start()


@pytest.mark.parametrize("library", PATCHERS)
def test_what_is_imported_only_is_not_in_the_way(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, question, _ = PATCHERS[library]
    monkeypatch.setitem(sys.modules, module, SimpleNamespace(**{question: lambda name: name == "ssl"}))
    with Kernel():
        pass
