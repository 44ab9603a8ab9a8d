"""Only the picked elements need be projected."""

from __future__ import annotations

from dataclasses import replace

from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.base.arrival_order import in_arrival_order
from penstock.algebra.nodes.frequency import Frequency
from penstock.algebra.nodes.rowwise import Project
from penstock.algebra.optimizer.rules.support import is_volatile
from penstock.expressions.nodes import Column


def pull_projection_above_frequency(node: Algebra) -> Algebra:
    """F PARTITIONED BY c (π(S)) = π(F PARTITIONED BY c' (S)) where π passes on the columns c' of S as c.

    Law: π gives one element for one element and keeps the order of arrival, so the same ones are picked. Frequencies
    with a projection between them come to stand one over the other.
    Unsound for:
    - a column of PARTITIONED BY that is computed: S has no such substreams;
    - a stream without an order of arrival, whose elements of one instant are put in the order of their values: π gives
      them other values;
    - volatile functions.
    """
    if not isinstance(node, Frequency) or not isinstance(below := node.input, Project):
        return node
    key = [below.expressions[i] for i in node.partition]
    columns = [e.index for e in key if isinstance(e, Column)]
    if len(columns) < len(key) or any(is_volatile(e) for e in below.expressions) or in_arrival_order(below) is None:
        return node
    picked = replace(node, input=below.input, partition=tuple(columns))
    return replace(below, input=picked)
