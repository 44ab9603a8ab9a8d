"""The figures of a run that its metrics sum up: of each step in each shard, each edge, each synopsis and each batch.

They come with the reports of tasks (`reports.py`), so reading them costs the data path nothing. Steps go by their keys
(`physical/plan/identity.py`), which stay when a plan changes. Counts and seconds are since the start of the process.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from penstock.events import log_event, logger_of
from penstock.physical.execution.meter import SynopsisSize
from penstock.physical.plan.identity import step_keys
from penstock.physical.plan.plan import Plan
from penstock.runtime.monitoring.constraints import StreamMeasures
from penstock.runtime.monitoring.reports import IngestReport, ShardReport
from penstock.runtime.monitoring.stopwatch import Phases
from penstock.runtime.monitoring.taps import Taps

#: Batches that are remembered.
BATCHES = 1_000
#: Seconds over which rates are taken.
RATE_SECONDS = 10.0
#: Durations that are remembered of each query.
_LATENCIES = 256
#: Causes of failed joint calls that are logged.
_CAUSES = 100
LOG = logger_of("runtime")


@dataclass(frozen=True)
class StepWork:
    """The work of a step in a shard. seconds: None where they are not measured step by step, in stage 0; joint_errors:
    turns that it took alone, since the call that advances it with others failed."""

    rows_in: int = 0
    rows_out: int = 0
    seconds: float | None = None
    joint_errors: int = 0


@dataclass(frozen=True)
class EdgeFlow:
    """What has flowed into a port of a step. bytes: in memory; None where rows stay in their stage."""

    rows: int = 0
    bytes: int | None = None


@dataclass(frozen=True)
class BatchFigures:
    """A batch.

    Args:
        at: when it ended, in seconds since 1970.
        seconds: its duration.
        rows_in: by source; rows_out: by query; only those with rows.
        late, malformed: records read in it, all sources together.
        failed: the queries that failed in it.
        lag: seconds by which the query furthest behind the wall clock was behind it; None where no time is known.
        backlog_bytes, backlog_records: input that had been found and not read.
        state_rows, state_bytes: of all operators.
    """

    number: int
    at: float
    seconds: float
    phases: Phases
    rows_in: Mapping[str, int]
    rows_out: Mapping[str, int]
    late: int = 0
    malformed: int = 0
    failed: tuple[str, ...] = ()
    lag: float | None = None
    backlog_bytes: int = 0
    backlog_records: int = 0
    state_rows: int = 0
    state_bytes: int = 0


@dataclass(frozen=True)
class RunFigures:
    """The figures at a moment.

    Args:
        plan: the plan that runs; None before the first.
        work: by key of a step and shard; stage 0, whose tasks have no shards, by -1.
        edges: by key of a step and port.
        synopses: by key of a step, shard and name.
        stages: by stage and shard, seconds.
        since: when the process began to count, in seconds since 1970; None before that.
        latencies: by query, the latest durations from the start of a round to the end of the delivery of its answer.
        constraints: by stream, how closely it keeps to promises, where that is measured.
    """

    plan: Plan | None = None
    work: Mapping[tuple[str, int], StepWork] = field(default_factory=dict)
    edges: Mapping[tuple[str, int], EdgeFlow] = field(default_factory=dict)
    synopses: Mapping[tuple[str, int, str], SynopsisSize] = field(default_factory=dict)
    stages: Mapping[tuple[int, int], float] = field(default_factory=dict)
    batches: tuple[BatchFigures, ...] = ()
    latencies: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    since: float | None = None
    constraints: Mapping[str, StreamMeasures] = field(default_factory=dict)

    def rate(self, rows: Callable[[BatchFigures], int], now: float) -> float:
        """Return the rows a second of the batches that ended in the last `RATE_SECONDS`; 0 where none did.

        Args:
            rows: those of a batch.
            now: seconds since 1970.
        """
        begin = now - RATE_SECONDS
        if self.since is not None:
            begin = max(begin, min(self.since, now - 1))
        counted = [batch for batch in self.batches if batch.at > begin]
        if len(counted) == BATCHES:
            # Earlier ones are not known any more: these are those since the first.
            begin = min(counted[0].at, now - 1)
            counted = counted[1:]
        return sum(rows(batch) for batch in counted) / (now - begin)

    @property
    def keys(self) -> Mapping[int, str]:
        """Return the key of each step of the plan."""
        return {} if self.plan is None else step_keys(self.plan)


#: The shard of the steps of stage 0.
NO_SHARD = -1


class FigureKeeper:
    """Adds up the reports of a run. One thread adds; another one may read."""

    def __init__(self) -> None:
        self._since = time.time()
        #: By key of a step, and what it is by in `RunFigures` beside that.
        self._work: defaultdict[str, dict[int, StepWork]] = defaultdict(dict)
        self._edges: defaultdict[str, dict[int, EdgeFlow]] = defaultdict(dict)
        self._synopses: defaultdict[str, dict[tuple[int, str], SynopsisSize]] = defaultdict(dict)
        self._stages: dict[tuple[int, int], float] = {}
        self._batches: deque[BatchFigures] = deque(maxlen=BATCHES)
        self._latencies: dict[str, deque[float]] = {}
        self.taps = Taps()
        #: The errors of calls that advance several operators, by the kind of these, that have been logged.
        self._logged: set[tuple[str, str]] = set()

    def add(self, report: IngestReport | ShardReport, plan: Plan) -> None:
        """Add the report of a task that ran `plan`."""
        keys, counts = step_keys(plan), report.counts
        shard = report.shard if isinstance(report, ShardReport) else NO_SHARD
        seconds = report.seconds if isinstance(report, ShardReport) else {}
        rows_in: dict[int, int] = {}
        for (step, port), rows in counts.rows_in.items():
            if step not in keys:
                continue  # of a plan before the change of this moment
            rows_in[step] = rows_in.get(step, 0) + rows
            edges = self._edges[keys[step]]
            edge = edges.get(port, EdgeFlow())
            more = counts.bytes_in.get((step, port))
            size = edge.bytes if more is None else more + (edge.bytes or 0)
            edges[port] = EdgeFlow(edge.rows + rows, size)
        for (step, port), elements in counts.samples.items():
            if step in keys:
                self.taps.offer((keys[step], port), elements)
        self._log_joint_errors(counts.joint_errors, plan)
        for step in {*rows_in, *counts.rows_out, *seconds, *counts.joint_errors} & keys.keys():
            work = self._work[keys[step]]
            before = work.get(shard, StepWork())
            spent = seconds.get(step)
            work[shard] = StepWork(
                before.rows_in + rows_in.get(step, 0),
                before.rows_out + counts.rows_out.get(step, 0),
                before.seconds if spent is None else spent + (before.seconds or 0.0),
                before.joint_errors + (step in counts.joint_errors),
            )
        stage = report.stage, shard
        self._stages[stage] = self._stages.get(stage, 0.0) + sum(report.phases.values())
        if isinstance(report, ShardReport) and report.state is not None:
            for step, sizes in report.state.items():
                if step in keys:
                    known = self._synopses[keys[step]]
                    for name, size_of_part in sizes.items():
                        known[shard, name] = size_of_part

    def _log_joint_errors(self, errors: Mapping[int, str], plan: Plan) -> None:
        """Log each cause once: what such a call computes is computed by each operator alone, more slowly."""
        for step, error in errors.items():
            cause = plan.step(step).spec.title, error
            if cause in self._logged or len(self._logged) >= _CAUSES:
                continue
            self._logged.add(cause)
            log_event(
                LOG,
                logging.WARNING,
                "joint_call_failed",
                f"a call that advances several operators {cause[0]} failed ({error}); each advanced alone, with the"
                " same answer in more time",
                operator=cause[0],
                cause=error,
            )

    def batch(self, one: BatchFigures, delivered: Mapping[str, float]) -> None:
        """Add a batch. delivered: by query with rows in it, seconds from the start of the round to the end of their
        delivery."""
        self._batches.append(one)
        for query, seconds in delivered.items():
            self._latencies.setdefault(query, deque(maxlen=_LATENCIES)).append(seconds)

    @property
    def last_batch(self) -> BatchFigures:
        """Return the batch that was added last."""
        return self._batches[-1]

    def changed(self, before: Plan, plan: Plan, steps: Collection[int]) -> None:
        """Forget what is not in `plan`. steps: the numbers of those in which it differs from the plan `before`."""
        self._latencies = {query: some for query, some in self._latencies.items() if query in plan.queries}
        former, present = step_keys(before), step_keys(plan)
        gone = {former[n] for n in steps if n in former} - {present[n] for n in steps if n in present}
        for key in gone:
            for figures in (self._work, self._edges, self._synopses):
                figures.pop(key, None)

    def figures(self, plan: Plan) -> RunFigures:
        """Return the present figures of `plan`."""
        work = {(key, shard): one for key, shards in list(self._work.items()) for shard, one in list(shards.items())}
        edges = {(key, port): one for key, ports in list(self._edges.items()) for port, one in list(ports.items())}
        sizes = {(key, *at): one for key, parts in list(self._synopses.items()) for at, one in list(parts.items())}
        return RunFigures(
            plan,
            work,
            edges,
            sizes,
            dict(self._stages),
            tuple(self._batches),
            {query: tuple(some) for query, some in list(self._latencies.items())},
            self._since,
        )


def quantile(values: Collection[float], share: float) -> float | None:
    """Return the least of some values that at least this share of them does not exceed; None for none."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * int(share * 100) // 100) - 1)] if ordered else None
