"""What the import contracts in pyproject.toml cannot see: what a module really pulls in when it is imported."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
import warnings

import pytest

import kernel
import plugins


def modules_below(package: str, path: list[str]) -> list[str]:
    return [
        module.name for module in pkgutil.walk_packages(path, f"{package}.") if "__main__" not in module.name
    ]


def imported_by(*names: str) -> set[str]:
    code = f"import sys\nfor name in {names!r}: __import__(name)\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_the_kernel_alone_imports_next_to_nothing() -> None:
    assert imported_by("kernel").isdisjoint({"trio", "msgspec", "click", "rich", "socket", "asyncio"})


@pytest.mark.parametrize("package", ["kernel.contracts", "plugins.protocols"])
def test_contracts_and_protocols_pull_in_no_loop_and_no_socket(package: str) -> None:
    path = (kernel if package.startswith("kernel") else plugins).__path__
    names = [
        name for name in modules_below(package.partition(".")[0], list(path)) if name.startswith(package)
    ]
    assert names
    assert imported_by(*names).isdisjoint({"trio", "socket", "ssl", "asyncio", "subprocess"})


@pytest.mark.parametrize("package", ["kernel", "plugins"])
def test_every_module_can_be_imported_without_a_warning(package: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names = modules_below(package, list((kernel if package == "kernel" else plugins).__path__))
    imported_by(*names)
