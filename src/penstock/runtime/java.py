"""Find the Java that Spark runs on.

Contract: imports only the standard library and `penstock.errors`, so that the set-up script can call it before pyspark
is installed. A Java qualifies when it starts, is version 17 or newer, and has the module that Spark 4.3 requires (the
small runtimes on PyPI lack it). The user's choice comes first: JAVA_HOME, then PATH, then the usual folders, oldest
version first, because Spark is tested with that one.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from penstock.errors import PenstockError

MINIMUM = 17
APT_PACKAGE = "openjdk-17-jre-headless"
_MACOS = platform.system() == "Darwin"
_MODULE = "jdk.incubator.vector"
_FOLDERS = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/usr/local/java/*",
    "/usr/local/openjdk-*",
    "/opt/java/*",
    "/opt/jdk*",
    "/opt/openjdk*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "/opt/homebrew/opt/openjdk*",
    "/usr/local/opt/openjdk*",
)
_HOME_FOLDERS = (".sdkman/candidates/java/*", ".jdks/*", "Library/Java/JavaVirtualMachines/*/Contents/Home")


def java_version(home: Path) -> int | None:
    """Return the major version of the Java in `home`, or None when it does not start or lacks Spark's module."""
    java = home / "bin" / "java"
    if not java.is_file():
        return None
    released = _released_version(home)
    if released is not None:
        return released
    try:
        answer = subprocess.run(
            [str(java), f"--add-modules={_MODULE}", "-version"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(\d+)', answer.stderr + answer.stdout)
    return int(match[1]) if match and answer.returncode == 0 else None


def _released_version(home: Path) -> int | None:
    """Return the major version in the Java's own `release` file if that file lists Spark's module, else None. Reading
    it is quicker than starting the Java.
    """
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    version = re.search(r'^JAVA_VERSION="(\d+)', text, re.MULTILINE)
    modules = re.search(r'^MODULES="([^"]*)"', text, re.MULTILINE)
    return int(version[1]) if version and modules and _MODULE in modules[1].split() else None


def find_java(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return the home folder (the value for JAVA_HOME) of a Java that Spark can use, or None."""
    for home in _chosen(environ):
        if _fits(java_version(home)):
            return home
    versions = {home: java_version(home) for home in _installed()}
    fitting = sorted(
        (version, str(home)) for home, version in versions.items() if version is not None and _fits(version)
    )
    return Path(fitting[0][1]) if fitting else None


def require_java(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the home folder as `find_java` does.

    Raises:
        PenstockError: P0603 when there is none; its hint names what to install.
    """
    home = find_java(environ)
    if home is not None:
        return home
    java_home = environ.get("JAVA_HOME")
    java_home_text = f" (JAVA_HOME is {java_home})" if java_home else ""
    raise PenstockError(
        "P0603", f"Spark needs Java {MINIMUM} or newer, and none was found{java_home_text}", hint=_advice()
    )


def _fits(version: int | None) -> bool:
    return version is not None and version >= MINIMUM


def _chosen(environ: Mapping[str, str]) -> Iterator[Path]:
    if environ.get("JAVA_HOME"):
        yield Path(environ["JAVA_HOME"])
    java = shutil.which("java", path=environ.get("PATH"))
    if java and not _is_apple_stub(java):
        yield Path(java).resolve().parent.parent


def _is_apple_stub(java: str) -> bool:
    # Every macOS has a /usr/bin/java that only opens a dialog.
    return _MACOS and java == "/usr/bin/java"


def _installed() -> Iterator[Path]:
    patterns = [*_FOLDERS, *(str(Path.home() / folder) for folder in _HOME_FOLDERS)]
    seen: set[Path] = set()
    for pattern in patterns:
        for home in sorted(Path("/").glob(pattern.lstrip("/"))):
            if home.resolve() not in seen:
                seen.add(home.resolve())
                yield home
    yield from _apple_java_home()


def _apple_java_home() -> Iterator[Path]:
    tool = Path("/usr/libexec/java_home")
    if _MACOS and tool.is_file():
        answer = subprocess.run([str(tool), "-v", f"{MINIMUM}+"], capture_output=True, text=True, check=False)
        if answer.returncode == 0:
            yield Path(answer.stdout.strip())


def _advice() -> str:
    if _MACOS:
        return "install one with `brew install openjdk@17`, or set JAVA_HOME"
    return f"install one with `apt-get install {APT_PACKAGE}`, or set JAVA_HOME"


if __name__ == "__main__":
    try:
        print(require_java())
    except PenstockError as error:
        sys.exit(error.render())
