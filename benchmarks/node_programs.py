"""Programs for Node: a process that speaks lines of JSON, and ends when its standard input does."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Self

from benchmarks.scenario import Unavailable


class NodeProgram:
    """A program with a library.  Leaving the ``with`` block waits for its end."""

    def __init__(self, script: Path, library: str, *arguments: str) -> None:
        """``library``: its folder in ``node_modules``."""
        command, folder = shutil.which("node"), Path(library)
        if command is None or not folder.is_dir():
            raise Unavailable(f"{folder.name} for node is not installed: make peers (root)")
        self._name = folder.name
        self._process = subprocess.Popen(
            [command, str(script), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "NODE_PATH": str(folder.parent)},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.__exit__(None, None, None)

    def heard(self) -> Any:
        """Return the next line that it says."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise Unavailable(f"{self._name}: node ended with status {self._process.wait()}")
        said = json.loads(line)
        return tuple(said) if isinstance(said, list) else said

    def say(self) -> None:
        """Have it go on."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
