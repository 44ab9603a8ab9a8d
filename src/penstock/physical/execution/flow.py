"""How the rows of one round pass through the steps of a stage.

A step produces its output in batches: a batch passes through selections and projections, and out of the stage as an
answer, before the next one is produced.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import ParamSpec

from penstock.physical.elements import Elements
from penstock.physical.execution.exchange import Port, StageResult
from penstock.physical.execution.flow_counts import FlowCounts
from penstock.physical.execution.portions import Portion
from penstock.physical.execution.step_failures import StepFailures, note_failure
from penstock.physical.execution.step_graph import StepGraph
from penstock.physical.operators import Moment, Operator
from penstock.physical.plan.plan import Step

#: Receives rows of a query's answer as they are produced.
Taker = Callable[[str, Elements], None]
#: The arguments of a call of an operator.
_Arguments = ParamSpec("_Arguments")


class RoundMoments:
    """The moments to which steps advance in a round: many steps are over the same sources, and most queries are equally
    far. made: these moments, with those of the round before where they stay."""

    def __init__(
        self,
        heartbeats: Mapping[str, int],
        frontiers: Mapping[str, int],
        shard: int,
        start: Callable[[Step], int | None],
        before: Mapping[tuple[int, int | None, bool], Moment],
    ) -> None:
        self._heartbeats, self._frontiers = heartbeats, frontiers
        self._shard, self._start, self._before = shard, start, before
        self._known: dict[tuple[int, frozenset[str], int, int], Moment] = {}
        self.made: dict[tuple[int, int | None, bool], Moment] = {}

    def of(self, step: Step) -> Moment:
        """Return the moment of a step."""
        if len(step.queries) == 1:
            (query,) = step.queries
            heartbeat, frontier = self._heartbeats[query], self._frontiers[query]
        else:
            heartbeat = max(self._heartbeats[query] for query in step.queries)
            frontier = max(self._frontiers[query] for query in step.queries)
        known = step.birth, step.sources, heartbeat, frontier
        moment = self._known.get(known)
        if moment is None:
            key = heartbeat, self._start(step), frontier > heartbeat
            moment = self.made.get(key) or self._before.get(key) or Moment(*key[:2], self._shard, key[2])
            self._known[known] = self.made[key] = moment
        return moment


class Flow:
    """The flow of one round's rows through a stage. spent: seconds of each step that ran, without its consumers;
    counts: the rows."""

    def __init__(
        self,
        graph: StepGraph,
        operators: Mapping[int, Operator],
        inbox: dict[Port, list[Elements]],
        result: StageResult,
        answer: Taker,
        failures: StepFailures | None = None,
    ) -> None:
        self._failures = failures
        self._graph = graph
        self._operators = operators
        self._inbox = inbox
        self._result = result
        self._answer = answer
        self.spent: dict[int, float] = {}
        self.counts = FlowCounts()
        #: The step that is emitting its portion, and this.
        self._portion: tuple[int, Portion] | None = None

    def has_input(self, step: Step) -> bool:
        """Return whether rows wait for `step`."""
        if not self._inbox:
            return False
        return any((step.id, port) in self._inbox for port in range(len(step.inputs)))

    def turn(self, step: Step, moment: Moment) -> None:
        """Run `step` on all its input, and advance its heartbeat; its output is passed on batch by batch."""
        self._process(step)
        if not self._stopped(step):
            self._go_on(step, self._operators[step.id].advance, moment)

    def turn_in_portions(self, step: Step, moment: Moment, nbytes: int) -> int:
        """Run `step` on all its input, and advance it until it has emitted about `nbytes` bytes; return up to which
        instant it has advanced."""
        self._process(step)
        portion, operator = Portion(nbytes, step.types), self._operators[step.id]
        self._portion = step.id, portion
        try:
            while not self._stopped(step):
                try:
                    until = operator.portion(moment, portion.rows)
                except Exception as error:
                    note_failure(step, error, self._failures)
                    break
                part = moment if until >= moment.heartbeat else replace(moment, heartbeat=until, open=False)
                self._go_on(step, operator.advance, part)
                portion.grow()
                if part is moment or portion.is_used:
                    return part.heartbeat
        finally:
            self._portion = None
        return moment.heartbeat

    def turn_jointly(self, turns: Sequence[tuple[Step, Moment]]) -> None:
        """Do the same for several steps at one heartbeat, whose operators have one joint key."""
        for step, _ in turns:
            self._process(step)
        turns = [turn for turn in turns if not self._stopped(turn[0])]
        if not turns:
            return
        operators = [self._operators[step.id] for step, _ in turns]
        began = time.perf_counter()
        emitted: Mapping[int, list[Elements]] = {}
        try:
            advanced = operators[0].advance_jointly(operators, [moment for _, moment in turns])
        except Exception as error:
            # No state has changed. Each operator advances alone below, which shows whose error it is. The error is
            # noted, since it would be lost if none fails alone.
            self.counts.note_joint_error([step.id for step, _ in turns], error)
        else:
            emitted = advanced.emitted
            try:
                advanced.settle()
            except Exception as error:
                # It is unknown whether an operator has its new state: it must neither answer nor advance again.
                for place in emitted:
                    note_failure(turns[place][0], error, self._failures)
        each = (time.perf_counter() - began) / len(turns)
        for place, (step, moment) in enumerate(turns):
            if self._stopped(step):
                continue
            produced = emitted.get(place)
            if produced is None:
                self._go_on(step, operators[place].advance, moment)
                continue
            self.spent[step.id] = self.spent.get(step.id, 0.0) + each
            for made in produced:
                self._send(step, made)

    def _process(self, step: Step) -> None:
        """Pass an operator all its input."""
        if self._stopped(step):
            return
        operator = self._operators[step.id]
        for port in range(len(step.inputs)):
            for elements in self._inbox.pop((step.id, port), ()):
                if len(elements) and not self._stopped(step):
                    self.counts.receive((step.id, port), elements)
                    self._go_on(step, operator.process, port, elements)

    def _stopped(self, step: Step) -> bool:
        return self._failures is not None and self._failures.stopped(step)

    def _limited(self, step: Step) -> AbstractContextManager[None]:
        return nullcontext() if self._failures is None else self._failures.limited(step)

    def _go_on(
        self,
        step: Step,
        work: Callable[_Arguments, Iterable[Elements]],
        *given: _Arguments.args,
        **named: _Arguments.kwargs,
    ) -> None:
        """Pass on the batches that a call of the operator of `step` produces."""
        began = time.perf_counter()
        try:
            with self._limited(step):
                produced = work(*given, **named)
        except Exception as error:
            note_failure(step, error, self._failures)
            return
        if not isinstance(produced, list | tuple):
            self._go_on_by_batch(step, iter(produced), began)
            return
        self.spent[step.id] = self.spent.get(step.id, 0.0) + time.perf_counter() - began
        for made in produced:
            if len(made) and not self._stopped(step):
                self._send(step, made)

    def _go_on_by_batch(self, step: Step, pieces: Iterator[Elements], began: float) -> None:
        """Pass on batches before the next one is produced."""
        while True:
            try:
                with self._limited(step):
                    made = next(pieces, None)
            except Exception as error:
                note_failure(step, error, self._failures)
                return
            self.spent[step.id] = self.spent.get(step.id, 0.0) + time.perf_counter() - began
            if made is None:
                return
            if len(made):
                self._send(step, made)
            if self._stopped(step):
                # Its queries have more answers than they may have.
                return
            began = time.perf_counter()

    def _send(self, step: Step, made: Elements) -> None:
        graph, number, answered = self._graph, step.id, step.spec.answered
        direct = graph.direct[number]
        self.counts.emit(number, len(made))
        if self._portion is not None and self._portion[0] == number:
            self._portion[1].take(made)
        if answered is not None:
            self._answer(answered, made)
        if number in graph.onward or len(direct) < len(graph.within[number]):
            if self._failures is not None:
                self._failures.count(step, made.nbytes)
                if self._stopped(step):
                    return
            graph.send(step, [made], self._inbox, self._result, direct)
        for consumer in direct.values():
            if self._stopped(consumer):
                continue
            self.counts.receive((consumer.id, 0), made)
            self._go_on(consumer, self._operators[consumer.id].process, 0, made)
