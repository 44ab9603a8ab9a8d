"""What a query means: immutable typed operators, one file per family, with derived properties."""

from penstock.algebra.aggregate import Aggregate, Distinct
from penstock.algebra.announced import Announced
from penstock.algebra.arrivals import Stamped
from penstock.algebra.internal import Internal
from penstock.algebra.join import Join
from penstock.algebra.matching import OuterJoin, OuterKind, SemiJoin, SemiKind
from penstock.algebra.multi_join import MultiJoin
from penstock.algebra.nodes import Algebra, is_static, leaves
from penstock.algebra.nonretroactive import NRRJoin, is_elementwise, is_nrr, unjoined
from penstock.algebra.pattern import Pattern
from penstock.algebra.r2s import RelationToStream, StreamKind, evaluation_period, own_windows
from penstock.algebra.results import Restored, Results
from penstock.algebra.rowwise import Project, Select
from penstock.algebra.sample import Sample
from penstock.algebra.scans import OnError, RelationScan, Scan, Source, StreamScan
from penstock.algebra.setops import Except, Intersect, UnionAll
from penstock.algebra.topk import SortKey, TopK
from penstock.algebra.windows import RowWindow, Window, WindowKind

__all__ = [
    "Aggregate", "Algebra", "Announced", "Distinct", "Except", "Internal", "Intersect", "Join", "MultiJoin",
    "NRRJoin", "OnError", "OuterJoin", "OuterKind", "Pattern", "Project", "RelationScan", "RelationToStream",
    "Restored", "Results", "RowWindow", "Sample", "Scan", "Select", "SemiJoin", "SemiKind", "SortKey", "Source",
    "Stamped", "StreamKind", "StreamScan", "TopK", "UnionAll", "Window", "WindowKind", "evaluation_period",
    "is_elementwise", "is_nrr", "is_static", "leaves", "own_windows", "unjoined",
]  # fmt: skip
