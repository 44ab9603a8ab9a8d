"""The state of a live engine between two rounds."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

import pyarrow as pa

from penstock.algebra.nodes.scans import Source
from penstock.physical.decisions import NO_DECISIONS, Decisions
from penstock.physical.execution.marks import ExecutorSnapshot
from penstock.physical.execution.progress import SourceProgress
from penstock.physical.plan.identity import step_keys
from penstock.physical.plan.plan import Plan
from penstock.physical.plan.strategies import Strategy
from penstock.physical.planning.planner import Generation, plan_part
from penstock.physical.planning.sharing import Beginning
from penstock.runtime.decisions.deciders import NO_OPTIONS, DecidingOptions
from penstock.runtime.live.history import History
from penstock.runtime.live.results import LiveResult
from penstock.runtime.monitoring.recorder import CountsAtIngest


@dataclass(frozen=True)
class LiveSnapshot:
    """The state of an engine between two rounds, from which another process can continue; it can be pickled.

    Args:
        reached: by query that goes on in later rounds, the instant up to which it has answered.
    """

    shards: int
    strategy: Strategy
    version: int
    generations: dict[int, Generation]
    stages: list[list[ExecutorSnapshot]]
    histories: dict[str, History]
    progress: dict[str, SourceProgress]
    relations: dict[Source, pa.Table]
    set_apart: dict[str, Counter[str]]
    results: dict[str, LiveResult]
    beginnings: dict[int, Beginning]
    merges: dict[str, str]
    rounds: int = 0
    decided: Decisions = NO_DECISIONS
    deciding: DecidingOptions = NO_OPTIONS
    at_ingest: CountsAtIngest | None = None
    reached: dict[str, int] = field(default_factory=dict)

    def without_unplanned(self) -> tuple[LiveSnapshot, dict[str, Exception]]:
        """Return the snapshot with those queries paused that this program cannot plan, and the errors by the
        names of their results. None are found where the others take their input from a step of these."""
        errors: dict[int, Exception] = {}
        parts: dict[int, Plan] = {}
        for birth, generation in self.generations.items():
            try:
                parts[birth] = plan_part(generation, self.strategy).plan
            except Exception as error:
                errors[birth] = error
        left = {key for part in parts.values() for key in step_keys(part).values()}
        if any(key in left and other not in left for key, other in self.merges.items()):
            return self, {}
        results, names = dict(self.results), dict[str, Exception]()
        for name, result in self.results.items():
            if result.track is not None and result.track.birth in errors:
                names[name] = errors[result.track.birth]
                results[name] = result.copy()
                results[name].pause()
        generations = {birth: one for birth, one in self.generations.items() if birth in parts}
        beginnings = {birth: one for birth, one in self.beginnings.items() if birth in parts}
        merges = {key: other for key, other in self.merges.items() if key in left}
        kept = replace(self, generations=generations, results=results, beginnings=beginnings, merges=merges)
        return kept, names
