"""Which aggregates need panes, that is elements with equal validity, and whether a relation is made of them."""

from __future__ import annotations

from penstock.algebra.nodes.aggregate import Aggregate, is_cut
from penstock.algebra.nodes.base import Algebra, TimeModelWindow, is_static
from penstock.algebra.nodes.frequency_window import FrequencyWindow
from penstock.algebra.nodes.frequent import Blocks, Frequent, blocks_of_rows
from penstock.algebra.nodes.internal import own_operators
from penstock.algebra.nodes.r2s import own_windows
from penstock.algebra.nodes.rowwise import Project, Select
from penstock.algebra.nodes.windows import RowWindow
from penstock.algebra.properties.update_pattern import Pattern
from penstock.errors import PenstockError
from penstock.expressions.aggregates import function_of
from penstock.expressions.nodes import AggregateCall
from penstock.expressions.user import UserAggregateCall


def check_panes(below: Algebra, call: AggregateCall) -> None:
    """Check that the aggregate `call` can be computed over `below`. Raises PenstockError P0352, P0353."""
    if isinstance(call, UserAggregateCall) or is_static(below):
        return
    # Those of FREQUENCY are panes in some queries only, which is known when the whole query is lowered.
    if not is_cut(call) or blocks_of_rows(below) is not None:
        return
    name = function_of(call).name.removesuffix("_BOUND")
    other = _other(name)
    hint = f"{other} takes any input; {name} takes windows such as [RANGE 1 MINUTE SLIDE 1 SECOND]"
    window = _window_of(below)
    if isinstance(window, RowWindow | FrequencyWindow):
        if isinstance(window, RowWindow) and not window.partition and window.step is None and window.slide is None:
            message = f"{name} needs a window that moves by panes"
            raise PenstockError("P0353", message, hint="give the window a SLIDE: [ROWS 1000 SLIDE 100 ROWS]")
        others = f"{other} takes any; this one takes [RANGE 1 MINUTE SLIDE 1 SECOND], or [ROWS n SLIDE b ROWS]"
        shown = f"{name} over {window.describe()['window']}, which has no panes"
        raise PenstockError("P0352", shown, hint=f"{others} where b divides n")
    if below.pattern is Pattern.STRICT:
        raise PenstockError("P0352", f"{name} over rows that may be retracted", hint=hint)
    windows = [below] if isinstance(below, TimeModelWindow) else list(own_windows(below))
    if not windows or any(window.slide is None for window in windows):
        raise PenstockError("P0353", f"{name} needs a window with SLIDE", hint=hint)


def _other(name: str) -> str:
    """Return what answers about the same question as an aggregate of panes, over any input."""
    return "TOP_K" if name == "APPROX_TOP_K" else "APPROX_QUANTILE"


def refuse_cut(body: Algebra) -> None:
    """Raise PenstockError P0352 for an aggregate of panes in a query with FREQUENCY whose windows have none."""
    for node in own_operators(body):
        for call in node.aggregates if isinstance(node, Aggregate) and not is_static(node) else ():
            if is_cut(call):
                name = function_of(call).name.removesuffix("_BOUND")
                hint = f"write the part with FREQUENCY as a view, and read the view; {_other(name)} takes any input"
                raise PenstockError("P0352", f"{name} beside other windows of a query with FREQUENCY", hint=hint)


def _window_of(relation: Algebra) -> Algebra:
    while isinstance(relation, Select | Project):
        relation = relation.input
    return relation


def needs_panes(node: Algebra) -> bool:
    """Return whether an operator is computed from the panes of its windows, by the validity of their elements."""
    return isinstance(node, Frequent) or (isinstance(node, Aggregate) and any(map(is_cut, node.aggregates)))


def paned_blocks(node: Aggregate) -> Blocks | None:
    """Return the window and the size of its blocks of elements where these are the panes that `node` is computed from;
    None for any other aggregation."""
    return _rows_in_blocks(node.input) if needs_panes(node) else None


def _rows_in_blocks(relation: Algebra) -> Blocks | None:
    """Return the blocks of a row window. Those of FREQUENCY are panes in some queries only, which is known when the
    whole query is."""
    blocks = blocks_of_rows(relation)
    return blocks if blocks is not None and isinstance(blocks[0], RowWindow) else None
