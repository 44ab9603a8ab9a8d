"""The physical operators, one file per family, and the registry from spec to operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.physical.elements import Elements
from penstock.physical.nrr_plan import NRRJoinSpec, StampSpec
from penstock.physical.operators.aggregate import Aggregation
from penstock.physical.operators.boundaries import BoundaryAggregation
from penstock.physical.operators.boundary_sums import BoundarySums
from penstock.physical.operators.cells import Cells
from penstock.physical.operators.changes import Changes
from penstock.physical.operators.contract import Moment, Operator, Rejection
from penstock.physical.operators.distinct import make_distinct
from penstock.physical.operators.distinct_changes import DistinctChanges
from penstock.physical.operators.join import Join, Lookup
from penstock.physical.operators.match import LookupMatch, Match
from penstock.physical.operators.multi_join import MultiJoin
from penstock.physical.operators.negative import NegativeTuples
from penstock.physical.operators.nonretroactive import Stamp, make_nrr_join
from penstock.physical.operators.pane_store import PaneStore, WindowSums
from penstock.physical.operators.pick import make_pick
from penstock.physical.operators.probe import make_probe
from penstock.physical.operators.results import Results, Rounded, ShortChanges, ShortLives
from penstock.physical.operators.rowwindow import RowWindow
from penstock.physical.operators.rowwise import Filter, Lanes, Panes, Passing, Projection, TimeWindow, Together
from penstock.physical.operators.rstream import RStream
from penstock.physical.operators.sample import Sample
from penstock.physical.operators.sets import SetOperation
from penstock.physical.operators.static import Static
from penstock.physical.operators.stepwindow import StepWindow
from penstock.physical.operators.topk import TopK
from penstock.physical.operators.updates import Updates
from penstock.physical.operators.user_aggregate import UserAggregation
from penstock.physical.pane_plan import (
    BoundaryAggregateSpec,
    BoundarySumsSpec,
    PanesSpec,
    PaneStoreSpec,
    WindowSumsSpec,
)
from penstock.physical.plan import (
    AggregateSpec,
    ChangesSpec,
    DistinctChangesSpec,
    DistinctSpec,
    FilterSpec,
    JoinSpec,
    LanesSpec,
    LookupMatchSpec,
    LookupSpec,
    MatchSpec,
    MultiJoinSpec,
    NegativeTuplesSpec,
    OutputSpec,
    ProjectSpec,
    RowWindowSpec,
    RStreamSpec,
    SampleSpec,
    ScanSpec,
    SetOperationSpec,
    Spec,
    StaticSpec,
    TopKSpec,
    UnionSpec,
    UpdatesSpec,
    WindowSpec,
)
from penstock.physical.probe_plan import ProbeSpec
from penstock.physical.range_plan import CellsSpec
from penstock.physical.results_plan import ResultsSpec, RoundedSpec, ShortChangesSpec, ShortLivesSpec
from penstock.physical.sequence_plan import NumberedSpec, PickSpec, SequenceSpec
from penstock.physical.step_plan import StepWindowSpec
from penstock.physical.user_plan import UserAggregateSpec

#: Static relations by name, and the number of shards: what some operators need beside their spec.
Tables = Mapping[str, Elements]

OPERATORS: dict[type, Callable[..., Operator]] = {
    ScanSpec: lambda spec, tables, shards: Passing(),
    StaticSpec: lambda spec, tables, shards: Static(spec, tables[spec.table], shards),
    FilterSpec: lambda spec, tables, shards: Filter(spec),
    ProjectSpec: lambda spec, tables, shards: Projection(spec),
    UpdatesSpec: lambda spec, tables, shards: Updates(spec),
    UnionSpec: lambda spec, tables, shards: Together() if spec.together else Passing(),
    WindowSpec: lambda spec, tables, shards: TimeWindow(spec),
    NegativeTuplesSpec: lambda spec, tables, shards: NegativeTuples(spec),
    RowWindowSpec: lambda spec, tables, shards: RowWindow(spec),
    StepWindowSpec: lambda spec, tables, shards: StepWindow(spec),
    SampleSpec: lambda spec, tables, shards: Sample(spec),
    LanesSpec: lambda spec, tables, shards: Lanes(spec),
    PanesSpec: lambda spec, tables, shards: Panes(spec),
    AggregateSpec: lambda spec, tables, shards: Aggregation(spec),
    BoundaryAggregateSpec: lambda spec, tables, shards: BoundaryAggregation(spec),
    PaneStoreSpec: lambda spec, tables, shards: PaneStore(spec),
    WindowSumsSpec: lambda spec, tables, shards: WindowSums(spec),
    BoundarySumsSpec: lambda spec, tables, shards: BoundarySums(spec),
    UserAggregateSpec: lambda spec, tables, shards: UserAggregation(spec),
    DistinctSpec: lambda spec, tables, shards: make_distinct(spec),
    SetOperationSpec: lambda spec, tables, shards: SetOperation(spec),
    TopKSpec: lambda spec, tables, shards: TopK(spec),
    CellsSpec: lambda spec, tables, shards: Cells(spec),
    JoinSpec: lambda spec, tables, shards: Join(spec),
    ProbeSpec: lambda spec, tables, shards: make_probe(spec),
    MultiJoinSpec: lambda spec, tables, shards: MultiJoin(spec),
    LookupSpec: lambda spec, tables, shards: Lookup(spec, tables[spec.table]),
    NRRJoinSpec: lambda spec, tables, shards: make_nrr_join(spec),
    StampSpec: lambda spec, tables, shards: Stamp(),
    MatchSpec: lambda spec, tables, shards: Match(spec),
    LookupMatchSpec: lambda spec, tables, shards: LookupMatch(spec, tables[spec.table]),
    DistinctChangesSpec: lambda spec, tables, shards: DistinctChanges(spec),
    ChangesSpec: lambda spec, tables, shards: Changes(spec),
    RStreamSpec: lambda spec, tables, shards: RStream(spec),
    ResultsSpec: lambda spec, tables, shards: Results(spec),
    RoundedSpec: lambda spec, tables, shards: Rounded(spec),
    ShortLivesSpec: lambda spec, tables, shards: ShortLives(spec),
    ShortChangesSpec: lambda spec, tables, shards: ShortChanges(spec),
    PickSpec: lambda spec, tables, shards: make_pick(spec),
    SequenceSpec: lambda spec, tables, shards: _make_line(spec, tables),
    NumberedSpec: lambda spec, tables, shards: _make_numbered(spec, tables),
    OutputSpec: lambda spec, tables, shards: Passing(),
}


def _make_line(spec: SequenceSpec, tables: Tables) -> Operator:
    # It runs a plan of its own by the executor, which makes its operators here.
    from penstock.physical.operators.sequence import Line
    from penstock.physical.operators.sequence_relations import LineWithRelations

    return LineWithRelations(spec, tables) if spec.relations else Line(spec, tables)


def _make_numbered(spec: NumberedSpec, tables: Tables) -> Operator:
    from penstock.physical.operators.numbered import Numbered

    return Numbered(spec, tables)


def make_operator(spec: Spec, tables: Tables, shards: int) -> Operator:
    """The operator that `spec` describes, fresh."""
    return OPERATORS[type(spec)](spec, tables, shards)


__all__ = [
    "OPERATORS",
    "Moment",
    "Operator",
    "Rejection",
    "Tables",
    "make_operator",
]  # fmt: skip
