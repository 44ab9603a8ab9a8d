"""One lowering per logical operator, a file per family; importing this package registers them all."""

from penstock.physical.planning.lowering import (  # noqa: F401 - each registers its lowerings
    aggregates,
    closing_groups,
    coalesce,
    frequency,
    frequent,
    joins,
    multi_join,
    nonretroactive,
    preferences,
    promised_joins,
    restamp,
    results,
    rowwindow,
    rowwise,
    semi_and_outer_joins,
    sets,
    shedding,
    stream_scans,
    streams,
)
from penstock.physical.planning.lowering.builder import Builder, Lowered, lower
from penstock.physical.planning.lowering.frequency import lower_answer
from penstock.physical.planning.lowering.streams import lower_changes

__all__ = ["Builder", "Lowered", "lower", "lower_answer", "lower_changes"]
