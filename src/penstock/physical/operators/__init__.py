"""The physical operators, one file per family, and the registry from spec to operator."""

from __future__ import annotations

from collections.abc import Callable

from penstock.physical.operators.aggregates.aggregate import Aggregation
from penstock.physical.operators.aggregates.frequent.candidates import FrequentCandidates
from penstock.physical.operators.aggregates.frequent.items import FrequentItems
from penstock.physical.operators.aggregates.pane_store import PaneStore, WindowSums
from penstock.physical.operators.aggregates.row_log import LoggedAggregation, RowLog
from penstock.physical.operators.aggregates.slide_incremental import IncrementalSlideAggregation
from penstock.physical.operators.aggregates.slide_recompute import RecomputedSlideAggregation
from penstock.physical.operators.aggregates.user_defined.user_aggregate import UserAggregation
from penstock.physical.operators.base.contract import (
    Moment,
    Operator,
    OperatorContext,
    Rejection,
    RunPlan,
    Tables,
    refuse_inner_plan,
)
from penstock.physical.operators.checks.check import make_check
from penstock.physical.operators.checks.instant_counts import InstantCounts
from penstock.physical.operators.checks.unrejected import Unrejected
from penstock.physical.operators.joins.aggregate_lookup import make_probe
from penstock.physical.operators.joins.band_partitioner import BandPartitioner
from penstock.physical.operators.joins.join import Join, Lookup
from penstock.physical.operators.joins.multi_join import MultiJoin
from penstock.physical.operators.joins.nonretroactive import Stamp, make_nrr_join
from penstock.physical.operators.joins.partner_counts import PartnerCounts, StaticPartnerCounts
from penstock.physical.operators.joins.partnered import PartneredJoin
from penstock.physical.operators.joins.store_join import StoreJoin
from penstock.physical.operators.joins.value_join import ValueJoin
from penstock.physical.operators.joins.window_store import WindowStore
from penstock.physical.operators.preferences.queries import (
    PreferringJoin,
    PreferringLookUp,
    PreferringNRRLookUp,
    PreferringSelection,
)
from penstock.physical.operators.preferences.records import RecordedRows, RecordedSums
from penstock.physical.operators.promises.closed_rows import ClosedRows
from penstock.physical.operators.promises.closing_groups import ClosingAggregation
from penstock.physical.operators.promises.closing_user_groups import ClosingUserAggregation
from penstock.physical.operators.promises.promised_join import PromisedJoin
from penstock.physical.operators.rowwise import (
    AccumulatorRows,
    Filter,
    Panes,
    Passing,
    Projection,
    TimeWindow,
    Together,
    WatchedRows,
)
from penstock.physical.operators.sequence.count_time import CountTime
from penstock.physical.operators.sequence.every_nth import make_every_nth
from penstock.physical.operators.sequence.relations import make_sequence_model
from penstock.physical.operators.sets.distinct import make_distinct
from penstock.physical.operators.sets.first_rows import TopK
from penstock.physical.operators.sets.set_operations import SetOperation
from penstock.physical.operators.static import Static
from penstock.physical.operators.streams.changes import Changes
from penstock.physical.operators.streams.distinct_changes import DistinctChanges
from penstock.physical.operators.streams.results import (
    IndividualResults,
    RestoredInsertions,
    Rounded,
    ShortChanges,
    ShortLives,
)
from penstock.physical.operators.streams.rstream import RStream
from penstock.physical.operators.temporal.budgeted_runs import BudgetedRuns
from penstock.physical.operators.temporal.coalesce import Coalescing
from penstock.physical.operators.temporal.gaps import GapsInOrder, GapsOfChanges
from penstock.physical.operators.temporal.granule_runs import GranuleRuns, OncePerLife
from penstock.physical.operators.temporal.grouped_sessions import GroupedSessions, SessionPieces
from penstock.physical.operators.temporal.sessions import Sessions, ValidWindow
from penstock.physical.operators.temporal.shedding import Shed
from penstock.physical.operators.temporal.shedding_rows import ShedRows
from penstock.physical.operators.temporal.stretch_chances import StretchChances
from penstock.physical.operators.temporal.stretches_in_order import StretchesInOrder, StretchPieces
from penstock.physical.operators.temporal.stretches_of_window import StretchesOfWindow
from penstock.physical.operators.temporal.until_next import Lasting, UntilNext
from penstock.physical.operators.updates import Updates
from penstock.physical.operators.windows.negative_tuples import NegativeTuples
from penstock.physical.operators.windows.row_draws import make_row_draws
from penstock.physical.operators.windows.row_window import RowWindow
from penstock.physical.operators.windows.sample import Sample
from penstock.physical.operators.windows.step_window import StepWindow
from penstock.physical.plan.aggregates import AccumulatorRowsSpec, AggregateSpec, LoggedAggregateSpec, RowLogSpec
from penstock.physical.plan.inputs import (
    AcceptedScanSpec,
    CheckSpec,
    ConstantSpec,
    InstantCountsSpec,
    OutputSpec,
    PunctuationScanSpec,
    ScanSpec,
    StaticSpec,
    UnrejectedSpec,
    UpdatesSpec,
)
from penstock.physical.plan.joins.promised import PromisedJoinSpec
from penstock.physical.plan.joins.specs import (
    AggregateLookupSpec,
    BandPartitionerSpec,
    ChosenJoinSpec,
    JoinSpec,
    LookupSpec,
    MultiJoinSpec,
    NRRJoinSpec,
    PartnerCountsSpec,
    PartneredSpec,
    StampSpec,
    StaticPartnerCountsSpec,
    StoreJoinSpec,
    TakingBackJoinSpec,
    ValueJoinSpec,
    WindowStoreSpec,
)
from penstock.physical.plan.panes import (
    FrequentCandidatesSpec,
    FrequentItemsSpec,
    IncrementalSlideSpec,
    PanesSpec,
    PaneStoreSpec,
    RecomputedSlideSpec,
    WindowSumsSpec,
)
from penstock.physical.plan.preferences.queries import (
    PreferringJoinSpec,
    PreferringLookUpSpec,
    PreferringNRRLookUpSpec,
    PreferringSelectionSpec,
)
from penstock.physical.plan.preferences.records import RecordedRowsSpec, RecordedSumsSpec
from penstock.physical.plan.promises.groups import ClosedRowsSpec, ClosingAggregateSpec, ClosingUserAggregateSpec
from penstock.physical.plan.rowwise import FilterSpec, ProjectSpec, UnionSpec, WatchedSpec
from penstock.physical.plan.sequence import CountTimeSpec, FrequencySpec, SequenceModelSpec
from penstock.physical.plan.sets import DistinctSpec, SetOperationSpec, TopKSpec
from penstock.physical.plan.spec import Spec
from penstock.physical.plan.streams import (
    ChangesSpec,
    DistinctChangesSpec,
    IndividualResultsSpec,
    RestoredInsertionsSpec,
    RoundedSpec,
    RStreamSpec,
    ShortChangesSpec,
    ShortLivesSpec,
)
from penstock.physical.plan.temporal.coalesce import CoalesceSpec, StretchPiecesSpec
from penstock.physical.plan.temporal.gaps import GapsSpec
from penstock.physical.plan.temporal.granules import BudgetedRunsSpec, GranuleRunsSpec, OncePerLifeSpec
from penstock.physical.plan.temporal.grouped_sessions import GroupedSessionsSpec, SessionPiecesSpec
from penstock.physical.plan.temporal.sessions import SessionsSpec, ValidWindowSpec
from penstock.physical.plan.temporal.shedding import ShedRowsSpec, ShedSpec
from penstock.physical.plan.temporal.stretch_chances import StretchChancesSpec
from penstock.physical.plan.temporal.until_next import LastingSpec, UntilNextSpec
from penstock.physical.plan.temporal.window_stretches import WindowStretchesSpec
from penstock.physical.plan.user_aggregates import UserAggregateSpec
from penstock.physical.plan.windows import (
    NegativeTuplesSpec,
    RowDrawsSpec,
    RowWindowSpec,
    SampleSpec,
    StepWindowSpec,
    TimeWindowSpec,
)

OPERATORS: dict[type, Callable[..., Operator]] = {
    ScanSpec: lambda spec, context: Passing(),
    AcceptedScanSpec: lambda spec, context: Passing(),
    PunctuationScanSpec: lambda spec, context: Passing(),
    StaticSpec: lambda spec, context: Static(spec.key, context.tables[spec.table], context.shards),
    ConstantSpec: lambda spec, context: Static((), spec.elements(), context.shards),
    FilterSpec: lambda spec, context: Filter(spec),
    ProjectSpec: lambda spec, context: Projection(spec),
    WatchedSpec: lambda spec, context: WatchedRows(spec),
    UpdatesSpec: lambda spec, context: Updates(spec),
    InstantCountsSpec: lambda spec, context: InstantCounts(spec),
    CheckSpec: lambda spec, context: make_check(spec, context.shards),
    UnrejectedSpec: lambda spec, context: Unrejected(spec),
    UnionSpec: lambda spec, context: Together() if spec.together else Passing(),
    TimeWindowSpec: lambda spec, context: TimeWindow(spec),
    NegativeTuplesSpec: lambda spec, context: NegativeTuples(spec),
    RowWindowSpec: lambda spec, context: RowWindow(spec),
    StepWindowSpec: lambda spec, context: StepWindow(spec),
    SampleSpec: lambda spec, context: Sample(spec),
    RowDrawsSpec: lambda spec, context: make_row_draws(spec),
    AccumulatorRowsSpec: lambda spec, context: AccumulatorRows(spec),
    PanesSpec: lambda spec, context: Panes(spec),
    AggregateSpec: lambda spec, context: Aggregation(spec),
    RowLogSpec: lambda spec, context: RowLog(spec),
    LoggedAggregateSpec: lambda spec, context: LoggedAggregation(spec),
    IncrementalSlideSpec: lambda spec, context: IncrementalSlideAggregation(spec),
    PaneStoreSpec: lambda spec, context: PaneStore(spec),
    WindowSumsSpec: lambda spec, context: WindowSums(spec),
    RecomputedSlideSpec: lambda spec, context: RecomputedSlideAggregation(spec),
    FrequentCandidatesSpec: lambda spec, context: FrequentCandidates(spec),
    FrequentItemsSpec: lambda spec, context: FrequentItems(spec),
    UserAggregateSpec: lambda spec, context: UserAggregation(spec),
    SessionsSpec: lambda spec, context: Sessions(spec),
    StretchPiecesSpec: lambda spec, context: StretchPieces(),
    OncePerLifeSpec: lambda spec, context: OncePerLife(spec),
    BudgetedRunsSpec: lambda spec, context: BudgetedRuns(spec),
    GranuleRunsSpec: lambda spec, context: GranuleRuns(spec),
    WindowStretchesSpec: lambda spec, context: StretchesOfWindow(spec),
    SessionPiecesSpec: lambda spec, context: SessionPieces(spec),
    GroupedSessionsSpec: lambda spec, context: GroupedSessions(spec),
    ValidWindowSpec: lambda spec, context: ValidWindow(spec),
    UntilNextSpec: lambda spec, context: UntilNext(spec),
    GapsSpec: lambda spec, context: GapsInOrder(spec) if spec.in_order else GapsOfChanges(spec),
    LastingSpec: lambda spec, context: Lasting(spec),
    CoalesceSpec: lambda spec, context: StretchesInOrder(spec) if spec.in_order else Coalescing(spec),
    DistinctSpec: lambda spec, context: make_distinct(spec),
    SetOperationSpec: lambda spec, context: SetOperation(spec),
    TopKSpec: lambda spec, context: TopK(spec),
    BandPartitionerSpec: lambda spec, context: BandPartitioner(spec),
    JoinSpec: lambda spec, context: Join(spec),
    ChosenJoinSpec: lambda spec, context: Join(spec),
    ValueJoinSpec: lambda spec, context: ValueJoin(spec),
    PartneredSpec: lambda spec, context: PartneredJoin(spec),
    WindowStoreSpec: lambda spec, context: WindowStore(spec),
    StoreJoinSpec: lambda spec, context: StoreJoin(spec),
    TakingBackJoinSpec: lambda spec, context: StoreJoin(spec),
    AggregateLookupSpec: lambda spec, context: make_probe(spec),
    MultiJoinSpec: lambda spec, context: MultiJoin(spec),
    LookupSpec: lambda spec, context: Lookup(spec, context.tables[spec.table]),
    NRRJoinSpec: lambda spec, context: make_nrr_join(spec),
    StampSpec: lambda spec, context: Stamp(),
    PromisedJoinSpec: lambda spec, context: PromisedJoin(spec),
    PartnerCountsSpec: lambda spec, context: PartnerCounts(spec),
    StaticPartnerCountsSpec: lambda spec, context: StaticPartnerCounts(spec, context.tables[spec.table]),
    DistinctChangesSpec: lambda spec, context: DistinctChanges(spec),
    ChangesSpec: lambda spec, context: Changes(spec),
    RStreamSpec: lambda spec, context: RStream(spec),
    IndividualResultsSpec: lambda spec, context: IndividualResults(spec),
    RestoredInsertionsSpec: lambda spec, context: RestoredInsertions(spec),
    RoundedSpec: lambda spec, context: Rounded(spec),
    ShortLivesSpec: lambda spec, context: ShortLives(spec),
    ShortChangesSpec: lambda spec, context: ShortChanges(spec),
    FrequencySpec: lambda spec, context: make_every_nth(spec),
    SequenceModelSpec: lambda spec, context: make_sequence_model(spec, context.tables, context.run_plan),
    CountTimeSpec: lambda spec, context: CountTime(spec, context.tables, context.run_plan),
    PreferringJoinSpec: lambda spec, context: PreferringJoin(spec, context.shards),
    PreferringLookUpSpec: lambda spec, context: PreferringLookUp(spec, context.shards, context.tables[spec.table]),
    PreferringNRRLookUpSpec: lambda spec, context: PreferringNRRLookUp(spec, context.shards),
    PreferringSelectionSpec: lambda spec, context: PreferringSelection(spec, context.shards),
    RecordedRowsSpec: lambda spec, context: RecordedRows(spec, context.shards),
    RecordedSumsSpec: lambda spec, context: RecordedSums(spec, context.shards),
    ShedSpec: lambda spec, context: Shed(spec),
    ShedRowsSpec: lambda spec, context: ShedRows(spec),
    StretchChancesSpec: lambda spec, context: StretchChances(spec),
    ClosingAggregateSpec: lambda spec, context: ClosingAggregation(spec),
    ClosingUserAggregateSpec: lambda spec, context: ClosingUserAggregation(spec),
    ClosedRowsSpec: lambda spec, context: ClosedRows(spec),
    OutputSpec: lambda spec, context: Passing(),
}


def make_operator(spec: Spec, tables: Tables, shards: int, run_plan: RunPlan = refuse_inner_plan) -> Operator:
    """Return a fresh operator of `spec`. run_plan: starts a plan inside of an operator."""
    return OPERATORS[type(spec)](spec, OperatorContext(tables, shards, run_plan))


__all__ = [
    "OPERATORS",
    "Moment",
    "Operator",
    "Rejection",
    "Tables",
    "make_operator",
]
