"""The specs of what reads the results of a preference with their thresholds, for ESTIMATE."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from penstock.algebra.nodes.preference_clause import Preference
from penstock.algebra.nodes.summary_definition import SummaryDefinition
from penstock.expressions.nodes import Expression
from penstock.physical.plan.spec import Parameter, Spec
from penstock.physical.plan.state.aggregate_layout import AggregateLayout
from penstock.physical.plan.state.state_parts import TIMES, StateInput, StatePart, width

#: Bytes of what the probability of a result depends on.
CHANCE_BYTES = 88


@dataclass(frozen=True)
class RecordedSpec(Spec):
    """What they have in common.

    Args:
        preference: whose results they are.
        summaries: by probed side, as the preference has them.
        alone: whether it is of one stream.
    """

    holds_early: ClassVar[bool] = False

    preference: Preference
    summaries: tuple[SummaryDefinition | None, SummaryDefinition | None]
    alone: bool

    def _results(self, one: StateInput, types: Sequence[pa.DataType]) -> StatePart:
        # How many of the results have been done for certain depends on the load: all are counted.
        nbytes = width(types) + TIMES + CHANCE_BYTES
        return StatePart("results with a probability below 1", one.size, one.size * nbytes, one.content)


@dataclass(frozen=True)
class RecordedRowsSpec(RecordedSpec):
    """Results with inclusion records, which are replaced as these change. types: of the columns of a result."""

    types: tuple[pa.DataType, ...]

    def describe(self) -> Mapping[str, Parameter]:
        return {"state": "results with a probability below 1"}

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        return [self._results(inputs[0], self.types)]


@dataclass(frozen=True)
class RecordedSumsSpec(RecordedSpec):
    """What sums of x/π change by, as accumulator rows.

    Args:
        plan: the layout; all of its arguments are sums.
        lane_types: of accumulator rows.
        steps: the conditions, and the expressions of projections (a tuple), that results pass in turn.
        scaled: the arguments that are sums of x/π, each with x.
    """

    plan: AggregateLayout
    lane_types: tuple[pa.DataType, ...]
    steps: tuple[Expression | tuple[Expression, ...], ...]
    scaled: tuple[tuple[int, Expression], ...]

    def describe(self) -> Mapping[str, Parameter]:
        return {"state": "results with a probability below 1", "emits": "changes of sums by group"}

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        return [self._results(inputs[0], (*self.lane_types, *[pa.float64()] * len(self.scaled)))]
