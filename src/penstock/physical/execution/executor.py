"""One stage of a plan in one shard: state + batches + heartbeat in, batches out.

The executor runs the stage's operators in topological order: each receives all output of its inputs in this round, then
the new heartbeat. Rows that leave the stage are either the answer of a query or input of a later stage. An operator may
emit its output in batches; a batch passes through selections and projections, and out of the stage as an answer, before
the next batch is produced, so that an answer never needs to be in memory as a whole. The same executor runs in Spark's
workers and in the local runtime.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import replace

from penstock.figures.figure import FigureValues, added, put_together
from penstock.physical.decisions import NO_DECISIONS, Decisions
from penstock.physical.elements import Elements
from penstock.physical.execution.exchange import ExchangeRouter, Port, StageResult
from penstock.physical.execution.flow import Flow, RoundMoments, Taker
from penstock.physical.execution.flow_counts import FlowCounts
from penstock.physical.execution.marks import ExecutorSnapshot, StageMarks
from penstock.physical.execution.meter import Meter, StateGauge, StateSizes, StepFigures, figures_of
from penstock.physical.execution.portions import NOTHING_BEHIND, StepsBehind, portion_of
from penstock.physical.execution.progress import (
    FirstTimestamps,
    Progress,
    SourceProgress,
    query_frontiers,
    query_heartbeats,
)
from penstock.physical.execution.step_failures import StepFailures, note_failure
from penstock.physical.execution.step_graph import (
    JointTurns,
    MakeOperator,
    StepGraph,
    attach_again,
    made_operators,
    operator_maker,
    read_in_place,
)
from penstock.physical.observation.observed_rows import ObservedRows, Observer
from penstock.physical.operators import Moment, Operator, Tables
from penstock.physical.operators.failed import FailedOperator
from penstock.physical.plan.identity import moved_steps, step_keys
from penstock.physical.plan.plan import Channel, Plan, Step, scanned_sources
from penstock.physical.plan.spec import Feed
from penstock.physical.synopses.contract import Synopsis, SynopsisSnapshot
from penstock.storage.documents import Document, Json, as_array, as_document, as_integer
from penstock.types import BEGIN

#: Every so many measurements of the size of state include all steps.
_ALL_MEASURED = 64


class IngestExecutor:
    """Stage 0 for one source: stateless, one call per batch.

    Args:
        failures: receives the errors of steps, which then end their queries alone; None lets them be raised.
        before: that of the version before; the operators of steps that stay are the same.
        observes: it sees elements as they come, of which promises are measured (`observed`).
    """

    def __init__(
        self,
        plan: Plan,
        source: str,
        tables: Tables,
        meter: Meter | None = None,
        failures: StepFailures | None = None,
        before: IngestExecutor | None = None,
        observes: bool = False,
    ) -> None:
        self.failures = failures
        self._graph: StepGraph = StepGraph.of_source(plan, source, None if before is None else before._graph)
        kept: Mapping[int, Operator] = {}
        self._figures: StepFigures = {}
        if before is not None:
            was, self._figures = {step.id: step.spec for step in before._graph.steps}, before._figures
            kept = {s.id: before._operators[s.id] for s in self._graph.steps if was.get(s.id) is s.spec}
        isolated = failures is not None
        self._operators: dict[int, Operator]
        self._operators = made_operators(
            self._graph.steps, operator_maker(tables, 1, InnerPlan, isolated), meter, kept, isolated
        )
        self.columns = plan.needed_columns(source)
        self._observer: Observer | None = None
        measured = plan.sources[source].observed if observes else ()
        if measured:
            self.columns = tuple(sorted({*self.columns, *(c for columns in measured for c in columns)}))
            self._observer = Observer(plan.sources[source], self.columns)
        #: Rows of all batches since it was replaced.
        self.counts = FlowCounts()

    def added_figures(self) -> StepFigures:
        """Return what has been added to the figures of operators since the last call."""
        before, self._figures = self._figures, figures_of(self._operators)
        return {step: added(before.get(step, {}), figures) for step, figures in self._figures.items()}

    def observed(self) -> ObservedRows | None:
        """Return what has been seen since the last call to measure promises; None for nothing."""
        return None if self._observer is None else self._observer.seen()

    def run(self, stamped: Elements | None, spoken: Elements | None = None) -> StageResult:
        """Feed accepted elements, whose columns are the source's declared columns at `self.columns`, and
        punctuations."""
        if self._observer is not None and stamped is not None and len(stamped):
            self._observer.take(stamped)
        fed = {Feed.ELEMENTS: None if stamped is None else stamped.valid(), Feed.ACCEPTED: stamped}
        result = StageResult()
        inbox: dict[Port, list[Elements]] = {}
        for step in self._graph.steps:
            if self.failures is not None and self.failures.stopped(step):
                continue
            operator = self._operators[step.id]
            made: list[Elements] = []
            if step.spec.feed is Feed.PUNCTUATIONS:
                made += [] if spoken is None else [spoken]
            elif step.spec.scanned is not None:
                rows = fed[step.spec.feed]
                if rows is not None and len(rows):
                    positions = [self.columns.index(c) for c in step.spec.scanned_columns]
                    made.append(rows.with_columns([rows.columns[p] for p in positions]))
                    self.counts.receive((step.id, 0), rows)
            try:
                for port in range(len(step.inputs)):
                    for elements in inbox.pop((step.id, port), ()):
                        self.counts.receive((step.id, port), elements)
                        with nullcontext() if self.failures is None else self.failures.limited(step):
                            made += operator.process(port, elements)
            except Exception as error:
                note_failure(step, error, self.failures)
                continue
            if made:
                self.counts.emit(step.id, sum(map(len, made)))
            self._graph.send(step, made, inbox, result)
        return result


class StageExecutor:
    """A keyed stage (≥ 1) in one shard, with its state. `spent`: seconds of the steps that ran in the last round, and
    0 for each that is new; `counts`: the rows in it.

    Args:
        isolated: an operator that cannot be made fails when it is to work, so that it ends its queries alone.
    """

    def __init__(
        self,
        plan: Plan,
        stage: int,
        shard: int,
        shards: int,
        tables: Tables,
        drain: bool = False,
        meter: Meter | None = None,
        isolated: bool = False,
    ) -> None:
        self._plan = plan
        self._isolated = isolated
        self.stage = stage
        self._shard = shard
        self._shards = shards
        self._drain = drain
        self._meter = meter
        self._graph = StepGraph.of_stage(plan, stage)
        self._operators = made_operators(self._graph.steps, self._maker(tables), meter, isolated=isolated)
        self._roots = {name: query.root for name, query in plan.queries.items()}
        self.progress: dict[str, SourceProgress] = {}
        self._firsts = FirstTimestamps(plan.births)
        self.spent: dict[int, float] = {}
        self.counts = FlowCounts()
        #: As of `FlowCounts`, in the next round.
        self.tapped: frozenset[Port] = frozenset()
        #: By step, the moment to which it advanced last. A step that gets no input and stays at its moment would do
        #: nothing, so it is left out; of 1,000 queries, a round usually concerns few.
        self._moments: dict[int, Moment] = {}
        #: The moments of the last round: most steps share one, and the next round has it again where time stays.
        self._made: dict[tuple[int, int | None, bool], Moment] = {}
        #: The steps that ran in the last round, whose state may have changed.
        self._ran: set[int] = set()
        #: Those that received input or for which time advanced, so that steps which read them in place run too. A step
        #: that only dropped rows which no reader needs is not among them.
        self._altered: set[int] = set()
        #: The steps that have gained or lost a reader since the last round.
        self._unsettled: set[int] = set()
        #: The steps whose work has not been reported; None for all.
        self._unreported: set[int] | None = None
        #: The steps whose state may have changed since its size was measured; None for all.
        self._unmeasured: set[int] | None = None
        #: By step, the steps whose state it reads in place.
        self._reads: dict[int, list[int]] = {}
        self._gauge = StateGauge()
        #: Which steps can run together; None until the next round.
        self._joint: JointTurns | None = None
        #: Whether it still has all the steps of its stage.
        self._whole = True
        self._new: list[int] | None = None  # the steps whose operators the last version added; None for all
        #: By key, the operators of the last snapshot with the state that they had; and the `id` of those that ran
        #: since.
        self._held: dict[str, tuple[Operator, dict[str, SynopsisSnapshot]]] = {}
        self._held_marks: dict[str, Document] = {}
        self._ran_since: set[int] = set()

    @property
    def plan(self) -> Plan:
        """Return the version of the plan that it runs."""
        return self._plan

    @property
    def _keys(self) -> Mapping[int, str]:
        return step_keys(self._plan)

    def graft(self, plan: Plan, tables: Tables, unchanged: Container[str]) -> None:
        """Continue, between two rounds, with another version of the plan.

        A step whose key (`step_keys`) is in both versions keeps its operator, and so its state; its number may change.
        The operators of new steps begin empty, those of the other steps are dropped. The result is the executor that a
        new one becomes when it restores this one's state. Parts that both versions have are not looked into.

        Args:
            plan: the new version, of as many shards.
            tables: the static relations of `plan`.
            unchanged: the sources whose progress continues; that of the others is forgotten.
        """
        assert self._meter is None, "the measurements of a meter belong to one version of a plan"
        # Before the parts that stay: an executor without some of its steps has them in no part.
        before = {id(piece): piece for piece in self._plan.pieces} if self._whole else {}
        new = [step for piece in plan.pieces if before.pop(id(piece), None) is None for step in piece.steps]
        ended = before.values() if self._whole else [self._plan]
        gone = {step.id for piece in ended for step in piece.steps}
        moved = [step for step in moved_steps(self._plan, plan) if step.id not in gone]
        new_steps = [step for step in [*new, *moved] if step.stage == self.stage]
        gone.update(step.id for step in moved)
        operators = self._operators.copy()
        for number in gone:
            operators.pop(number, None)
        known, keys = self._keys, step_keys(plan) if new_steps else {}
        kept = {known[n]: n for n in gone if n in self._operators}
        # The numbers under which the operators of new steps were.
        numbers = {step.id: kept.get(keys[step.id]) for step in new_steps}
        make = self._maker(tables)
        made = {
            step.id: make(step) if n is None else self._operators[n] for step in new_steps for n in (numbers[step.id],)
        }
        # Nothing has changed so far: an operator that cannot be made leaves the executor as it was.
        old_steps = [step for piece in ended for step in piece.steps if step.stage == self.stage]
        earlier, self._operators = self._operators, operators | made
        graph = StepGraph.of_stage(plan, self.stage, self._graph if self._whole else None)
        self._plan, self._graph, self._reads, self._joint = plan, graph, {}, None
        self._unsettled = attach_again(
            new_steps, graph.reading, old_steps, earlier, numbers, self._operators, self._isolated
        )
        self._whole = True
        self._new = [number for number, former in numbers.items() if former is None]
        if self._unmeasured is not None:
            self._unmeasured.update(numbers)
        if self._unreported is not None:
            self._unreported.update(numbers)
        # A reader of another store than before has the same rows in it, so it need not run.
        moments, self._moments = self._moments, self._moments.copy()
        for number in gone:
            self._moments.pop(number, None)
        self._moments |= {now: moments[m] for now, m in numbers.items() if m is not None and m in moments}
        self._roots = {name: query.root for name, query in plan.queries.items()}
        self.progress = {name: seen for name, seen in self.progress.items() if name in unchanged}
        self._firsts = FirstTimestamps(plan.births, self._firsts)
        self.spent, self.counts = {}, FlowCounts()

    def _maker(self, tables: Tables) -> MakeOperator:
        return operator_maker(tables, self._shards, InnerPlan, self._isolated)

    def received(self, inputs: Mapping[Channel, Sequence[Elements]]) -> dict[Port, int]:
        """Return the bytes that arrived for this shard, by port; those of a channel count at each port of it."""
        sizes = {channel: sum(elements.nbytes for elements in batches) for channel, batches in inputs.items()}
        return {port: size for channel, size in sizes.items() for port in self._graph.arriving.get(channel, ())}

    def run(
        self,
        inputs: Mapping[Channel, Sequence[Elements]],
        progress: Progress,
        take: Taker | None = None,
        failures: StepFailures | None = None,
        decided: Decisions = NO_DECISIONS,
        reached: Mapping[str, int] = NOTHING_BEHIND,
    ) -> StageResult:
        """Run one round.

        Args:
            inputs: the elements that arrived for this shard, by channel.
            progress: what the whole job has seen of each source.
            take: receives the answers as they are produced; the result then does not contain them.
            failures: receives the errors of steps, which then end their queries alone: their steps are dropped, and
                what they have answered in this round is void. None lets errors be raised.
            decided: what was decided before the round.
            reached: by query that goes on in later rounds, the instant up to which earlier stages have emitted.
        """
        for name, seen in progress.items():
            self.progress[name] = self.progress.get(name, SourceProgress()).merge(seen)
            if seen.first is not None:
                self._firsts.note(name, seen.first)
        heartbeats = self.heartbeats()
        frontiers = self.frontiers(heartbeats)
        if reached:
            until = {query: min(instant, heartbeats[query]) for query, instant in reached.items()}
            heartbeats, frontiers = {**heartbeats, **until}, {**frontiers, **until}
        result = StageResult(reached=dict(reached))
        portion, behind = portion_of(decided, self._shards), StepsBehind(self._graph.direct, result.reached)

        def keep(query: str, elements: Elements) -> None:
            result.answers.setdefault(query, []).append(elements)

        def answer(query: str, elements: Elements) -> None:
            # A step shared with a query that ends later may be ahead of this query's frontier.
            frontier = frontiers[query]
            final = elements if elements.ts.max(initial=BEGIN) <= frontier else elements.filter(elements.ts <= frontier)
            if len(final):
                (take or keep)(query, final)

        inbox: dict[Port, list[Elements]] = {
            port: list(batches) for channel, batches in inputs.items() for port in self._graph.arriving.get(channel, ())
        }
        flow = Flow(self._graph, self._operators, inbox, result, answer, failures)
        flow.counts.tapped = self.tapped
        self._ran, self._altered = set(), set()
        moments = RoundMoments(heartbeats, frontiers, self._shard, self._start, self._made)
        if self._joint is None:
            self._joint = JointTurns(self._graph, self._operators)
        finished: set[int] = set()
        for first in self._graph.turns:
            if first.id in finished:
                continue
            together: dict[int, list[tuple[Step, Moment]]] = {}
            for step in self._joint.ready(first, finished):
                finished.add(step.id)
                moment = behind.moment(step, moments.of(step))
                if decided and step.spec.follows_decisions:
                    moment = replace(moment, decided=decided.only(step.queries))
                if not self._runs(step, moment, flow):
                    continue
                if portion is not None and step.spec.divides:
                    # Where it has not reached its moment, it runs in the next round too.
                    self._moments[step.id] = behind.advanced(step, moment, flow.turn_in_portions(step, moment, portion))
                else:
                    together.setdefault(moment.heartbeat, []).append((step, moment))
            for turns in together.values():
                if len(turns) == 1:
                    flow.turn(*turns[0])
                else:
                    flow.turn_jointly(turns)
                for step, _ in turns:
                    if failures is None or not failures.stopped(step):
                        rejected = self._operators[step.id].rejections()
                        result.rejected += [replace(one, step=step.id) for one in rejected]
        self._ran_since.update(id(self._operators[number]) for number in self._ran if number in self._operators)
        self._made, self._unsettled = moments.made, set()
        new = self._operators.keys() if self._unreported is None else self._unreported
        self.spent, self.counts = dict.fromkeys(new, 0.0) | flow.spent, flow.counts
        self._unreported = set()
        if failures is not None and failures.errors:
            self.drop(failures)
        return result

    def _runs(self, step: Step, moment: Moment, flow: Flow) -> bool:
        """Return whether `step` has anything to do at `moment`, and note that it runs."""
        before = self._moments.get(step.id)
        stays = before is moment or before == moment
        if flow.has_input(step) or self._reads_change(step) or (before is not None and not stays):
            self._altered.add(step.id)
        elif stays and step.id not in self._unsettled:
            return False
        # Else it is new and without input. What reads it in place is new too, or had the same rows elsewhere.
        self._moments[step.id] = moment
        self._ran.add(step.id)
        if step.spec.reads:
            # It may remove from what it reads in place.
            self._ran.update(self._read_in_place(step))
        return True

    def _reads_change(self, step: Step) -> bool:
        """Return whether `step` reads in place what has changed in this round."""
        return step.spec.reads and not self._altered.isdisjoint(self._read_in_place(step))

    def _read_in_place(self, step: Step) -> list[int]:
        found = self._reads.get(step.id)
        if found is None:
            found = self._reads[step.id] = read_in_place(step)
        return found

    def fail(self, key: str, error: Exception, failures: StepFailures) -> None:
        """Record the error of what was done, behind a round, for the steps with a key."""
        keys = self._keys
        for step in self._graph.steps:
            if keys[step.id] == key:
                failures.note(step, error)

    def drop(self, failures: StepFailures) -> None:
        """Drop the steps of queries that have failed; the others keep their operators."""
        self._graph = StepGraph.of(self._plan, [step for step in self._graph.steps if not failures.stopped(step)])
        self._whole, self._joint = False, None
        earlier, self._operators = self._operators, {step.id: self._operators[step.id] for step in self._graph.steps}
        self._moments = {}
        for number in earlier.keys() - self._operators.keys():
            earlier[number].detach()

    def _start(self, step: Step) -> int | None:
        """Return the first instant of the inputs of `step`."""
        return self._firsts.instant(step.birth, step.sources)

    def heartbeats(self) -> dict[str, int]:
        """Return, by query, the tick up to which its answer is final."""
        return query_heartbeats(self._roots, self.progress, self._drain)

    def frontiers(self, heartbeats: Mapping[str, int]) -> Mapping[str, int]:
        """Return, by query, the tick up to which its answer may be emitted, since nothing is retracted any more."""
        return query_frontiers(self._roots, heartbeats, self.progress)

    def source_heartbeats(self) -> dict[str, int]:
        """Return the heartbeat of each source; `END` for one that has ended."""
        return {
            n: p.heartbeat(self._plan.sources[n].slack) for n, p in self.progress.items() if n in self._plan.sources
        }

    # -- state -------------------------------------------------------------------------------------------------

    def state_sizes(self) -> StateSizes | None:
        """Return the sizes of the synopses of the steps with state that may have changed since they were measured last,
        and now and then of all; None if some were measured a moment ago."""
        if self._unmeasured is not None:
            self._unmeasured |= self._ran
        which = self._unsized()
        sizes = self._gauge.look({number: self._operators[number] for number in which})
        if sizes is not None:
            # What receives the sizes may have begun later than this executor.
            self._unmeasured = None if self._gauge.looks % _ALL_MEASURED == 0 else set()
            if self._unmeasured is None:
                self._unreported = None
        return sizes

    def late_sizes(self) -> StateSizes:
        """Return the sizes that were not measured behind the last round since some had been a moment before; none if
        nothing is left to be measured, or still too early."""
        return (self._gauge.is_due and self._unsized() and self.state_sizes()) or {}

    def _unsized(self) -> Set[int]:
        """Return the steps whose state may have changed since its size was measured."""
        return self._operators.keys() if self._unmeasured is None else self._unmeasured & self._operators.keys()

    def figures(self) -> StepFigures:
        """Return the figures of operators."""
        return figures_of(self._operators)

    def step_keys(self) -> set[str]:
        """Return the keys of all steps."""
        keys = self._keys
        return {keys[step.id] for step in self._graph.steps}

    def changed_steps(self, known: Container[str]) -> Iterator[tuple[str, Operator]]:
        """Yield the key and the operator of every step whose key is not `known`, or whose synopses may have changed in
        the last round.
        """
        keys, ran = self._keys, self._ran
        for step in self._graph.steps:
            if step.id in ran or keys[step.id] not in known:
                yield keys[step.id], self._operators[step.id]

    def synopses(self, among: Iterable[int] | None = None) -> dict[str, Synopsis]:
        """Return the synopses of some steps (None: all), by names that stay in a changed plan for unchanged steps."""
        keys = self._keys
        return {
            f"{keys[number]}.{name}": synopsis
            for number in self._numbers(among)
            for name, synopsis in self._synopses_of(number).items()
        }

    def _synopses_of(self, number: int) -> Mapping[str, Synopsis]:
        try:
            return self._operators[number].synopses()
        except Exception as error:
            if not self._isolated:
                raise
            self._operators[number] = FailedOperator(error)
            return {}

    def marks(self) -> StageMarks:
        """Return the small state: operators' marks by key, and the progress seen."""
        keys = self._keys
        marks = {
            keys[number]: m
            for number, operator in self._operators.items()
            if type(operator).marks is not Operator.marks and (m := operator.marks())
        }
        return StageMarks(dict(self.progress), self._firsts.marks(), marks)

    def _numbers(self, among: Iterable[int] | None) -> Iterable[int]:
        return [step.id for step in self._graph.steps] if among is None else among

    def restore_marks(
        self, marks: StageMarks, sources: Container[str] | None = None, among: Iterable[int] | None = None
    ) -> None:
        """Restore what `marks` returned, also in parts and from an executor of an earlier plan.

        sources: those that are unchanged; among: the steps to restore; None for all.
        """
        for name, seen in marks.progress.items():
            if sources is None or name in sources:
                self.progress[name] = self.progress.get(name, SourceProgress()).merge(seen)
        self._firsts.restore(marks.firsts)
        keys = self._keys
        for number in self._numbers(among):
            if keys[number] in marks.operators:
                self._operators[number].restore_marks(marks.operators[keys[number]])

    def snapshot(self) -> ExecutorSnapshot:
        """Return the whole state. What did not change since the last snapshot is the same object in both; it takes as
        long as what did."""
        keys = self._keys
        held: dict[str, tuple[Operator, dict[str, SynopsisSnapshot]]] = {}
        for step in self._graph.steps:
            key, operator = keys[step.id], self._operators[step.id]
            known = self._held.get(key)
            if known is None or known[0] is not operator or id(operator) in self._ran_since:
                synopses = operator.synopses().items()
                known = operator, {f"{key}.{name}": synopsis.whole() for name, synopsis in synopses}
            held[key] = known
        marks, before = self.marks(), self._held_marks
        # Marks may be what an operator goes on changing.
        own = {key: before[key] if before.get(key) == one else deepcopy(one) for key, one in marks.operators.items()}
        self._held, self._held_marks, self._ran_since = held, own, set()
        whole = {name: one for _, synopses in held.values() for name, one in synopses.items()}
        return ExecutorSnapshot(replace(marks, operators=own), whole)

    def restore(self, snapshot: ExecutorSnapshot) -> None:
        """Restore the state of the steps that are in `snapshot`, whose operators are new here. Steps that were merged
        into others need none. Raises PenstockError P0605."""
        synopses = self.synopses(self._new)
        for name, stored in snapshot.synopses.items():
            if name in synopses:
                synopses[name].restore_checked(name, stored, stored.chunks.__getitem__)
        self.restore_marks(snapshot.marks, among=self._new)


class NestedStage(StageExecutor):
    """A stage of the inner plan. `reached`: the last instant so far, 0 for none."""

    reached = 0

    def heartbeats(self) -> dict[str, int]:
        return {"": self.reached}

    def frontiers(self, heartbeats: Mapping[str, int]) -> Mapping[str, int]:
        # Its instants are complete when they arrive.
        return heartbeats

    def _start(self, step: Step) -> int | None:
        return 1 if self.reached else None


class InnerPlan:
    """The body of a query on its line, in one piece."""

    def __init__(self, plan: Plan, tables: Tables) -> None:
        self._plan = plan
        self._ingests = {name: IngestExecutor(plan, name, tables) for name in sorted(scanned_sources(plan.steps))}
        self.stages = [NestedStage(plan, stage, 0, 1, tables) for stage in range(1, plan.stages + 1)]

    def run(self, given: Mapping[str, Elements], reached: int) -> list[Elements]:
        """What is answered at instants up to `reached`; given: by source."""
        router = ExchangeRouter(1)
        for name, elements in given.items():
            if name in self._ingests and len(elements):
                router.post(self._ingests[name].run(elements), 0)
        answers: list[Elements] = []
        for stage in self.stages:
            stage.reached = reached
            result = stage.run(router.take(self._plan, stage.stage, 0), {})
            router.post(result, 0)
            answers += result.answers.get("", [])
        return answers

    def figures(self) -> FigureValues:
        ingests = [figures_of(ingest._operators) for ingest in self._ingests.values()]
        found = [*ingests, *(stage.figures() for stage in self.stages)]
        return put_together(figures for by_step in found for figures in by_step.values())

    def synopses(self) -> dict[str, Synopsis]:
        return {f"inner.{name}": s for stage in self.stages for name, s in stage.synopses().items()}

    def marks(self) -> Sequence[Json]:
        return [[stage.reached, stage.marks().as_json()] for stage in self.stages]

    def restore_marks(self, marks: Sequence[Json]) -> None:
        for stage, pair in zip(self.stages, marks, strict=True):
            reached, found = as_array(pair, "inner")
            stage.reached = as_integer(reached, "inner")
            stage.restore_marks(StageMarks.from_json(as_document(found, "inner")))
