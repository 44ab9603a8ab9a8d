"""Jars from Maven Central for tests, by the Ivy that PySpark brings along: once per machine into the user's cache, and
compared with digests that are kept beside the tests."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path


class NoJars(Exception):
    """Why there are no jars here."""


def java() -> str:
    """Return the program. Raises NoJars."""
    from penstock.runtime.java import find_java

    home = find_java()
    if home is None:
        raise NoJars("no Java 17 or newer")
    return str(home / "bin" / "java")


def jars(organisation: str, artifact: str, version: str, locked: Path) -> Path:
    """Return the folder of an artifact's jar and of those it needs, fetched if need be.

    Args:
        locked: a file with a line for each jar: its SHA-256 and its name. Others are left out.

    Raises:
        NoJars: where they cannot be had, or are other ones.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    place = cache / "penstock" / f"{artifact.partition('_')[0]}-{version}"
    if not place.exists():
        _fetch(place, (organisation, artifact, version), locked)
    return place


def _fetch(place: Path, what: tuple[str, str, str], locked: Path) -> None:
    import pyspark

    known = [line.split() for line in locked.read_text().splitlines()]
    place.parent.mkdir(parents=True, exist_ok=True)
    ivy = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    with tempfile.TemporaryDirectory(dir=place.parent) as temporary:
        found = Path(temporary) / "jars"
        command = [java(), "-jar", str(ivy), "-cache", f"{temporary}/ivy", "-confs", "default"]
        command += ["-dependency", *what, "-types", "jar", "bundle"]
        command += ["-retrieve", f"{found}/[artifact]-[revision].[ext]"]
        said = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
        wrong = [name for digest, name in known if _digest(found / name) != digest]
        if said.returncode or wrong:
            last = (said.stdout + said.stderr).strip().splitlines()[-1:]
            raise NoJars(f"the jars of {what[1]} cannot be had from Maven Central: {wrong[:3]} {last}")
        for path in found.iterdir():
            if path.name not in {name for _, name in known}:
                path.unlink()
        try:
            found.rename(place)
        except OSError:
            assert place.exists()  # another process was quicker


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""
