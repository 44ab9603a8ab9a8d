"""Grouping and duplicate elimination [semantics 4.2]."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from penstock.algebra.nodes.base import (
    RECORD,
    Algebra,
    ColumnPruning,
    Keys,
    Pruned,
    Unary,
    column_labels,
    inclusion_column,
    is_static,
    named,
    operators,
    stays_or_passes,
)
from penstock.algebra.nodes.base.checks import need_relations, refused
from penstock.algebra.nodes.frequent import blocks_of_rows
from penstock.algebra.nodes.stretch_chances import recorded_columns
from penstock.algebra.properties.boundedness import Boundedness, Grade
from penstock.algebra.properties.cardinality import Estimate
from penstock.algebra.properties.domains import Domains, domain_of_type
from penstock.algebra.properties.need import Needs, everything, needs_of_relations
from penstock.algebra.properties.promises import NO_PROMISES, Promises
from penstock.algebra.properties.statistics import Statistics
from penstock.algebra.properties.timestamps import NO_RISINGS, Risings, only_exact
from penstock.algebra.properties.update_pattern import Pattern
from penstock.expressions.aggregates import function_of
from penstock.expressions.aggregates.bounds import Accuracy
from penstock.expressions.calls.text import to_sql
from penstock.expressions.nodes import AggregateCall, columns_of
from penstock.expressions.user import UserAggregateCall
from penstock.types import Field, Schema


@dataclass(frozen=True, eq=False)
class Aggregate(Algebra):
    """One row per non-empty group: the `group` columns (positions in the input), then the aggregates.

    An empty `group` means the ungrouped aggregate: always exactly one row. `names` names the aggregates' columns.
    Arguments of the aggregates are arbitrary expressions over the input.
    """

    in_language: ClassVar[str] = "GROUP BY or an aggregate"

    input: Algebra
    group: tuple[int, ...]
    aggregates: tuple[AggregateCall, ...]
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.aggregates and not self.group:
            raise refused("groups by no column need an aggregate")

    @property
    def is_plain_sql(self) -> bool:
        # An aggregate of panes depends on the validity of its rows, which the content of a window does not have.
        return is_static(self) or not any(map(is_cut, self.aggregates))

    @property
    def needs(self) -> Needs:
        # Elements bring their validity. Blocks of rows are counted from the first element of the stream.
        by_number = not self.is_plain_sql and blocks_of_rows(self.input) is not None
        return everything(self.source_names) if by_number else needs_of_relations(self.inputs)

    @property
    def schema(self) -> Schema:
        grouped = tuple(self.input.schema[i] for i in self.group)
        computed = tuple(Field(n, a.type) for n, a in zip(self.names, self.aggregates, strict=True))
        return Schema(grouped + computed)

    @property
    def pattern(self) -> Pattern:
        return Pattern.MONOTONIC if is_static(self) or self.is_complete_at_once else Pattern.STRICT

    @property
    def is_complete_at_once(self) -> bool:
        """Return whether each group is complete when its first row enters: no later row is in it, and none leaves."""
        below = self.input
        return below.pattern is Pattern.MONOTONIC and not below.timestamps.keys().isdisjoint(self.group)

    @property
    def rising(self) -> Risings:
        if not stays_or_passes(self.input):
            return NO_RISINGS
        found = self.input.rising
        # What leaves changes a group later than its rows entered.
        below = found if self.input.pattern is Pattern.MONOTONIC else only_exact(found)
        return {place: below[column] for place, column in enumerate(self.group) if column in below}

    @property
    def ending(self) -> Risings:
        """Return by its place in `group` each column by which groups become final: those with a value below that of
        the present get no rows any more."""
        return _ending(self.input, self.group)

    @property
    def keys(self) -> Keys:
        return frozenset({frozenset(range(len(self.group)))})

    @property
    def boundedness(self) -> Boundedness:
        return self.input.bounded_by_keys(self.group, self.input.boundedness, "groups")

    @property
    def stored(self) -> tuple[Boundedness, ...]:
        return (_until_final(self.boundedness, self.ending, "groups", self.schema),)

    @property
    def domains(self) -> Domains:
        below = self.input.domains
        return (*(below[c] for c in self.group), *(domain_of_type(call.type) for call in self.aggregates))

    @property
    def carries_ends(self) -> bool:
        return False

    def lives_within(self, holds: Callable[[Algebra], bool]) -> bool:
        # An ungrouped aggregate has its row also where its input is empty.
        return bool(self.group) and holds(self.input)

    @property
    def may_be_kept(self) -> bool:
        return True

    @property
    def may_stand_over_internal(self) -> bool:
        return True

    def with_inclusion(self) -> Algebra | None:
        below = self.input.with_inclusion()
        recorded = None if below is None else recorded_columns(self.input)
        if below is None or recorded is None or not self.group or not recorded <= set(self.group):
            return super().with_inclusion()
        # All rows of a group have one record.
        record = AggregateCall(RECORD.type, "MIN", (inclusion_column(len(self.input.schema)),))
        return Aggregate(below, self.group, (*self.aggregates, record), (*self.names, RECORD.name))

    def pruned(self, needed: frozenset[int], pruning: ColumnPruning) -> Pruned:
        # Group columns make the groups, whether or not they are read.
        width = len(self.group)
        kept = [n for n in range(len(self.aggregates)) if width + n in needed]
        if not kept and not width:
            kept = [0]
        calls = [self.aggregates[n] for n in kept]
        below = pruning.narrowed(self.input, frozenset(self.group).union(*(columns_of(call) for call in calls)))
        moved = tuple(call for call in map(below.moved, calls) if isinstance(call, AggregateCall))
        group = tuple(below.positions[i] for i in self.group)
        positions = {i: i for i in range(width)} | {width + n: width + i for i, n in enumerate(kept)}
        return Pruned(Aggregate(below.node, group, moved, tuple(self.names[n] for n in kept)), positions)

    def estimate_from(self, inputs: Sequence[Estimate], statistics: Statistics) -> Estimate:
        """Return the estimate: one tuple per group, replaced whenever an element enters or leaves."""
        (below,) = inputs
        groups = below.combinations(self.group)
        own = tuple(below.distinct[i] for i in self.group)
        rate = below.rate
        return Estimate(rate, groups / rate, own + tuple(groups for _ in self.aggregates), rate)

    def cost_from(self, inputs: Sequence[Estimate], own: Estimate) -> float:
        return self.cost_with_state(inputs, own)

    def describe(self) -> Mapping[str, str]:
        labels = column_labels(self.input.schema)
        calls = (named(to_sql(a, labels), n) for a, n in zip(self.aggregates, self.names, strict=True))
        shown = {"group": ", ".join(labels[i] for i in self.group) or "()", "aggregates": ", ".join(calls)}
        replaced = {text: f", in place of {call}" for text, call in self.replacements.items()}
        errors = [f"{call}: {one.text}{replaced.get(call, '')}" for call, one in self.approximations.items()]
        return {**shown, "errors": "; ".join(errors)} if errors else shown

    @property
    def approximations(self) -> Mapping[str, Accuracy]:
        """Return by the text of each approximate call how it is computed and how far it may be off."""
        labels = column_labels(self.input.schema)
        found = {to_sql(call, labels): _accuracy(call) for call in self.aggregates}
        return {text: accuracy for text, accuracy in found.items() if accuracy is not None}

    @property
    def replacements(self) -> Mapping[str, str]:
        """Return by the text of each call that a setting has put in place of an exact one what that was."""
        labels = column_labels(self.input.schema)
        return {to_sql(call, labels): call.in_place_of for call in self.aggregates if call.in_place_of}


def constant_width(root: Algebra) -> float | None:
    """Return the widest bound, as a share of the value at a confidence of 0.95, of the sketches of a query whose width
    is the same for all values; None where there are none."""
    found = [
        one.width for node in operators(root) if isinstance(node, Aggregate) for one in node.approximations.values()
    ]
    return max((width for width in found if width is not None), default=None)


def is_cut(call: AggregateCall) -> bool:
    """Return whether the values of a call are cut pane by pane."""
    cells = None if isinstance(call, UserAggregateCall) else function_of(call).cells(call)
    return cells is not None and cells.cut


def _ending(below: Algebra, group: Sequence[int]) -> Risings:
    if below.pattern is not Pattern.MONOTONIC or is_static(below):
        return NO_RISINGS
    found = below.rising
    return {place: found[column] for place, column in enumerate(group) if column in found}


def _until_final(bound: Boundedness, ending: Risings, what: str, schema: Schema) -> Boundedness:
    return bounded_until_final(bound, what, stretches(ending, schema)[0]) if ending else bound


def bounded_until_final(bound: Boundedness, what: str, stretch: str) -> Boundedness:
    """Return what bounds the state of groups, or of rows, that become final. what: their noun; stretch: as of
    `stretches`."""
    if bound.grade <= Grade.BOUNDED:
        return bound
    return Boundedness(Grade.BOUNDED, f"the {what} of {stretch}", source=bound.source, length=None)


def stretches(ending: Risings, schema: Schema) -> list[str]:
    """Return such as `one hour` for each column of `ending`: the time in which it has one value."""
    labels = column_labels(schema)
    return [one.stretch or f"one value of {labels[place]}" for place, one in ending.items()]


def _accuracy(call: AggregateCall) -> Accuracy | None:
    return None if isinstance(call, UserAggregateCall) else function_of(call).accuracy(call)


@dataclass(frozen=True, eq=False)
class Distinct(Unary):
    """Every tuple once (δ; δ* where expirations are known `[golab 3.5.2]`)."""

    def __post_init__(self) -> None:
        need_relations(self.inputs)

    @property
    def is_plain_sql(self) -> bool:
        return True

    @property
    def pattern(self) -> Pattern:
        below = self.input.pattern
        return Pattern.WEAK if below is Pattern.WEAKEST else below

    @property
    def is_complete_at_once(self) -> bool:
        """Return whether equal rows enter together, and none leaves."""
        return self.input.pattern is Pattern.MONOTONIC and bool(self.input.timestamps)

    @property
    def rising(self) -> Risings:
        found = self.input.rising
        return found if self.pattern is Pattern.MONOTONIC else only_exact(found)

    @property
    def ending(self) -> Risings:
        """Return each column by which rows become final: those below the present have no duplicates any more."""
        return _ending(self.input, range(len(self.schema)))

    @property
    def promises(self) -> Promises:
        return self.input.promises if self.enters_with_elements else NO_PROMISES

    @property
    def enters_with_elements(self) -> bool:
        return self.input.enters_with_elements and self.pattern is Pattern.MONOTONIC

    def with_inclusion(self) -> Algebra | None:
        # Equal rows of one value have one record.
        below = None if recorded_columns(self.input) is None else self.input.with_inclusion()
        return super().with_inclusion() if below is None else replace(self, input=below)

    @property
    def keys(self) -> Keys:
        return self.input.keys | {frozenset(range(len(self.schema)))}

    @property
    def boundedness(self) -> Boundedness:
        return self.bounded_by_keys(tuple(range(len(self.schema))), self.input.boundedness, "different rows")

    @property
    def stored(self) -> tuple[Boundedness, ...]:
        return (_until_final(self.boundedness, self.ending, "different rows", self.schema),)

    @property
    def domains(self) -> Domains:
        return self.input.domains

    @property
    def carries_ends(self) -> bool:
        return self.pattern is not Pattern.STRICT and self.input.carries_ends

    def lives_within(self, holds: Callable[[Algebra], bool]) -> bool:
        return holds(self.input)

    def estimate_from(self, inputs: Sequence[Estimate], statistics: Statistics) -> Estimate:
        return inputs[0].distinct_rows()

    def cost_from(self, inputs: Sequence[Estimate], own: Estimate) -> float:
        return self.cost_with_state(inputs, own)
