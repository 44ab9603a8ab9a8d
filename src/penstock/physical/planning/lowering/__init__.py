"""One lowering per logical operator, a file per family; importing this package registers them all."""

from penstock.physical.planning.lowering import (
    aggregates,
    coalesce,
    frequency,
    frequent,
    joins,
    matching,
    multi_join,
    nonretroactive,
    preferences,
    results,
    rowwindow,
    rowwise,
    sets,
    shedding,
    streams,
)
from penstock.physical.planning.lowering.builder import Builder, Lowered, lower
from penstock.physical.planning.lowering.frequency import lower_answer
from penstock.physical.planning.lowering.streams import lower_changes

FAMILIES = (
    aggregates,
    coalesce,
    frequency,
    frequent,
    joins,
    matching,
    multi_join,
    nonretroactive,
    preferences,
    results,
    rowwindow,
    rowwise,
    sets,
    shedding,
    streams,
)

__all__ = ["FAMILIES", "Builder", "Lowered", "lower", "lower_answer", "lower_changes"]
