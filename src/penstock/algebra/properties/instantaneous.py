"""Two derived properties: at which instants a relation can hold anything at all, told by its own windows.

Contract, whatever selections are later pushed below these windows:

- `is_instantaneous(node)` is true only if R(τ) is empty wherever no element arrives in one of them. An RSTREAM over it
  need not hear of arrivals that the WHERE drops [semantics 4.3]: at these instants nothing would be emitted;
- `is_windowed(node)` is true only if R(τ) is empty wherever all of them are empty, and they do empty. An RSTREAM over
  it need not know when the elements that the WHERE drops expire, which is how long time runs with `--drain`.

False is always a safe answer, and the one an operator without an entry here gets.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatch

from penstock.algebra.nodes.aggregate import Aggregate, Distinct
from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.first_rows import TopK
from penstock.algebra.nodes.join import Join
from penstock.algebra.nodes.multi_join import MultiJoin
from penstock.algebra.nodes.nonretroactive import NRRJoin
from penstock.algebra.nodes.rowwise import Project, Select
from penstock.algebra.nodes.semi_and_outer_joins import OuterJoin, OuterKind, SemiJoin, SemiKind
from penstock.algebra.nodes.set_operations import Except, Intersect, UnionAll
from penstock.algebra.nodes.windows import RowWindow, Window, WindowKind


@singledispatch
def is_instantaneous(node: Algebra) -> bool:
    """Return whether every element of the relation `node` lives only at ticks at which an own-window element
    arrives."""
    return False


@is_instantaneous.register
def _window(node: Window) -> bool:
    # RANGE of one tick is NOW. A SLIDE moves validity to a boundary, where nothing need arrive.
    one_tick = node.kind is WindowKind.NOW or (node.kind is WindowKind.RANGE and node.length == 1)
    return one_tick and node.slide is None


@is_instantaneous.register
def _row_window(node: RowWindow) -> bool:
    return node.lifetime == 1 and node.slide is None


@singledispatch
def is_windowed(node: Algebra) -> bool:
    """Return whether every element of the relation `node` lives only while an element of an own window does, not for
    ever."""
    return False


@is_windowed.register
def _finite(node: Window) -> bool:
    return node.kind is not WindowKind.UNBOUNDED


@is_windowed.register
def _finite_rows(node: RowWindow) -> bool:
    return node.lifetime is not None


def _register(holds: Callable[[Algebra], bool], register: Callable[..., object]) -> None:
    """What both properties have in common: how they pass from inputs to results."""
    for of_the_input in (Select, Project, Distinct, TopK):
        register(of_the_input, lambda node: holds(node.input))
    register(UnionAll, lambda node: all(holds(member) for member in node.members))
    # The joined tuple lives within both sides, so one side is enough.
    register(Join, lambda node: holds(node.left) or holds(node.right))
    register(NRRJoin, lambda node: holds(node.left))
    # A tuple of the left side lives within its own window; that of a semi-join also within its partner's.
    register(SemiJoin, lambda node: holds(node.left) or (node.kind is SemiKind.SEMI and holds(node.right)))
    register(OuterJoin, lambda node: holds(node.left) and (node.kind is OuterKind.LEFT or holds(node.right)))
    register(MultiJoin, lambda node: any(holds(member) for member in node.members))
    register(Except, lambda node: holds(node.left))
    register(Intersect, lambda node: holds(node.left) or holds(node.right))
    # An ungrouped aggregate has its row also where its input is empty.
    register(Aggregate, lambda node: bool(node.group) and holds(node.input))


_register(is_instantaneous, is_instantaneous.register)
_register(is_windowed, is_windowed.register)
