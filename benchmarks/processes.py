"""Runs one side of the bench in a process of its own and watches what memory its process tree takes."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

KILLED = -9
_EVERY_SECONDS = 0.5


@dataclass(frozen=True)
class Outcome:
    """seconds: from the process's start to its end; peak_bytes: of the whole tree, shared pages counted once;
    output: what it printed, for the case that it failed; cpu_seconds: of the whole tree, as each process
    was last seen."""

    code: int
    seconds: float
    peak_bytes: int
    output: str
    cpu_seconds: float = 0.0


def run(command: list[str], folder: Path, log: Path, timeout: float) -> Outcome:
    """Runs `command`; after `timeout` seconds the process group is killed and the code is KILLED."""
    peak = [0]
    ticks: dict[tuple[int, int], int] = {}
    done = threading.Event()
    began = time.perf_counter()
    with log.open("w+") as output:
        process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
        watcher = threading.Thread(target=_watch, args=(process.pid, peak, ticks, done), daemon=True)
        watcher.start()
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            code = KILLED
        finally:
            # Of a side that failed, the JVM and the Python workers may still stand.
            _kill_group(process)
            done.set()
            watcher.join()
        seconds = time.perf_counter() - began
        output.seek(0)
        cpu_seconds = sum(ticks.values()) / os.sysconf("SC_CLK_TCK")
        return Outcome(code, seconds, peak[0], output.read(), cpu_seconds)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()


def _watch(root: int, peak: list[int], ticks: dict[tuple[int, int], int], done: threading.Event) -> None:
    """ticks: of processor time, by the number of a process and its begin, as last seen."""
    while not done.wait(_EVERY_SECONDS):
        ticks.update({(process.pid, process.began): process.ticks for process in tree(root)})
        peak[0] = max(peak[0], tree_bytes(root))


@dataclass(frozen=True)
class Process:
    """began: when, in ticks since the machine started, which tells it from another one with its number; ticks: of
    processor time that it took."""

    pid: int
    parent: int
    name: str
    command: str
    began: int
    ticks: int


def tree(root: int) -> list[Process]:
    """The process `root` and all below it (Linux; none elsewhere)."""
    found: dict[int, Process] = {}
    children: dict[int, list[int]] = defaultdict(list)
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            # The name, in brackets, may itself hold blanks and brackets.
            head, _, rest = (entry / "stat").read_text().rpartition(")")
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            fields = rest.split()
            pid, parent = int(entry.name), int(fields[1])
            ticks = int(fields[11]) + int(fields[12])
            found[pid] = Process(pid, parent, head.partition("(")[2], command, int(fields[19]), ticks)
        except (OSError, IndexError, ValueError):
            continue
        children[parent].append(pid)
    below, waiting = [], [root]
    while waiting:
        process = waiting.pop()
        waiting += children[process]
        below += [found[process]] if process in found else []
    return below


def tree_bytes(root: int) -> int:
    """Memory of `root` and all below it, in bytes (Linux; 0 elsewhere)."""
    return sum(process_bytes(process.pid) for process in tree(root))


def process_bytes(pid: int) -> int:
    # Workers are forked and share files in memory: Pss divides such a page among those who hold it.
    for name, field in (("smaps_rollup", "Pss:"), ("status", "VmRSS:")):
        try:
            for line in (Path("/proc") / str(pid) / name).read_text().splitlines():
                if line.startswith(field):
                    return int(line.split()[1]) * 1024
        except OSError:
            continue
    return 0
