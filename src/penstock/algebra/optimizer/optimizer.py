"""The optimizer: the rules of `rules/` applied in order, with a trace and checked invariants.

Contract: `optimize(root)` means what `root` means, at every instant [semantics 2]. Phases run in order: rewrite to a
fixpoint, simplify update patterns by cost, gather joins, rewrite, prune columns, rewrite again (both leave projections
to merge). `optimize` is idempotent and, for equal plans and equal statistics, gives equal plans, so sharing by
fingerprint works on its results.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.frequency import Frequency, Sequenced
from penstock.algebra.nodes.r2s import RelationToStream, StreamKind, evaluation_period
from penstock.algebra.optimizer.cost import plan_cost
from penstock.algebra.optimizer.rules import RULES, Phase, Rule, RuleKind
from penstock.algebra.optimizer.statistics import Statistics
from penstock.algebra.render import render
from penstock.deep import deep
from penstock.explain import to_text
from penstock.tree import Node, transform_down, walk

#: Phases whose rules are applied together, in order.
PHASES: tuple[frozenset[Phase], ...] = (
    frozenset({Phase.REWRITE}),
    frozenset({Phase.REWRITE, Phase.SIMPLIFY}),
    frozenset({Phase.JOINS}),
    frozenset({Phase.REWRITE}),
    frozenset({Phase.PRUNE}),
    frozenset({Phase.REWRITE}),
)

#: Rounds over a phase's rules. Plans written by people settle in a few; more means that two rules undo each other.
MAX_ROUNDS = 40

#: The part of its cost by which a plan must be cheaper to be preferred to the one that was written.
WORTH = 1e-6


@dataclass(frozen=True)
class Planning:
    """What a plan is made for. statistics: what is known of the sources; by_pattern: whether rules may choose by cost
    where operators of which update pattern stand, else they stay where they were written."""

    statistics: Statistics = field(default_factory=Statistics)
    by_pattern: bool = True


@dataclass(frozen=True)
class TraceStep:
    """One rule that changed the plan. before: the fingerprint of the plan it was given; plan: the one it made; costs:
    of a choice by cost, what the plan before and the one after cost; taken: whether the plan was taken: a choice that
    was not is told too."""

    rule: str
    before: str
    plan: Algebra
    costs: tuple[float, float] | None = None
    taken: bool = True

    @property
    def after(self) -> str:
        """`plan` as explain draws it."""
        return to_text(render(self.plan))


class UnsoundRule(AssertionError):
    """A rule broke an invariant, or rules undo each other: a mistake in Penstock, never in a query."""


def optimize(
    root: Algebra,
    trace: list[TraceStep] | None = None,
    *,
    check: bool = False,
    rules: tuple[Rule, ...] = RULES,
    planning: Planning | None = None,
) -> Algebra:
    """Return an equivalent plan that does less. trace: gets a step for every rule that fired and every choice by cost;
    check: verify after each rule what no rule may change; planning: what choices by cost are made by, defaults for
    None. Raises UnsoundRule, only with `check`."""
    plan, steps = _optimized(root, trace is not None, check, rules, planning or Planning())
    if trace is not None:
        trace += steps
    return plan


@deep
def _optimized(
    root: Algebra, traced: bool, check: bool, rules: tuple[Rule, ...], planning: Planning
) -> tuple[Algebra, list[TraceStep]]:
    steps: list[TraceStep] = []
    run = _Run(planning, steps if traced else None, check)
    for _ in range(MAX_ROUNDS):
        before = root
        for phases in PHASES:
            root = _settle(root, tuple(r for r in rules if r.phase in phases), run)
        # What was declined may be worth its cost once the rest of the plan has taken its final shape.
        if root == before or not (run.planning.by_pattern and _has_choices(root, rules)):
            return root, steps
    return _unsettled(root, rules, check), steps


@dataclass(frozen=True)
class _Run:
    """One optimisation. declined: the plans that choices by cost were found to make no cheaper, by fingerprint; idle:
    by rule, the plan that it last had nothing to do for."""

    planning: Planning
    trace: list[TraceStep] | None
    check: bool
    declined: set[tuple[str, str]] = field(default_factory=set)
    idle: dict[str, Algebra] = field(default_factory=dict)

    def told(self, rule: Rule, before: Algebra, after: Algebra, costs: tuple[float, float] | None, taken: bool) -> None:
        if taken and self.check:
            _verify(rule, before, after)
        if self.trace is not None:
            self.trace.append(TraceStep(rule.name, before.fingerprint, after, costs, taken))


def apply(rule: Rule, root: Algebra) -> Algebra:
    """`root` with `rule` applied once everywhere, a choice whatever it costs (the last of several); `root` itself when
    it has nothing to do."""
    if rule.kind is RuleKind.PLAN:
        changed = rule.rewrite(root)
    elif rule.kind is RuleKind.CHOICE:
        changed = transform_down(root, lambda node: (node, *rule.choices(cast(Algebra, node)))[-1], Algebra)
    else:
        changed = transform_down(root, cast(Callable[[Node], Node], rule.rewrite), Algebra)
    return root if changed is root or changed == root else changed


def _settle(root: Algebra, rules: tuple[Rule, ...], run: _Run) -> Algebra:
    for _ in range(MAX_ROUNDS):
        before = root
        for rule in rules:
            root = _step(rule, root, run)
        if root is before:
            return root
    return _unsettled(root, rules, run.check)


def _unsettled(root: Algebra, rules: tuple[Rule, ...], check: bool) -> Algebra:
    """Every plan on the way is equivalent; an unsettled one is only slower."""
    if check:
        raise UnsoundRule(f"no fixpoint after {MAX_ROUNDS} rounds of {', '.join(r.name for r in rules)}")
    return root


def _step(rule: Rule, root: Algebra, run: _Run) -> Algebra:
    if run.idle.get(rule.name) is root:
        return root
    if rule.kind is RuleKind.CHOICE:
        changed = _choose(rule, root, run) if run.planning.by_pattern else root
    else:
        changed = apply(rule, root)
        if changed is not root:
            run.told(rule, root, changed, None, True)
    if changed is root:
        run.idle[rule.name] = root
    return changed


def _choose(rule: Rule, root: Algebra, run: _Run) -> Algebra:
    """Return the first plan that `rule` makes of one of the nodes and that is cheaper than `root`; `root` for none."""
    known = run.planning.statistics
    before: float | None = None
    for node in {n.fingerprint: n for n in walk(root) if isinstance(n, Algebra)}.values():
        for other in rule.choices(node):
            changed = _replaced(root, node, other)
            before = plan_cost(root, known) if before is None else before
            costs = (before, plan_cost(changed, known))
            taken = costs[1] < costs[0] * (1 - WORTH)
            if taken or (rule.name, other.fingerprint) not in run.declined:
                run.told(rule, root, changed, costs, taken)
            if taken:
                return changed
            run.declined.add((rule.name, other.fingerprint))
    return root


def _has_choices(root: Algebra, rules: tuple[Rule, ...]) -> bool:
    choices = [rule.choices for rule in rules if rule.kind is RuleKind.CHOICE]
    return any(choice(node) for node in walk(root) if isinstance(node, Algebra) for choice in choices)


def _replaced(root: Algebra, node: Algebra, other: Algebra) -> Algebra:
    """`root` with `other` wherever `node` stands."""
    if root == node:
        return other
    return root.with_children(tuple(_replaced(c, node, other) if isinstance(c, Algebra) else c for c in root.children))


def _verify(rule: Rule, before: Algebra, after: Algebra) -> None:
    """Properties that every equivalent plan shares, and the pattern, which may only get simpler."""
    for name, read in _INVARIANTS.items():
        if read(before) != read(after):
            raise UnsoundRule(f"{rule.name} changed the {name} from {read(before)} to {read(after)}")
    if after.pattern > before.pattern:
        raise UnsoundRule(f"{rule.name} worsened the pattern from {before.pattern.short} to {after.pattern.short}")


def _clocks(root: Algebra, slot: int | None = None) -> list[tuple[int, int] | None]:
    """Return the instants of every RSTREAM; the others tell changes when they are. A query in the sequence model that
    is evaluated at the boundaries of one frequency alone has those of a SLIDE. slot: what is picked of the answers just
    below: those at other boundaries are not seen."""
    found: list[tuple[int, int] | None] = []
    if isinstance(root, RelationToStream) and root.kind is StreamKind.RSTREAM:
        found.append(_seen(evaluation_period(root), slot))
    elif isinstance(root, Sequenced) and root.reports_all and root.in_time:
        found.append(_seen(root.periods[0], slot))
    below = root.slot if isinstance(root, Frequency) and not root.partition else None
    return found + [clock for child in root.inputs for clock in _clocks(child, below)]


def _seen(period: tuple[int, int] | None, slot: int | None) -> tuple[int, int] | None:
    return (slot, 0) if period is not None and slot is not None and slot % period[0] == 0 == period[1] else period


_INVARIANTS: dict[str, Callable[[Algebra], object]] = {
    "column names": lambda node: node.schema.names,
    "column types": lambda node: node.schema.types,
    "kind (stream or relation)": lambda node: node.is_stream,
    "time domain": lambda node: node.domain,
    "evaluation instants": _clocks,
}
