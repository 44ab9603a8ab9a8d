"""Processes of Penstock that need not be started: the command, and the one that computes one-time queries of a server.

Such a process takes 1.9 s of CPU before it does anything: Python starts, imports, and reads compiled loops. Here one
process per test process has done all that (`ready.py`) and forks for every other; what stands in place of the command
(`command.py`) passes its arguments, folder, environment and open files to it, signals too, and ends as it ends: 0.2 s
for a query. Tests of what is imported start Python themselves.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

HERE = Path(__file__).resolve().parent


def penstock() -> tuple[str, ...]:
    """Return the words to call in place of `penstock`."""
    return _call("penstock")


def select_process() -> tuple[str, ...]:
    """Return the words to call in place of `python -m penstock.results.select_process`."""
    return _call("penstock.results.select_process")


def _call(module: str) -> tuple[str, ...]:
    if not hasattr(os, "pidfd_open"):  # elsewhere than on Linux nothing says at once that a child has ended
        return sys.executable, "-m", module
    return (*_ready(), module)


@cache
def _ready() -> tuple[str, ...]:
    """Start the process that is ready; return the words behind which a module and its arguments are called."""
    folder = tempfile.TemporaryDirectory(prefix="penstock-ready-")
    path = f"{folder.name}/socket"
    call = [sys.executable, str(HERE / "ready.py"), path]
    process = subprocess.Popen(call, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def end() -> None:
        process.communicate()
        folder.cleanup()

    atexit.register(end)
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    return sys.executable, "-I", "-S", str(HERE / "command.py"), path
