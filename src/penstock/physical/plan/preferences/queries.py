"""The specs of WITH PREFERENCE: entries that wait and are worked on in the order of their keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.algebra.nodes.preference_clause import BudgetKind, Preference, preference_text
from penstock.algebra.nodes.preferences import SummaryAhead
from penstock.algebra.nodes.summary_definition import SummaryDefinition
from penstock.expressions.calls.text import to_sql
from penstock.expressions.nodes import Expression
from penstock.physical.plan.spec import Parameter, Spec
from penstock.physical.plan.state.state_parts import INDEX, TIMES, StateInput, StatePart, all_rows

#: So many units done at once take at most the time of one that is done by the queue. Measured: 8 to 40.
AT_ONCE = 8

#: Bytes of an entry that waits, with its places in the heaps.
ENTRY_BYTES = 148


@dataclass(frozen=True)
class PreferenceSpec(Spec):
    """What all preferences have in common. Fields as in `algebra/nodes/preferences.py`; types: of the left, or only,
    input; arrival: by input, whether its elements come in order of arrival."""

    types: tuple[pa.DataType, ...]
    preference: Preference
    arrival: tuple[bool, ...]

    @property
    def is_granted_units(self) -> bool:
        return self.preference.budget.kind is BudgetKind.AUTO

    @property
    def follows_decisions(self) -> bool:
        return self.is_granted_units

    def describe(self) -> Mapping[str, Parameter]:
        return {"state": "entries by key, elements by number", **preference_text(self.preference)}

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        # Of streams behind these two, only summaries are kept.
        for one, name in zip(inputs, ("left", "right"), strict=False):
            yield all_rows(one, f"elements of the {name} side" if len(inputs) > 1 else "elements", TIMES + INDEX)
        yield all_rows(inputs[0], f"entries that wait, at most {self.preference.queue:,}", ENTRY_BYTES)


@dataclass(frozen=True)
class PreferringJoinSpec(PreferenceSpec):
    """A join of two streams."""

    right_types: tuple[pa.DataType, ...]
    left_key: tuple[int, ...]
    right_key: tuple[int, ...]
    residual: Expression | None
    filters: tuple[Expression | None, Expression | None]
    summaries: tuple[SummaryDefinition | None, SummaryDefinition | None]
    summarised: tuple[tuple[int, ...], tuple[int, ...]]
    into: tuple[tuple[Expression, ...], tuple[Expression, ...]]
    reads_partner: tuple[bool, bool]
    ahead: tuple[SummaryAhead, ...] = ()

    @property
    def title(self) -> str:
        return "PreferringJoin"

    @property
    def summary_parts(self) -> Mapping[str, SummaryDefinition]:
        named = zip(("left summary", "right summary"), self.summaries, strict=True)
        later = {f"later {place} summary": one.summary for place, one in enumerate(self.ahead)}
        return {name: summary for name, summary in named if summary is not None} | later

    def expressions_text(self, inputs: Sequence[Sequence[str]], made: Sequence[str]) -> dict[str, str]:
        return {**_on(self.left_key, self.right_key, inputs[:2]), **_where(self.residual, made)}


@dataclass(frozen=True)
class PreferringSelectionSpec(PreferenceSpec):
    """A selection over one stream. residual: what a unit tests."""

    residual: Expression | None
    filter: Expression | None
    summary: SummaryDefinition | None
    summarised: tuple[int, ...]
    expressions: tuple[Expression, ...]

    @property
    def title(self) -> str:
        return "PreferringSelection"

    @property
    def summary_parts(self) -> Mapping[str, SummaryDefinition]:
        return _left_summary(self.summary)

    def expressions_text(self, inputs: Sequence[Sequence[str]], made: Sequence[str]) -> dict[str, str]:
        return _where(self.residual, made)


@dataclass(frozen=True)
class PreferringLookUpSpec(PreferenceSpec):
    """A join of a stream with a static relation of which every task holds a copy."""

    table: str
    table_types: tuple[pa.DataType, ...]
    key: tuple[int, ...]
    table_key: tuple[int, ...]
    residual: Expression | None
    filter: Expression | None
    summary: SummaryDefinition | None
    summarised: tuple[int, ...]
    expressions: tuple[Expression, ...]
    reads_partner: bool

    @property
    def title(self) -> str:
        return "PreferringLookUp"

    @property
    def summary_parts(self) -> Mapping[str, SummaryDefinition]:
        return _left_summary(self.summary)

    @property
    def static_tables(self) -> tuple[str, ...]:
        return (self.table,)

    def expressions_text(self, inputs: Sequence[Sequence[str]], made: Sequence[str]) -> dict[str, str]:
        return _where(self.residual, made)


@dataclass(frozen=True)
class PreferringNRRLookUpSpec(PreferenceSpec):
    """A join of a stream with a NON RETROACTIVE relation, whose updates come over port 1. Of each partner of an element
    a copy is kept as long as the element."""

    table_types: tuple[pa.DataType, ...]
    key: tuple[int, ...]
    table_key: tuple[int, ...]
    residual: Expression | None
    filter: Expression | None
    summary: SummaryDefinition | None
    summarised: tuple[int, ...]
    expressions: tuple[Expression, ...]
    reads_partner: bool

    @property
    def title(self) -> str:
        return "PreferringLookUp"

    @property
    def summary_parts(self) -> Mapping[str, SummaryDefinition]:
        return _left_summary(self.summary)

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        yield from super().state(inputs[:1], made)
        yield all_rows(inputs[1], "the relation")
        yield all_rows(made, "partners of elements", TIMES + INDEX)

    def expressions_text(self, inputs: Sequence[Sequence[str]], made: Sequence[str]) -> dict[str, str]:
        return {**_on(self.key, self.table_key, inputs), **_where(self.residual, made)}


def _left_summary(summary: SummaryDefinition | None) -> Mapping[str, SummaryDefinition]:
    return {} if summary is None else {"left summary": summary}


def _on(left_key: Sequence[int], right_key: Sequence[int], inputs: Sequence[Sequence[str]]) -> dict[str, str]:
    left, right = inputs
    return {"on": " AND ".join(f"{left[a]} = {right[b]}" for a, b in zip(left_key, right_key, strict=True))}


def _where(residual: Expression | None, made: Sequence[str]) -> dict[str, str]:
    return {} if residual is None else {"where": to_sql(residual, made)}
