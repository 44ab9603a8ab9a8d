"""One lowering per logical operator, a file per family; importing this package registers them all."""

from penstock.physical.lowering import aggregates, joins, matching, rowwise, streams
from penstock.physical.lowering.builder import Builder, Lowered, lower
from penstock.physical.lowering.streams import lower_changes

__all__ = ["Builder", "Lowered", "aggregates", "joins", "lower", "lower_changes", "matching", "rowwise", "streams"]
