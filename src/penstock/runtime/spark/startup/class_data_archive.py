"""A class-data archive for the JVM that Penstock starts: half of Spark's start is reading and verifying its classes.

The first JVM writes, as it exits, an archive of the classes it has loaded; later ones map it. Java itself checks that
an archive fits its version and class path and ignores it otherwise, so a wrong one costs time, never correctness.
Measured on two cores: up to the first result of a small query the JVM takes 6.2 s of processor time instead of 13.4 s.

The archive (some 170 MB) is in the user's cache folder. PENSTOCK_CACHE names another folder; empty, it disables the
archive.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import time
from collections.abc import Mapping
from pathlib import Path

#: Seconds for which an incomplete file is taken to be still being written, so that no other process writes one.
_WRITING = 300


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return the folder for files that Penstock can recreate; None where caching is disabled."""
    configured = environ.get("PENSTOCK_CACHE")
    if configured is not None:
        return Path(configured) if configured else None
    base = environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "penstock"


def archive_options(java_home: Path, folder: Path | None, now: float | None = None) -> list[str]:
    """Return JVM options that map the archive, or that write it at exit when there is none; no options without a
    writable folder.
    """
    if folder is None:
        return []
    # Spaces would need quoting on the way through Spark's launcher.
    if any(c.isspace() for c in str(folder)):
        return []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return _options(folder / f"spark-{_name(java_home)}.jsa", time.time() if now is None else now)
    except OSError:
        return []


def _options(archive: Path, now: float) -> list[str]:
    unfinished = archive.with_suffix(".new")
    if unfinished.exists():
        # The JVM writes the head of the file last: without it, writing was interrupted or is in progress.
        with unfinished.open("rb") as file:
            is_complete = file.read(4) not in (b"", b"\0\0\0\0")
        if is_complete:
            unfinished.replace(archive)
        elif now - unfinished.stat().st_mtime > _WRITING:
            unfinished.unlink()
    if archive.exists():
        return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", "-Xlog:disable", "-Xlog:all=error:stderr"]
    if unfinished.exists():
        return []
    return [f"-XX:ArchiveClassesAtExit={unfinished}", "-Xlog:disable", "-Xlog:all=error:stderr"]


def spark_home() -> Path:
    """Return the home of the Spark that SPARK_HOME names, or of pyspark's, without importing pyspark."""
    if configured := os.environ.get("SPARK_HOME"):
        return Path(configured)
    spec = importlib.util.find_spec("pyspark")
    return Path(((spec and spec.submodule_search_locations) or [""])[0])


def _name(java_home: Path) -> str:
    """Return a name derived from what the archive depends on: Java, and Spark's jars."""
    java = (java_home / "bin" / "java").resolve()
    jars = spark_home() / "jars"
    identity = f"{java} {java.stat().st_mtime_ns} {jars} {jars.stat().st_mtime_ns if jars.exists() else ''}"
    return hashlib.blake2b(identity.encode(), digest_size=8).hexdigest()
