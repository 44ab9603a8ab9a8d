"""What a run takes and tells over time: memory and processor time of its processes, state, files; and whether flat.

Memory is judged over the longest life of a driver, without the first quarter of it, in which caches fill: the median
of its last quarter against that of its second. State is judged over the whole soak in the same way.
"""

from __future__ import annotations

import json
import os
import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.processes import Process, process_bytes, tree

#: What a part of memory may have more in the last quarter than in the second: this share and this many bytes.
TOLERANCE, ALLOWANCE = 0.10, 48 * 2**20
#: State follows what the windows hold, and a stream that is caught up is less steady than memory.
STATE_TOLERANCE, STATE_ALLOWANCE = 0.25, 2**20
#: A life shorter than this tells nothing of growth.
SHORTEST_SECONDS = 240.0

#: heap: what the JVM's objects took after its last collection, which its size tells late or never.
PARTS = ("driver", "jvm", "heap", "workers")
DAEMON = "pyspark.worker"
_AFTER = re.compile(rb"->(\d+)M\(")


@dataclass(frozen=True)
class Sample:
    """life: the how manieth driver; memory: by part; state, files: of the checkpoint."""

    at: float
    life: int
    memory: dict[str, int]
    state_bytes: int
    state_rows: int
    files: int


class Processors:
    """Processor time of process trees, those that are gone too."""

    def __init__(self) -> None:
        self._ticks: dict[tuple[int, int], int] = {}

    def see(self, processes: Sequence[Process]) -> None:
        for process in processes:
            self._ticks[process.pid, process.began] = process.ticks

    @property
    def seconds(self) -> float:
        return sum(self._ticks.values()) / os.sysconf("SC_CLK_TCK")


def memory(processes: Sequence[Process], root: int) -> dict[str, int]:
    found = dict.fromkeys(PARTS, 0)
    for process in processes:
        part = "driver" if process.pid == root else "jvm" if process.name == "java" else "workers"
        found[part] += process_bytes(process.pid)
    return found


def heap(folder: Path) -> int:
    """Bytes of the JVM's heap after the last collection that the newest log in `folder` tells; 0 before the first."""
    logs = sorted(folder.glob("gc-*.log"), key=lambda place: place.stat().st_mtime_ns)
    if not logs:
        return 0
    with logs[-1].open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
        told = _AFTER.findall(file.read())
    return int(told[-1]) * 2**20 if told else 0


def workers(root: int) -> list[int]:
    """Spark's Python workers below `root`: what its daemons have forked."""
    processes = tree(root)
    daemons = {process.pid for process in processes if DAEMON in process.command}
    return [p.pid for p in processes if p.parent in daemons]


class Told:
    """The lines that a run adds to its file of metrics."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._read = 0
        self._rest = b""
        self.last: dict[str, Any] = {}
        self.batches: list[float] = []

    def look(self) -> None:
        if not self._place.exists():
            return
        with self._place.open("rb") as file:
            file.seek(self._read)
            data = self._rest + file.read()
            self._read = file.tell()
        *lines, self._rest = data.split(b"\n")
        for line in lines:
            try:
                self.last = json.loads(line)
            except ValueError:
                continue  # one that a kill has cut off, and the next start goes on behind
            self.batches.append(self.last["last_seconds"])

    @property
    def rows(self) -> int:
        """Records of the stream that have been read."""
        return int(self.last["sources"]["s"]["rows"]) if self.last else 0


def files_below(folder: Path) -> int:
    """Files of a checkpoint, without those that keep records."""
    return sum(len(names) for place, _, names in os.walk(folder) if "dead-letters" not in place)


def quarters(samples: Sequence[Sample]) -> list[list[Sample]]:
    begin, end = samples[0].at, samples[-1].at
    found: list[list[Sample]] = [[], [], [], []]
    for sample in samples:
        found[min(3, int(4 * (sample.at - begin) / max(end - begin, 1e-9)))].append(sample)
    return found


def longest_life(samples: Sequence[Sample]) -> list[Sample]:
    lives: dict[int, list[Sample]] = {}
    for sample in samples:
        lives.setdefault(sample.life, []).append(sample)
    return max(lives.values(), key=lambda life: life[-1].at - life[0].at)


def growth(samples: Sequence[Sample]) -> list[str]:
    """In words, what has grown. Nothing where no driver has lived for long enough to tell."""
    life = longest_life(samples)
    found: list[str] = []
    if life[-1].at - life[0].at >= SHORTEST_SECONDS:
        for part in PARTS:
            found += _grown(f"memory of the {part}", life, lambda s, p=part: s.memory[p], TOLERANCE, ALLOWANCE)
    if samples[-1].at - samples[0].at >= SHORTEST_SECONDS:
        found += _grown("state", samples, lambda s: s.state_bytes, STATE_TOLERANCE, STATE_ALLOWANCE)
    return found


def _grown(
    what: str, samples: Sequence[Sample], value: Callable[[Sample], int], tolerance: float, allowance: int
) -> list[str]:
    _, second, _, last = ([value(s) for s in quarter] for quarter in quarters(samples))
    if not second or not last:
        return []
    before, after = statistics.median(second), statistics.median(last)
    if after <= before * (1 + tolerance) + allowance:
        return []
    return [f"{what} has grown from {before / 2**20:,.0f} MB to {after / 2**20:,.0f} MB"]
