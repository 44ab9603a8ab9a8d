"""GROUP BY .. FREQUENT k: the items that are frequent in a sliding window, from the top k of its panes `[golab 6]`.

A *pane* is the elements of R(τ) with the same validity. Of every live pane, and every value of the `per` columns, the k
items with the greatest counts are listed, with exact counts; equal counts by the items themselves, the least first.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar

import pyarrow as pa

from penstock.algebra.nodes.base import (
    Algebra,
    ColumnPruning,
    Keys,
    Pruned,
    TimeModelWindow,
    column_labels,
    has_lives,
    is_static,
    named,
)
from penstock.algebra.nodes.base.checks import need_relations
from penstock.algebra.nodes.frequency_window import FrequencyWindow
from penstock.algebra.nodes.internal import own_operators
from penstock.algebra.nodes.rowwise import Project, Select
from penstock.algebra.nodes.windows import RowWindow
from penstock.algebra.properties.boundedness import Boundedness
from penstock.algebra.properties.cardinality import Estimate
from penstock.algebra.properties.need import Needs, needs_of_relations
from penstock.algebra.properties.statistics import Statistics
from penstock.algebra.properties.update_pattern import Pattern
from penstock.errors import PenstockError
from penstock.expressions.calls.functions import build_call
from penstock.expressions.calls.text import to_sql
from penstock.expressions.coercion import is_decimal, is_integer
from penstock.expressions.nodes import AggregateCall, Literal, columns_of
from penstock.types import Field, Schema, type_name


class Measure(enum.Enum):
    """A column about an item: the count in the lists that hold it, which is its least true count; that and the missed
    counts of the panes whose list lacks it; the greatest count of an item in no list (δ)."""

    RECORDED = "recorded"
    UPPER = "upper"
    MISSED = "missed"


@dataclass(frozen=True, eq=False)
class Frequent(Algebra):
    """The frequent items of a window: the `group` columns, then the `measures`.

    With recorded(x) the sum over the lists that hold x, δ_i the count of the (k+1)-th item of pane i (of the k-th where
    `thesis`; 0 where it has no more than k items) and δ their sum, an item of a list is in the result if recorded(x) >
    δ; with `above` if that is greater than `above`, or, below 1, than that fraction of all counts in the window. or
    possibly: if recorded(x) plus the δ_i of the panes whose list lacks x is greater.

    Args:
        group: positions in the input.
        aggregate: COUNT or SUM, of which values below 0 count 0; an item that counts 0 in a pane is not in it.
        per: positions in `group`: each value of these columns has lists, δ and totals of its own.
        measures: the columns behind the group's, named `names`.
    """

    in_language: ClassVar[str] = "GROUP BY .. FREQUENT"

    input: Algebra
    group: tuple[int, ...]
    aggregate: AggregateCall
    k: int
    per: tuple[int, ...]
    above: Fraction | None
    possibly: bool
    thesis: bool
    measures: tuple[Measure, ...]
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        need_relations(self.inputs)

    @property
    def schema(self) -> Schema:
        grouped = tuple(self.input.schema[i] for i in self.group)
        return Schema(grouped + tuple(Field(name, self.aggregate.type) for name in self.names))

    @property
    def pattern(self) -> Pattern:
        return Pattern.MONOTONIC if is_static(self) else Pattern.STRICT

    @property
    def keys(self) -> Keys:
        return frozenset({frozenset(range(len(self.group)))})

    @property
    def needs(self) -> Needs:
        # Elements bring their validity. Blocks of rows are counted from the first element of the stream.
        return super().needs if blocks_of_rows(self.input) is not None else needs_of_relations(self.inputs)

    @property
    def boundedness(self) -> Boundedness:
        return self.input.bounded_by_keys(self.group, self.input.boundedness, "listed items")

    @property
    def carries_ends(self) -> bool:
        return False

    def lives_within(self, holds: Callable[[Algebra], bool]) -> bool:
        return holds(self.input)

    def pruned(self, needed: frozenset[int], pruning: ColumnPruning) -> Pruned:
        width = len(self.group)
        kept = [n for n in range(len(self.measures)) if width + n in needed]
        below = pruning.narrowed(self.input, frozenset(self.group) | columns_of(self.aggregate))
        aggregate = below.moved(self.aggregate)
        assert isinstance(aggregate, AggregateCall)
        node = replace(
            self,
            input=below.node,
            group=tuple(below.positions[i] for i in self.group),
            aggregate=aggregate,
            measures=tuple(self.measures[n] for n in kept),
            names=tuple(self.names[n] for n in kept),
        )
        return Pruned(node, {i: i for i in range(width)} | {width + n: width + i for i, n in enumerate(kept)})

    def estimate_from(self, inputs: Sequence[Estimate], statistics: Statistics) -> Estimate:
        (below,) = inputs
        items = min(below.combinations(self.group), self.k * below.combinations(tuple(self.group[i] for i in self.per)))
        rate = below.rate
        own = tuple(min(items, below.distinct[i]) for i in self.group)
        return Estimate(rate, items / rate, own + tuple(items for _ in self.measures), rate)

    def cost_from(self, inputs: Sequence[Estimate], own: Estimate) -> float:
        return self.cost_with_state(inputs, own)

    @property
    def threshold(self) -> tuple[int, int] | None:
        """Return the fraction of all counts above which an item is in the result; None where it is a number or δ."""
        if self.above is None or self.above >= 1:
            return None
        return self.above.numerator, self.above.denominator

    @property
    def limit(self) -> int | None:
        """Return the count above which an item is in the result, in units of the last decimal of the aggregate."""
        if self.above is None or self.above < 1:
            return None
        return int(self.above * 10 ** scale_of(self.aggregate.type))

    def describe(self) -> Mapping[str, str]:
        labels = column_labels(self.input.schema)
        call = to_sql(self.aggregate, labels)
        missed = "k-th" if self.thesis else "(k+1)-th"
        shown = {
            "group": ", ".join(labels[i] for i in self.group),
            "frequent": f"{self.k} by {call}",
            "measures": ", ".join(named(m.value, n) for m, n in zip(self.measures, self.names, strict=True)),
            "missed": f"at most δ, the sum over panes of the count of the {missed} item; certain",
        }
        if self.per:
            shown["per"] = ", ".join(labels[self.group[i]] for i in self.per)
        limit = "δ" if self.above is None else f"{float(self.above):g}" + (" of the total" if self.above < 1 else "")
        return shown | {"above": f"{limit}{' or possibly' if self.possibly else ''}"}


#: Items kept of a pane: more would bound no state.
MOST_ITEMS = 1_000_000
#: Digits of a DECIMAL whose sums are compared exactly.
_DIGITS = 18
#: The largest denominator of a fraction of all counts.
_FINEST = 10**9


def check_above(above: Fraction | None) -> None:
    """Raise PenstockError P0203 for a threshold that is neither a fraction nor a count."""
    if above is None or (0 < above < 1 and above.denominator <= _FINEST) or 1 <= above < 2**63:
        return
    hint = "ABOVE 0.05 is a twentieth of the total, ABOVE 100 a count"
    message = "ABOVE takes a fraction between 0 and 1 of at most 9 decimals, or a count"
    raise PenstockError("P0203", message, hint=hint)


def check_aggregate(call: AggregateCall) -> None:
    """Raise PenstockError P0203 or P0356 for an aggregate by which no items are kept."""
    if call.function not in ("COUNT", "SUM") or call.distinct:
        raise PenstockError("P0356", "FREQUENT keeps items by COUNT or SUM", hint="write BY COUNT(x) or BY SUM(x)")
    kind = call.arguments[0].type if call.function == "SUM" else None
    if kind is None or is_integer(kind) or (is_decimal(kind) and kind.precision <= _DIGITS):
        return
    hint = f"cast it, as in SUM(CAST(x AS DECIMAL({_DIGITS}, 2)))"
    message = f"FREQUENT adds up integers and decimals of at most {_DIGITS} digits exactly, not {type_name(kind)}"
    raise PenstockError("P0203", message, hint=hint)


def scale_of(type_: pa.DataType) -> int:
    """Return the decimals of a number."""
    return int(type_.scale) if pa.types.is_decimal(type_) else 0


def counted(call: AggregateCall) -> AggregateCall:
    """Return the aggregate with values below 0 counted as 0."""
    if call.function != "SUM":
        return call
    (value,) = call.arguments
    zero = Literal(value.type, 0)
    return replace(call, arguments=(build_call("GREATEST", [value, zero]),))


#: A selection or projection of blocks of elements: the window, and the number of elements of a block.
Blocks = tuple[RowWindow | FrequencyWindow, int]


def blocks_of_rows(relation: Algebra) -> Blocks | None:
    """Return the window of the last N elements that moves by b elements, b a divisor of N, that `relation` selects and
    projects alone; None for any other relation. Block number ⌈n / b⌉ of the elements is then a pane."""
    below = relation
    while isinstance(below, Select | Project):
        below = below.input
    if isinstance(below, RowWindow):
        plain = not below.partition and below.length is None and below.slide is None
        step = below.step
    elif isinstance(below, FrequencyWindow):
        plain = not (below.partition or below.by) and below.length is None and below.slide is None
        step = below.every
    else:
        return None
    if not plain or below.rows is None or step is None or below.rows % step:
        return None
    return below, step


def refuse_without_panes(relation: Algebra, what: str) -> None:
    """Raise PenstockError P0352 or P0353 for a relation that is not made of panes. what: the construct."""
    if is_static(relation) or blocks_of_rows(relation) is not None:
        return
    slide = "give the window a SLIDE: [RANGE 100 SECONDS SLIDE 5 SECONDS]"
    below = relation
    while isinstance(below, Select | Project):
        below = below.input
    if isinstance(below, RowWindow | FrequencyWindow):
        step = below.step if isinstance(below, RowWindow) else below.every
        if step is None and below.slide is None:
            hint = "give the window a SLIDE: [ROWS 1000 SLIDE 100 ROWS]"
            raise PenstockError("P0353", f"{what} needs a window that moves by panes", hint=hint)
        hint = "write [ROWS n SLIDE b ROWS] without PARTITION BY and RANGE, where b divides n"
        raise PenstockError("P0352", f"{what} over {below.describe()['window']}, which has no panes", hint=hint)
    if not has_lives(relation) or relation.pattern is Pattern.STRICT:
        hint = "rows must end when their windows say: no row windows, updates, outer joins, DISTINCT or groups below"
        raise PenstockError("P0352", f"{what} over rows that may be retracted", hint=hint)
    if any(o.slide is None for o in own_operators(relation) if isinstance(o, TimeModelWindow)):
        raise PenstockError("P0353", f"{what} needs windows that move by panes", hint=slide)
