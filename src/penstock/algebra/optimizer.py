"""The optimizer: the rules of `rules/` applied in order, with a trace and checked invariants.

Contract: `optimize(root)` means what `root` means, at every instant (LANGUAGE 2). Phases run in order: rewrite to a
fixpoint, gather joins, rewrite, prune columns, rewrite again (both leave projections to merge). `optimize` is
idempotent and, for equal plans, gives equal plans, so sharing by fingerprint works on its results.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from penstock.algebra.frequency import Sequenced
from penstock.algebra.nodes import Algebra
from penstock.algebra.r2s import RelationToStream, StreamKind, evaluation_period
from penstock.algebra.render import render
from penstock.algebra.rules import RULES, Kind, Phase, Rule
from penstock.explain import to_text
from penstock.tree import Node, transform_down, walk

PHASES: tuple[Phase, ...] = (Phase.REWRITE, Phase.JOINS, Phase.REWRITE, Phase.PRUNE, Phase.REWRITE)

#: Rounds over a phase's rules. Plans written by people settle in a few; more means that two rules undo each other.
MAX_ROUNDS = 40


@dataclass(frozen=True)
class TraceStep:
    """One rule that changed the plan. before: the fingerprint of the plan it was given; after: the plan it made, as
    explain draws it."""

    rule: str
    before: str
    after: str


class UnsoundRule(AssertionError):
    """A rule broke an invariant, or rules undo each other: a mistake in Penstock, never in a query."""


def optimize(
    root: Algebra,
    trace: list[TraceStep] | None = None,
    *,
    check: bool = False,
    rules: tuple[Rule, ...] = RULES,
) -> Algebra:
    """An equivalent plan that does less. trace: gets a step for every rule that fired; check: verify after each rule
    what no rule may change. Raises UnsoundRule, only with `check`."""
    for phase in PHASES:
        root = _settle(root, tuple(r for r in rules if r.phase is phase), trace, check)
    return root


def apply(rule: Rule, root: Algebra) -> Algebra:
    """`root` with `rule` applied once everywhere; `root` itself when it has nothing to do."""
    if rule.kind is Kind.PLAN:
        changed = rule.function(root)
    else:
        changed = transform_down(root, cast(Callable[[Node], Node], rule.function), Algebra)
    return root if changed is root or changed == root else changed


def _settle(root: Algebra, rules: tuple[Rule, ...], trace: list[TraceStep] | None, check: bool) -> Algebra:
    for _ in range(MAX_ROUNDS):
        before = root
        for rule in rules:
            root = _step(rule, root, trace, check)
        if root is before:
            return root
    if check:
        raise UnsoundRule(f"no fixpoint after {MAX_ROUNDS} rounds of {', '.join(r.name for r in rules)}")
    # Every plan on the way is equivalent; an unsettled one is only slower.
    return root


def _step(rule: Rule, root: Algebra, trace: list[TraceStep] | None, check: bool) -> Algebra:
    changed = apply(rule, root)
    if changed is root:
        return root
    if check:
        _verify(rule, root, changed)
    if trace is not None:
        trace.append(TraceStep(rule.name, root.fingerprint, to_text(render(changed))))
    return changed


def _verify(rule: Rule, before: Algebra, after: Algebra) -> None:
    """Properties that every equivalent plan shares, and the pattern, which may only get simpler."""
    for name, read in _INVARIANTS.items():
        if read(before) != read(after):
            raise UnsoundRule(f"{rule.name} changed the {name} from {read(before)} to {read(after)}")
    if after.pattern > before.pattern:
        raise UnsoundRule(f"{rule.name} worsened the pattern from {before.pattern.short} to {after.pattern.short}")


def _clocks(root: Algebra) -> list[tuple[StreamKind, tuple[int, int] | None]]:
    """The instants of every RSTREAM; the others tell changes when they are. A query in the sequence model that is
    evaluated at the boundaries of one frequency alone has those of a SLIDE."""
    found: list[tuple[StreamKind, tuple[int, int] | None]] = []
    for node in walk(root):
        if isinstance(node, RelationToStream) and node.kind is StreamKind.RSTREAM:
            found.append((node.kind, evaluation_period(node)))
        elif isinstance(node, Sequenced) and node.reports_all and node.in_time:
            found.append((StreamKind.RSTREAM, node.periods[0]))
    return found


_INVARIANTS: dict[str, Callable[[Algebra], object]] = {
    "column names": lambda node: node.schema.names,
    "column types": lambda node: node.schema.types,
    "kind (stream or relation)": lambda node: node.is_stream,
    "time domain": lambda node: node.domain,
    "evaluation instants": _clocks,
}
