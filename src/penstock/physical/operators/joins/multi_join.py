"""The pipelined join of many inputs `[golab 5.2]`: the inputs' own state, and no intermediate results.

Every new element is joined with the stored elements of the other inputs, one input after the other in the order planned
for its input. The inputs take turns: the new elements of input i probe the old and new ones of the inputs before i and
the old ones of those after it, so that every result is produced once, by the input of its last part. As in the binary
join, a result is valid where all its parts are, multiplicities multiply, and negative tuples need no separate code.

An input is indexed by the equivalence classes of columns that are known whenever it is probed; further classes are
checked on the elements found. If no class is known at all of its probes (a chain probed from both ends), it has an
index for each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from penstock.algebra.optimizer.rules.support import is_volatile
from penstock.expressions.evaluation.evaluate import mask
from penstock.expressions.nodes import Expression, columns_of, conjunction, conjuncts, remap
from penstock.physical.elements import Elements, Int64s, concat
from penstock.physical.kernels.fingerprints import fingerprints
from penstock.physical.operators.base.contract import Moment, Operator
from penstock.physical.operators.joins.growth import account
from penstock.physical.operators.joins.join import keyed
from penstock.physical.plan.joins.specs import MultiJoinSpec
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.join_indexes.sorted_runs import SortedRuns, probe_pieces

Classes = tuple[int, ...]

#: A step passes its results to the next step when there are about this many.
PAIRS_AT_ONCE = 1 << 18


@dataclass(frozen=True)
class _Step:
    """One probe of a pipeline. index: which index of `member`; key: the pipeline's columns that it is probed by;
    checks: pairs (pipeline column, member column) that must be equal too; condition: over the pipeline's columns and
    then the member's."""

    member: int
    index: int
    key: tuple[int, ...]
    checks: tuple[tuple[int, int], ...]
    condition: Expression | None


class MultiJoin(Operator):
    """State: the runs of every input, by every index."""

    def __init__(self, spec: MultiJoinSpec) -> None:
        self._spec = spec
        count = len(spec.types)
        known = [_known(spec, i) for i in range(count)]
        self._indexes = [
            _indexes({step_classes[j] for step_classes in known if j in step_classes}) for j in range(count)
        ]
        self._states = [
            [SortedRuns(_columns(spec, j, classes), spec.strict[j], spec.listed) for classes in self._indexes[j]]
            for j in range(count)
        ]
        self._pipelines = [_pipeline(spec, i, known[i], self._indexes) for i in range(count)]
        self._fresh: list[list[Elements]] = [[] for _ in range(count)]

    def synopses(self) -> Mapping[str, Synopsis]:
        return {f"{j}.{k}": runs for j, indexes in enumerate(self._states) for k, runs in enumerate(indexes)}

    def process(self, port: int, elements: Elements) -> list[Elements]:
        every = tuple(range(len(self._spec.classes)))
        elements = elements.filter(keyed(elements, _columns(self._spec, port, every)))
        if len(elements):
            self._fresh[port].append(elements)
        return []

    def advance(self, moment: Moment) -> list[Elements]:
        result: list[Elements] = []
        for port, parts in enumerate(self._fresh):
            if parts:
                new = concat(parts)
                result += self._through(new, port, 0)
                for runs in self._states[port]:
                    runs.add(new)
        self._fresh = [[] for _ in self._fresh]
        for indexes in self._states:
            for runs in indexes:
                runs.expire(moment.heartbeat)
        return result

    def _through(self, partial: Elements, port: int, number: int) -> list[Elements]:
        """Return the results of `partial`, which has reached step `number` of the pipeline of `port`."""
        steps, order = self._pipelines[port]
        if number == len(steps):
            account(partial)
            return [partial.with_columns([partial.columns[i] for i in order])]
        result: list[Elements] = []
        waiting: list[Elements] = []
        for joined in self._probe(partial, steps[number]):
            waiting.append(joined)
            if sum(map(len, waiting)) >= PAIRS_AT_ONCE:
                result += self._through(concat(waiting), port, number + 1)
                waiting = []
        return result + (self._through(concat(waiting), port, number + 1) if waiting else [])

    def _probe(self, partial: Elements, step: _Step) -> Iterator[Elements]:
        """Yield the matches of `partial`, in batches of limited size."""
        first, second = fingerprints([partial.columns[i] for i in step.key], len(partial))
        for run in self._states[step.member][step.index]:
            for probe, matching in probe_pieces(run, partial, first, second, PAIRS_AT_ONCE):
                joined = _pairs(partial, run.elements, step, probe, matching)
                if len(joined):
                    yield joined


def _pairs(partial: Elements, stored: Elements, step: _Step, probe: Int64s, matching: Int64s) -> Elements:
    """Return the pipeline's rows `probe` joined with the rows `matching` of `stored`, where all conditions that can be
    evaluated at this step hold."""
    mine, other = partial.take(probe), stored.take(matching)
    sign = None if mine.sign is None and other.sign is None else mine.signs * other.signs
    joined = Elements(
        (*mine.columns, *other.columns), np.maximum(mine.ts, other.ts), np.minimum(mine.exp, other.exp), sign
    )
    if step.checks and len(joined):
        mine_first = fingerprints([mine.columns[i] for i, _ in step.checks], len(joined))
        mine_second = fingerprints([other.columns[j] for _, j in step.checks], len(joined))
        joined = joined.filter((mine_first[0] == mine_second[0]) & (mine_first[1] == mine_second[1]))
    if step.condition is not None and len(joined):
        joined = joined.filter(mask(step.condition, joined.columns, len(joined)))
    return joined


def _known(spec: MultiJoinSpec, i: int) -> dict[int, Classes]:
    """Return, for each input that the pipeline of input i probes, the classes whose values the pipeline has by then."""
    bound = {i}
    known: dict[int, Classes] = {}
    for j in spec.orders[i]:
        known[j] = tuple(
            c
            for c, columns in enumerate(spec.classes)
            if columns[j] is not None and any(columns[b] is not None for b in bound)
        )
        bound.add(j)
    return known


def _indexes(combinations: set[Classes]) -> tuple[Classes, ...]:
    """Return the indexes of an input that is probed by these sets of classes: one of their intersection, or, if that
    is empty, one for each."""
    common = set.intersection(*(set(classes) for classes in combinations))
    return (tuple(sorted(common)),) if common else tuple(sorted(combinations))


def _columns(spec: MultiJoinSpec, j: int, classes: Classes) -> tuple[int, ...]:
    """Return the columns of input j that belong to `classes`."""
    return tuple(column for c in classes if (column := spec.classes[c][j]) is not None)


def _pipeline(
    spec: MultiJoinSpec, i: int, known: dict[int, Classes], indexes: list[tuple[Classes, ...]]
) -> tuple[tuple[_Step, ...], tuple[int, ...]]:
    """Return the steps for an element of input i, and the positions of the joined row's columns after them."""
    starts = np.cumsum([0, *(len(types) for types in spec.types)]).tolist()

    def row(member: int) -> list[int]:
        return list(range(starts[member], starts[member + 1]))

    def value_of(class_: int, columns: list[int]) -> int:
        """Return the pipeline column that has a value of the class."""
        positions = (starts[m] + p for m, p in enumerate(spec.classes[class_]) if p is not None)
        return next(columns.index(p) for p in positions if p in columns)

    waiting = [] if spec.residual is None else list(conjuncts(spec.residual))
    have = row(i)
    steps: list[_Step] = []
    for j in spec.orders[i]:
        last = len(steps) + 1 == len(spec.orders[i])
        index = next(
            n
            for n, classes in enumerate(indexes[j])
            if set(classes) <= set(known[j]) and (len(indexes[j]) == 1 or classes == known[j])
        )
        key = tuple(value_of(c, have) for c in indexes[j][index])
        unindexed = tuple(c for c in known[j] if c not in indexes[j][index])
        checks = tuple((value_of(c, have), _columns(spec, j, (c,))[0]) for c in unindexed)
        have = have + row(j)
        # Conditions without columns, and volatile ones, are evaluated on complete rows only.
        due = [p for p in waiting if last or (columns_of(p) and set(have) >= columns_of(p) and not is_volatile(p))]
        waiting = [p for p in waiting if p not in due]
        condition = conjunction(tuple(remap(p, have.index) for p in due))
        steps.append(_Step(j, index, key, checks, condition))
    return tuple(steps), tuple(have.index(position) for position in range(starts[-1]))
