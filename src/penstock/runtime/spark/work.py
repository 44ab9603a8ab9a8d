"""What a run is to do: its queries, their input, and how they begin."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from pyspark.sql import DataFrame, SparkSession

from penstock.algebra.nodes.query import Query, Start, StartMode
from penstock.algebra.nodes.scans import Source
from penstock.algebra.properties.heartbeats import StreamRecord
from penstock.physical.plan.strategies import Strategy
from penstock.runtime.decisions.deciders import QueryPolicies
from penstock.runtime.monitoring.figures import BatchFigures
from penstock.runtime.spark.checkpoint.planning_cache import PlanningCache
from penstock.runtime.spark.output.emitted_content import ContentReader
from penstock.settings import Settings
from penstock.storage.documents import Document


@dataclass(frozen=True)
class Work:
    """What is to run.

    Args:
        rows: rows of MEMORY sources and heartbeats among them, by source name in lower case.
        frames: DataFrames and Arrow tables by source.
        spark: returns the session, called when it is needed.
        accept_missing: continue results some parts of which are missing.
        live: whether the queries may change while the run goes on.
        standing: whether the run goes on when all its sources have ended; it may have no queries.
        declared: sources that are read although no query may read them; their position moves on.
        heartbeats: by stream that is not posted to, the posts that are heartbeats of it.
        starts: by query, where its answer begins if it begins now; START NOW for the others, BEGINNING with `backfill`.
            A changed query with a start continues the result of the one whose place it takes.
        paused: queries that are left out and whose results stay. One that was left out since it failed stays out until
            a start is given for it.
        silent: queries that run and whose sinks receive nothing; their state stays as if they were shown.
        moved: queries that take over the computation of another one that stands, by name; two of them are exchanged.
        in_step: those of them that do so only where they are not ahead of the query whose place they take.
        contents: reads what the sinks of relations have received, so that their results can continue.
        reset: queries whose results, if they were paused, begin again empty.
        pause_failed: leave a query out that fails, while the others go on; otherwise it ends the run.
        sink_retries: by query, seconds for which a batch is tried again where its sink fails; the setting for others.
        result_limits: by query, bytes of answers that may be computed and not delivered; the setting for others.
        weights: by query; sinks of heavier ones are written first, those left out weigh 1.
        latency_targets: by query, seconds that a batch may take; the settings may have less.
        cache: of planning; a run carries it from change to change.
        command: number of the last command that this contains; a version records it.
        outcomes: of the commands since the version before, by their numbers.
        on_batch: as of a `Reporter`.
    """

    queries: tuple[Query, ...]
    rows: Mapping[str, Sequence[tuple[object, ...] | StreamRecord]]
    frames: Mapping[str, object]
    settings: Settings
    drain: bool
    spark: Callable[[], SparkSession]
    backfill: bool = False
    accept_missing: bool = False
    live: bool = False
    standing: bool = False
    declared: Mapping[str, Source] = field(default_factory=dict)
    heartbeats: Mapping[str, Source] = field(default_factory=dict)
    starts: Mapping[str, Start] = field(default_factory=dict)
    paused: frozenset[str] = frozenset()
    reset: frozenset[str] = frozenset()
    silent: frozenset[str] = frozenset()
    moved: Mapping[str, str] = field(default_factory=dict)
    in_step: frozenset[str] = frozenset()
    contents: ContentReader | None = field(default=None, compare=False, repr=False)
    pause_failed: bool = False
    sink_retries: Mapping[str, float] = field(default_factory=dict)
    result_limits: Mapping[str, int] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    latency_targets: Mapping[str, float] = field(default_factory=dict)
    cache: PlanningCache = field(default_factory=PlanningCache, compare=False, repr=False)
    command: int = 0
    outcomes: Document = field(default_factory=dict)
    on_batch: Callable[[BatchFigures], None] | None = field(default=None, compare=False, repr=False)

    @property
    def latency_target(self) -> float:
        """Return the least latency target of the queries: the seconds that a batch may take, 0 for any."""
        return min(self.latency_targets.values(), default=0.0)

    @property
    def policies(self) -> QueryPolicies:
        """Return the attributes of queries that decisions depend on."""
        return QueryPolicies(self.weights, self.latency_targets)

    def without(self, names: Collection[str]) -> Work:
        """Return the work without some queries, whose results stay."""
        queries = tuple(query for query in self.queries if query.name not in names)
        return replace(self, queries=queries, paused=self.paused | set(names))

    @cached_property
    def sources(self) -> dict[str, Source]:
        """Return the sources that queries read, and those that are declared."""
        declared = {name: source for name, source in self.declared.items() if not source.is_static}
        return {**self.cache.sources_of(self.queries), **declared}

    @property
    def all_starts(self) -> dict[str, Start]:
        """Return where the answers of queries begin that are not to begin NOW."""
        past = {q.name: Start(StartMode.BEGINNING) for q in self.queries} if self.backfill else {}
        return past | dict(self.starts)

    @property
    def streaming(self) -> dict[str, DataFrame]:
        """Return the streaming DataFrames among the sources."""
        return {n: self.frames[n] for n in self.sources if getattr(self.frames.get(n), "isStreaming", False)}

    @property
    def digests(self) -> dict[str, str]:
        """Return, by MEMORY source, a digest of its rows."""
        memory = [name for name, source in self.sources.items() if source.connector == "MEMORY"]
        texts = {name: repr(self.rows.get(name.lower())) for name in memory}
        return {name: hashlib.sha256(text.encode()).hexdigest()[:16] for name, text in texts.items()}

    @property
    def strategy(self) -> Strategy:
        return Strategy.of(self.settings)
