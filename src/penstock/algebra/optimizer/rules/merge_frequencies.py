"""Frequencies that compose (`[csql 5]`)."""

from __future__ import annotations

from dataclasses import replace

from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.frequency import Frequency


def merge_frequencies(node: Algebra) -> Algebra:
    """F_n(F_m(S)) = F_nm(S); F_t(F_u(S)) = F_t(S) where t is a multiple of u. Read from right to left it splits them.

    Law: every n-th of every m-th element is every nm-th. The last element of a slot of t is the last one of the last
    slot of u in it that has any, and it is stamped with the end of the slot of t either way; so it is emitted at the
    same heartbeat.
    Unsound for:
    - frequencies in time that do not divide: F_3(F_2(S)) of elements at 3 and 4: the inner one stamps both 4, of which
      the last is emitted at 6; S itself has 3 in the slot that ends at 3;
    - other substreams: every second of each horse's second elements is not every fourth of each horse's;
    - a frequency in time and one in tuples.
    """
    if not isinstance(node, Frequency) or not isinstance(below := node.input, Frequency):
        return node
    if set(node.partition) != set(below.partition):
        return node
    if node.rows is not None and below.rows is not None:
        return replace(below, rows=node.rows * below.rows)
    if node.slot is not None and below.slot is not None and node.slot % below.slot == 0:
        return replace(below, slot=node.slot)
    return node
