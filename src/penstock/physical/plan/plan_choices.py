"""Choices of a query while it is lowered: which apply to an operator, and which operators they set apart from others'.

Law: a choice has no bearing on the answer. A join takes its inputs in any order, every kind of synopsis holds the same
elements, and a step computes the same whether or not others read it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from penstock.algebra import Algebra
from penstock.algebra.analysis.operator_keys import operator_key
from penstock.algebra.nodes.query import PlanChoice
from penstock.physical.plan.spec import Spec
from penstock.physical.plan.step_choices import KIND, SHARED, KindChoice, StepChoices, kind_named


@dataclass
class QueryChoices:
    """The choices of one query. query: its name."""

    query: str = ""
    choices: Sequence[PlanChoice] = ()
    _values: dict[tuple[str, str], str] = field(init=False)
    #: By the key of an operator, the choices of it.
    _by_operator: dict[str, list[PlanChoice]] = field(init=False)
    #: By fingerprint of an operator, those of it and of all below it.
    _below: dict[str, frozenset[PlanChoice]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._values = {(one.operator, one.attribute): one.value for one in self.choices}
        self._by_operator = {}
        for one in self.choices:
            self._by_operator.setdefault(one.operator.partition(".")[0], []).append(one)

    def value(self, operator: str, attribute: str) -> str | None:
        """Return what is chosen, None for the planner's choice."""
        return self._values.get((operator, attribute))

    def owner(self, operator: str) -> str:
        """Return the name of the query where a step is to be its own, an empty text else."""
        return self.query if self.value(operator, SHARED) == "false" else ""

    def variant(self, node: Algebra) -> str:
        """Return by what an operator differs from equal ones of other queries; empty where none of the choices is about
        it or what is below it."""
        if not self.choices:
            return ""
        found = self._of(node)
        if not found:
            return ""
        is_own = any(one.attribute == SHARED for one in found)
        return f"|{sorted(found)}|{self.query if is_own else ''}"

    def _of(self, node: Algebra) -> frozenset[PlanChoice]:
        known = self._below.get(node.fingerprint)
        if known is None:
            own = self._by_operator.get(operator_key(node), ())
            known = frozenset(own).union(*(self._of(child) for child in node.inputs))
            self._below[node.fingerprint] = known
        return known

    def applied(
        self, spec: Spec, operator: str, elsewhere: Mapping[str, KindChoice] | None = None
    ) -> tuple[Spec, StepChoices]:
        """Return a spec with the kinds that are chosen for it, and what can be chosen of its step.

        Args:
            operator: what its choices go by.
            elsewhere: by part, kinds that were chosen of another operator, in whose place this one is.
        """
        kinds_of: dict[str, KindChoice] = {}
        for part, kinds in spec.kinds.items():
            at = None if elsewhere is None else elsewhere.get(part)
            by, attribute = (operator, KIND + part) if at is None else (at.operator, at.attribute)
            word = self.value(by, attribute)
            kind = None if word is None else kind_named(word, kinds.possible)
            kinds_of[part] = KindChoice(part, by, attribute, kind or kinds.kind, kinds.possible, kind is not None)
        chosen = {part: one.kind for part, one in kinds_of.items() if one.is_chosen}
        choices = StepChoices(operator, self.owner(operator), None, tuple(kinds_of.values()))
        return spec.with_kinds(chosen) if chosen else spec, choices


def step_operator(node: Algebra, title: str) -> str:
    """Return what the choices of a step go by. title: of its spec."""
    return f"{operator_key(node)}.{title}"
