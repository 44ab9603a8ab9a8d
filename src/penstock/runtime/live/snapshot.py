"""The state of a live engine between two rounds."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.algebra.nodes.scans import Source
from penstock.physical.execution.decisions import NO_DECISIONS, Decisions
from penstock.physical.execution.marks import ExecutorSnapshot
from penstock.physical.execution.progress import SourceProgress
from penstock.physical.planning.planner import Generation
from penstock.physical.planning.sharing import Beginning
from penstock.physical.planning.strategies import Strategy
from penstock.runtime.deciding.deciders import NO_OPTIONS, DecidingOptions
from penstock.runtime.live.history import History
from penstock.runtime.live.results import LiveResult
from penstock.runtime.watching.recorder import CountsAtIngest


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
    relations: dict[str, tuple[Source, pa.Table]]
    set_apart: dict[str, Counter[str]]
    results: dict[str, LiveResult]
    beginnings: dict[int, Beginning]
    merges: dict[str, str]
    rounds: int = 0
    decided: Decisions = NO_DECISIONS
    deciding: DecidingOptions = NO_OPTIONS
    at_ingest: CountsAtIngest | None = None
    reached: dict[str, int] = field(default_factory=dict)
