"""The logical algebra: immutable typed operators, one file per family, with derived properties."""

from penstock.algebra.nodes.aggregate import Aggregate, Distinct
from penstock.algebra.nodes.base import Algebra, ArrivalTime, StreamToRelation, TimeModelWindow, is_static, leaves
from penstock.algebra.nodes.coalesce import Begins, Closing, Coalesce
from penstock.algebra.nodes.constant import Constant
from penstock.algebra.nodes.first_rows import SortKey, TopK
from penstock.algebra.nodes.frequency import Arrivals, AtInstants, Frequency, Sequenced
from penstock.algebra.nodes.frequency_window import FrequencyWindow
from penstock.algebra.nodes.frequent import Frequent, Measure
from penstock.algebra.nodes.gaps import Gaps
from penstock.algebra.nodes.internal import Internal
from penstock.algebra.nodes.join import Join
from penstock.algebra.nodes.multi_join import MultiJoin
from penstock.algebra.nodes.negative_tuples import NegativeTuples
from penstock.algebra.nodes.nonretroactive import NRRJoin, is_nrr, unjoined
from penstock.algebra.nodes.preference_clause import Budget, BudgetKind, Preference, PreferenceOrder
from penstock.algebra.nodes.preferences import PreferringJoin, PreferringLookUp, PreferringSelection
from penstock.algebra.nodes.r2s import (
    RelationToStream,
    StreamKind,
    arrivals_of,
    evaluation_period,
    own_sessions,
    own_windows,
)
from penstock.algebra.nodes.restamp import Restamp
from penstock.algebra.nodes.results import IndividualResults, Restored
from penstock.algebra.nodes.rowwise import Project, Select
from penstock.algebra.nodes.sample import Sample
from penstock.algebra.nodes.scans import DeclaredPeriod, OnError, RelationScan, Scan, Source, StreamScan
from penstock.algebra.nodes.semi_and_outer_joins import OuterJoin, OuterKind, SemiJoin, SemiKind
from penstock.algebra.nodes.session_window import SessionWindow, ValidWindow
from penstock.algebra.nodes.set_operations import Except, Intersect, UnionAll
from penstock.algebra.nodes.shed import Shed
from penstock.algebra.nodes.stretch_chances import StretchChances
from penstock.algebra.nodes.summary_definition import SummaryDefinition, SummaryMethod
from penstock.algebra.nodes.until_next import EndedPeriods, Lasting, Lives, UntilNext
from penstock.algebra.nodes.window_sample import WindowSample
from penstock.algebra.nodes.windows import RowWindow, Window, WindowKind, unbounded
from penstock.algebra.properties.update_pattern import Pattern

__all__ = [
    "Aggregate",
    "Algebra",
    "ArrivalTime",
    "Arrivals",
    "AtInstants",
    "Begins",
    "Budget",
    "BudgetKind",
    "Closing",
    "Coalesce",
    "Constant",
    "DeclaredPeriod",
    "Distinct",
    "EndedPeriods",
    "Except",
    "Frequency",
    "FrequencyWindow",
    "Frequent",
    "Gaps",
    "IndividualResults",
    "Internal",
    "Intersect",
    "Join",
    "Lasting",
    "Lives",
    "Measure",
    "MultiJoin",
    "NRRJoin",
    "NegativeTuples",
    "OnError",
    "OuterJoin",
    "OuterKind",
    "Pattern",
    "Preference",
    "PreferenceOrder",
    "PreferringJoin",
    "PreferringLookUp",
    "PreferringSelection",
    "Project",
    "RelationScan",
    "RelationToStream",
    "Restamp",
    "Restored",
    "RowWindow",
    "Sample",
    "Scan",
    "Select",
    "SemiJoin",
    "SemiKind",
    "Sequenced",
    "SessionWindow",
    "Shed",
    "SortKey",
    "Source",
    "StreamKind",
    "StreamScan",
    "StreamToRelation",
    "StretchChances",
    "SummaryDefinition",
    "SummaryMethod",
    "TimeModelWindow",
    "TopK",
    "UnionAll",
    "UntilNext",
    "ValidWindow",
    "Window",
    "WindowKind",
    "WindowSample",
    "arrivals_of",
    "evaluation_period",
    "is_nrr",
    "is_static",
    "leaves",
    "own_sessions",
    "own_windows",
    "unbounded",
    "unjoined",
]
