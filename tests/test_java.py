"""Finding a Java for Spark, with invented ones: shell scripts that answer as `java -version` does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.errors import PenstockError
from penstock.runtime import java

ROOT = Path(__file__).resolve().parents[1]


def install(home: Path, version: str, starts: bool = True) -> Path:
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\nexit {0 if starts else 1}\n")
    program.chmod(0o755)
    return home


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with no Java in the usual folders."""
    monkeypatch.setattr(java, "_FOLDERS", ())
    monkeypatch.setattr(java, "_HOME_FOLDERS", ())
    monkeypatch.setattr(java, "_MACOS", False)


def test_java_home_comes_before_path(bare: None, tmp_path: Path) -> None:
    told, other = install(tmp_path / "told", "21.0.2"), install(tmp_path / "other", "17.0.1")
    assert java.find_java({"JAVA_HOME": str(told), "PATH": str(other / "bin")}) == told
    assert java.find_java({"PATH": str(other / "bin")}) == other


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.20"])
def test_an_old_java_is_passed_over(bare: None, tmp_path: Path, version: str) -> None:
    old, new = install(tmp_path / "old", version), install(tmp_path / "new", "17.0.1")
    assert java.find_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")}) == new


def test_a_java_without_the_module_is_passed_over(bare: None, tmp_path: Path) -> None:
    assert java.find_java({"JAVA_HOME": str(install(tmp_path / "small", "21.0.1", starts=False)), "PATH": ""}) is None


def test_the_oldest_that_fits_among_the_usual_folders(
    bare: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, version in (("a", "25.0.1"), ("b", "17.0.9"), ("c", "11.0.2")):
        install(tmp_path / "jvm" / name, version)
    monkeypatch.setattr(java, "_FOLDERS", (f"{tmp_path}/jvm/*",))
    assert java.find_java({"PATH": ""}) == tmp_path / "jvm" / "b"


def test_no_java_says_what_to_install(bare: None) -> None:
    with pytest.raises(PenstockError) as caught:
        java.require_java({"PATH": "", "JAVA_HOME": "/nowhere"})
    assert caught.value.code == "P0603"
    assert "apt-get install openjdk-17-jre-headless" in caught.value.render()
    assert "/nowhere" in caught.value.render()


def test_it_needs_nothing_but_the_standard_library() -> None:
    """The set-up asks before the dependencies are there: -S leaves the installed packages out."""
    code = "import sys; sys.path.insert(0, 'src'); import penstock.runtime.java"
    subprocess.run([sys.executable, "-S", "-c", code], cwd=ROOT, check=True)
