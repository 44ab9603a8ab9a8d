"""A class-data archive for the JVM that Penstock starts: half of Spark's start is reading and verifying its classes.

`penstock warm` runs a query in a JVM that writes an archive of the classes it has loaded as it exits; later JVMs map
it. Java itself checks that an archive fits its version and class path and ignores it otherwise, so a wrong one costs
time, never correctness. A process that has run without an archive starts `penstock warm` in the background as it ends
(`jvm.py`): recording while a user waits takes more processor time than the archive saves. Measured on two cores, with
all Python of the run: 6.9 s with the archive, 10.5 s without, 15.5 s while it is recorded and 10 s after the result.

The archive (some 170 MB) is in the user's cache folder. PENSTOCK_CACHE names another folder; empty, it disables the
archive.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

#: Seconds for which an incomplete file is taken to be still being written, so that no other process writes one.
_WRITING = 1800
_UNFINISHED = ".new"
_QUIET = ("-Xlog:disable", "-Xlog:all=error:stderr")


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return the folder for files that Penstock can recreate; None where caching is disabled."""
    configured = environ.get("PENSTOCK_CACHE")
    if configured is not None:
        return Path(configured) if configured else None
    base = environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "penstock"


def archive_options(java_home: Path, folder: Path | None, now: float | None = None) -> list[str]:
    """Return JVM options that map the archive; no options where there is none."""
    archive = _archive(java_home, folder, time.time() if now is None else now)
    if archive is None or not archive.exists():
        return []
    return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", *_QUIET]


def writing_options(java_home: Path, folder: Path | None) -> list[str]:
    """Return JVM options that write the archive at exit; no options without a writable folder."""
    archive = _archive(java_home, folder, time.time())
    return [] if archive is None else [f"-XX:ArchiveClassesAtExit={archive.with_suffix(_UNFINISHED)}", *_QUIET]


def claim(java_home: Path, folder: Path | None) -> bool:
    """Return whether there is no archive and no process that writes one; this one has claimed to then."""
    archive = _archive(java_home, folder, time.time())
    if archive is None or archive.exists():
        return False
    with suppress(OSError):
        archive.with_suffix(_UNFINISHED).touch(exist_ok=False)
        return True
    return False


def _archive(java_home: Path, folder: Path | None, now: float) -> Path | None:
    """Return the place of the archive, None without a writable folder. One that has been written gets its name, and one
    whose writer has ended is removed.
    """
    # Spaces would need quoting on the way through Spark's launcher.
    if folder is None or any(c.isspace() for c in str(folder)):
        return None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        archive = folder / f"spark-{_name(java_home)}.jsa"
        unfinished = archive.with_suffix(_UNFINISHED)
        if unfinished.exists():
            # The JVM writes the head of the file last: without it, writing was interrupted or is in progress.
            with unfinished.open("rb") as file:
                is_complete = file.read(4) not in (b"", b"\0\0\0\0")
            if is_complete:
                unfinished.replace(archive)
            elif now - unfinished.stat().st_mtime > _WRITING:
                unfinished.unlink()
    except OSError:
        return None
    return archive


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
