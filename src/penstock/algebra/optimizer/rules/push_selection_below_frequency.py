"""Whole substreams that are not selected need not be counted."""

from __future__ import annotations

from dataclasses import replace

from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.frequency import Frequency
from penstock.algebra.nodes.rowwise import Select
from penstock.algebra.optimizer.rules.support import is_volatile, same_for_equal
from penstock.expressions.nodes import columns_of, conjunction, conjuncts


def push_selection_below_frequency(node: Algebra) -> Algebra:
    """σ_p(F PARTITIONED BY c (S)) = F PARTITIONED BY c (σ_p(S)) where p reads no column but c.

    Law: F treats every substream by itself, and p keeps whole substreams. What is picked keeps its timestamp and its
    place among the others. Parts of the condition move one by one.
    Unsound for:
    - any other column: of the horses among every 100th tuple is not every 100th horse (query 1 of `[csql 7]`, readings
      (a) and (b)), and the last tuple of a slot need not be the last horse;
    - no PARTITIONED BY, for the same reason;
    - volatile functions, and conditions that distinguish -0.0 from 0.0, which are one substream.
    """
    if not isinstance(node, Select) or not isinstance(below := node.input, Frequency):
        return node
    parts = conjuncts(node.predicate)
    key = set(below.partition)
    moved = [p for p in parts if columns_of(p) <= key and key and not is_volatile(p) and same_for_equal(p)]
    if not moved:
        return node
    inside = conjunction(tuple(moved))
    remaining = conjunction(tuple(p for p in parts if p not in moved))
    assert inside is not None
    picked = replace(below, input=Select(below.input, inside))
    return picked if remaining is None else Select(picked, remaining)
