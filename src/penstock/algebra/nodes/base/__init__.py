"""The base classes of the logical algebra, and functions over plans."""

from penstock.algebra.nodes.base.algebra import (
    NO_KEYS,
    RECORD,
    Algebra,
    ColumnPruning,
    Delay,
    Evaluation,
    Keys,
    Pruned,
    column_labels,
    common_domain,
    has_lives,
    has_operator,
    inclusion_column,
    is_static,
    leaves,
    named,
    operators,
    stays_or_passes,
    stored_sides,
)
from penstock.algebra.nodes.base.arrival_time import ArrivalTime, arrival_column
from penstock.algebra.nodes.base.families import Compared, Emitted, RowWise, Unary
from penstock.algebra.nodes.base.under_preference import PREFERENCE_DRAWS, UnderPreference
from penstock.algebra.nodes.base.windows import StreamToRelation, TimeModelWindow

__all__ = [
    "NO_KEYS",
    "PREFERENCE_DRAWS",
    "RECORD",
    "Algebra",
    "ArrivalTime",
    "ColumnPruning",
    "Compared",
    "Delay",
    "Emitted",
    "Evaluation",
    "Keys",
    "Pruned",
    "RowWise",
    "StreamToRelation",
    "TimeModelWindow",
    "Unary",
    "UnderPreference",
    "arrival_column",
    "column_labels",
    "common_domain",
    "has_lives",
    "has_operator",
    "inclusion_column",
    "is_static",
    "leaves",
    "named",
    "operators",
    "stays_or_passes",
    "stored_sides",
]
