"""Measure where the time of a batch goes: in tasks, summarized by the driver.

A task measures the phases of its own work, and the phases of a batch share out its duration. Tasks of a stage run in
parallel, so their measurements are not simply added: a stage takes as long as its longest task, or as all its work on
the available cores, whichever is more, and each phase gets its proportion of that. The remainder of the duration is
`spark`: planning, scheduling, moving bytes, committing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")

#: In the order in which a batch passes through them. read: reading and parsing records; ingest: stamping them, and the
#: operators before the first shuffle; exchange: partitioning by shard, packing and unpacking; operators: keyed
#: operators; state: loading it and writing changes; sink: writing results; spark: the remainder.
PHASES = ("read", "ingest", "exchange", "operators", "state", "sink", "spark")
REST = "spark"

Phases = Mapping[str, float]


class Stopwatch:
    """The phases of one task, in seconds. The time of a nested phase is not counted in the outer one."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._inner = [0.0]
        self.seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        start = self._clock()
        self._inner.append(0.0)
        try:
            yield
        finally:
            elapsed = self._clock() - start
            without_inner = elapsed - self._inner.pop()
            self._inner[-1] += elapsed
            self.seconds[name] = self.seconds.get(name, 0.0) + without_inner

    def through(self, name: str, items: Iterable[T]) -> Iterator[T]:
        """Yield the same items, counting the time to get each as phase `name`."""
        iterator = iter(items)
        while True:
            with self.phase(name):
                try:
                    item = next(iterator)
                except StopIteration:
                    return
            yield item


def share_out(duration: float, stages: Iterable[Sequence[Phases]], cores: int, sink: float) -> dict[str, float]:
    """Divide `duration` among all of `PHASES`; the parts add up to it.

    Args:
        stages: the measurements of the tasks of each stage of the batch.
        sink: seconds in which the driver wrote the results.
    """
    shares = dict.fromkeys(PHASES, 0.0)
    shares["sink"] = sink
    for tasks in stages:
        task_seconds = [sum(task.values()) for task in tasks]
        total_seconds = sum(task_seconds)
        if total_seconds > 0:
            stage_seconds = (
                max(*task_seconds, total_seconds / max(1, cores)) if len(task_seconds) > 1 else total_seconds
            )
            for task in tasks:
                for phase, seconds in task.items():
                    shares[phase] += stage_seconds * seconds / total_seconds
    measured = sum(shares.values())
    # The measured sum exceeds the duration where a task waited for a core during its work.
    scale = min(1.0, duration / measured) if measured > 0 else 1.0
    shares = {phase: seconds * scale for phase, seconds in shares.items()}
    shares[REST] = max(0.0, duration - sum(shares.values()))
    return shares
