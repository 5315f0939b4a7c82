"""How the JVMs of the tests are started: each lives for seconds only."""

from __future__ import annotations

import os

SHORT_LIVED = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""Environment variables for a JVM: the simple compiler and collector."""


def start_quickly() -> None:
    """Have the JVMs of all child processes start so, unless the environment says something else."""
    for name, value in SHORT_LIVED.items():
        os.environ.setdefault(name, value)
