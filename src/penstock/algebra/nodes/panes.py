"""Which aggregates need panes, that is elements with equal validity, and whether a relation is made of them."""

from __future__ import annotations

from penstock.algebra.nodes.aggregate import Aggregate
from penstock.algebra.nodes.base import Algebra, TimeModelWindow, is_static
from penstock.algebra.nodes.frequency_window import FrequencyWindow
from penstock.algebra.nodes.frequent import Frequent
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
    function = function_of(call)
    cells = function.cells(call)
    if cells is None or not cells.cut:
        return
    name = function.name.removesuffix("_BOUND")
    hint = f"APPROX_QUANTILE takes any input; {name} takes windows such as [RANGE 1 MINUTE SLIDE 1 SECOND]"
    window = _window_of(below)
    if isinstance(window, RowWindow | FrequencyWindow):
        of_time = f"APPROX_QUANTILE takes any window; {name} takes those such as [RANGE 1 MINUTE SLIDE 1 SECOND]"
        raise PenstockError(
            "P0352", f"{name} over {window.describe()['window']}, which has no panes of time", hint=of_time
        )
    if below.pattern is Pattern.STRICT:
        raise PenstockError("P0352", f"{name} over rows that may be retracted", hint=hint)
    windows = [below] if isinstance(below, TimeModelWindow) else list(own_windows(below))
    if not windows or any(window.slide is None for window in windows):
        raise PenstockError("P0353", f"{name} needs a window with SLIDE", hint=hint)


def _window_of(relation: Algebra) -> Algebra:
    while isinstance(relation, Select | Project):
        relation = relation.input
    return relation


def needs_panes(node: Algebra) -> bool:
    """Return whether an operator is computed from the panes of its windows, by the validity of their elements."""
    return isinstance(node, Frequent) or (isinstance(node, Aggregate) and any(map(_is_cut, node.aggregates)))


def _is_cut(call: AggregateCall) -> bool:
    cells = None if isinstance(call, UserAggregateCall) else function_of(call).cells(call)
    return cells is not None and cells.cut
