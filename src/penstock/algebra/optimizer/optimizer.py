"""The optimizer: the rules of `rules/` applied in order, with a trace and checked invariants.

Contract: `optimize(root)` means what `root` means, at every instant [semantics 2]. Phases run in order: rewrite to a
fixpoint, simplify update patterns by cost, gather joins, rewrite, prune columns, rewrite again (both leave projections
to merge). Rules that look at one node are applied in one walk, inputs first, to each node until none of them changes
it: a chain of views takes one walk, not one per view. `optimize` is idempotent and, for equal plans and equal
statistics, gives equal plans, so sharing by fingerprint works on its results.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import cast

from penstock.algebra.nodes.base import Algebra, operators
from penstock.algebra.nodes.frequency import Frequency, Sequenced
from penstock.algebra.nodes.promised import unfounded_promises
from penstock.algebra.nodes.r2s import RelationToStream, StreamKind, evaluation_period
from penstock.algebra.nodes.restamp import Restamp
from penstock.algebra.optimizer.cost import plan_cost
from penstock.algebra.optimizer.rules import RULES, Rule, RuleKind, RulePhase
from penstock.algebra.properties.statistics import Statistics
from penstock.algebra.render import render
from penstock.deep_trees import deep
from penstock.explain import to_text
from penstock.tree import Node, transform_down, transform_up

# --- Rules that look at one node, applied to every node of a plan in one walk.

#: Changes that rules may make in one walk, for each operator of the plan, and beside these. A change may be needed
#: again for every operator below a node; more means that two rules undo each other.
CHANGES_PER_OPERATOR, MORE_CHANGES = 400, 4_000

#: Called with a rule, the whole plan before it and the whole plan after it.
Note = Callable[[Rule, Algebra, Algebra], None]


class Sweep:
    """One walk that applies rules of kind LOCAL, inputs first, to each node until none of them changes it.

    The result of a rule depends on the node and its inputs. So a node that no rule changes over inputs that no rule
    changes stays as it is, and is not visited again; a node with several parents is visited once. In a chain of views
    each selection meets one projection, merged from all below it, and passes that in one step.
    """

    def __init__(self, rules: tuple[Rule, ...], note: Note | None = None) -> None:
        self.exhausted = False
        self._rules = [(rule, rule.rewrite) for rule in rules]
        self._note = note
        self._left = 0
        #: By identity, a visited node and its result; the node is kept, so that its identity is not reused.
        self._known: dict[int, tuple[Algebra, Algebra]] = {}
        #: Functions that return the whole plan with another node in the place of the visited one.
        self._insertions: list[Callable[[Algebra], Algebra]] = []

    def settled(self, root: Algebra) -> Algebra:
        """Return the plan with all rules applied; `exhausted` is true if the walk ended before they were."""
        self._left = MORE_CHANGES + CHANGES_PER_OPERATOR * sum(1 for _ in operators(root))
        return self._visit(root)

    def _visit(self, node: Algebra) -> Algebra:
        known = self._known.get(id(node))
        if known is not None:
            return known[1]
        original = node
        while True:
            node = self._over_settled(node)
            changed = self._changed(node)
            if changed is None:
                break
            node = changed
        self._known[id(original)] = original, node
        self._known[id(node)] = node, node
        return node

    def _over_settled(self, node: Algebra) -> Algebra:
        """Return `node` with its inputs settled."""
        for number, child in enumerate(node.children):
            if isinstance(child, Algebra):
                with self._inside(node, number):
                    settled = self._visit(child)
                node = _with_child(node, number, settled)
        return node

    def _changed(self, node: Algebra) -> Algebra | None:
        """Return the result of the first rule that changes `node`; None if none does."""
        if self._left <= 0:
            self.exhausted = True
            return None
        for rule, rewrite in self._rules:
            changed = rewrite(node)
            if changed is not node and changed != node:
                self._left -= 1
                if self._note is not None:
                    self._note(rule, self._whole(node), self._whole(changed))
                return changed
        return None

    @contextmanager
    def _inside(self, node: Algebra, number: int) -> Iterator[None]:
        self._insertions.append(lambda child: _with_child(node, number, child))
        try:
            yield
        finally:
            self._insertions.pop()

    def _whole(self, node: Algebra) -> Algebra:
        for insert in reversed(self._insertions):
            node = insert(node)
        return node


def _with_child(node: Algebra, number: int, child: Algebra) -> Algebra:
    if node.children[number] is child:
        return node
    children = list(node.children)
    children[number] = child
    return node.with_children(tuple(children))


#: Phases whose rules are applied together, in order.
PHASES: tuple[frozenset[RulePhase], ...] = (
    frozenset({RulePhase.REWRITE}),
    frozenset({RulePhase.REWRITE, RulePhase.SIMPLIFY}),
    frozenset({RulePhase.JOINS}),
    frozenset({RulePhase.REWRITE}),
    frozenset({RulePhase.PRUNE}),
    frozenset({RulePhase.REWRITE}),
)

#: Rounds over a phase's rules. Plans written by people settle in a few; more means that two rules undo each other.
MAX_ROUNDS = 40

#: The part of its cost by which a plan must be cheaper to be preferred to the one that was written.
WORTH = 1e-6


@dataclass(frozen=True)
class Planning:
    """The basis of choices by cost. statistics: those of the sources; by_pattern: whether rules may choose by cost the
    place of operators by update pattern, else these keep the place where they were written."""

    statistics: Statistics = field(default_factory=Statistics)
    by_pattern: bool = True


@dataclass(frozen=True)
class TraceStep:
    """One application of a rule. before: the fingerprint of the plan before it; plan: the plan after it; costs: of a
    choice by cost, the costs of both plans; taken: whether the plan was taken: a choice that was declined is recorded
    too."""

    rule: str
    before: str
    plan: Algebra
    costs: tuple[float, float] | None = None
    taken: bool = True

    @property
    def after(self) -> str:
        """Return `plan` as EXPLAIN draws it."""
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
    choices_only: bool = False,
) -> Algebra:
    """Return an equivalent plan that does less work.

    Args:
        trace: receives a step for every rule that fired and every choice by cost.
        check: verify after each rule what no rule may change.
        planning: the basis of choices by cost, defaults for None.
        choices_only: record only choices by cost; a step of any other rule needs a copy of the whole plan.

    Raises:
        UnsoundRule: only with `check`.
    """
    all_steps = trace is not None and not choices_only
    plan, steps = _optimized(root, all_steps, check, rules, planning or Planning())
    if trace is not None:
        trace += steps
    return plan


@deep
def _optimized(
    root: Algebra, all_steps: bool, check: bool, rules: tuple[Rule, ...], planning: Planning
) -> tuple[Algebra, list[TraceStep]]:
    steps: list[TraceStep] = []
    run = _Run(planning, steps, check, all_steps)
    root = _shared(root)
    for _ in range(MAX_ROUNDS):
        before = root
        for phases in PHASES:
            root = _settle(root, tuple(r for r in rules if r.phase in phases), run)
        # A declined choice may be worth its cost once the rest of the plan has its final shape.
        if root == before or not (run.planning.by_pattern and _has_choices(root, rules)):
            return root, steps
    return _unsettled(root, rules, check), steps


@dataclass(frozen=True)
class _Run:
    """One optimisation.

    Args:
        trace: gets the steps.
        all_steps: whether `trace` gets those of rules without a choice too.
        declined: the plans that choices by cost were found to make no cheaper, by fingerprint.
        idle: by rule or group of rules, the plan that it last had nothing to do for.
    """

    planning: Planning
    trace: list[TraceStep]
    check: bool
    all_steps: bool
    declined: set[tuple[str, str]] = field(default_factory=set)
    idle: dict[str, Algebra] = field(default_factory=dict)

    def record(
        self, rule: Rule, before: Algebra, after: Algebra, costs: tuple[float, float] | None, taken: bool
    ) -> None:
        if taken and self.check:
            _verify(rule, before, after)
        if costs is not None or self.all_steps:
            self.trace.append(TraceStep(rule.name, before.fingerprint, after, costs, taken))


def apply(rule: Rule, root: Algebra) -> Algebra:
    """Return `root` with `rule` applied once everywhere, a choice whatever it costs (the last of several); `root`
    itself when it does not apply."""
    if rule.kind is RuleKind.PLAN:
        changed = rule.rewrite(root)
    elif rule.kind is RuleKind.CHOICE:
        changed = transform_down(root, lambda node: (node, *rule.choices(cast(Algebra, node)))[-1], Algebra)
    else:
        changed = transform_down(root, cast(Callable[[Node], Node], rule.rewrite), Algebra)
    return root if changed is root or changed == root else changed


def _settle(root: Algebra, rules: tuple[Rule, ...], run: _Run) -> Algebra:
    groups = _groups(rules)
    for _ in range(MAX_ROUNDS):
        before = root
        for group in groups:
            root = _step(group, root, run)
        if root is before:
            return root
    return _unsettled(root, rules, run.check)


def _groups(rules: tuple[Rule, ...]) -> list[tuple[Rule, ...]]:
    """Return the rules in order, those in a row that look at one node together."""
    groups: list[tuple[Rule, ...]] = []
    for local, group in itertools.groupby(rules, lambda rule: rule.kind is RuleKind.LOCAL):
        together = tuple(group)
        groups.extend([together] if local else [(rule,) for rule in together])
    return groups


def _unsettled(root: Algebra, rules: tuple[Rule, ...], check: bool) -> Algebra:
    """Return the plan, or raise UnsoundRule if `check`: every plan on the way is equivalent, an unsettled one only
    slower."""
    if check:
        raise UnsoundRule(f"no fixpoint after {MAX_ROUNDS} rounds of {', '.join(r.name for r in rules)}")
    return root


def _step(group: tuple[Rule, ...], root: Algebra, run: _Run) -> Algebra:
    name = " ".join(rule.name for rule in group)
    if run.idle.get(name) is root:
        return root
    if group[0].kind is RuleKind.LOCAL:
        changed = _swept(group, root, run)
    elif group[0].kind is RuleKind.CHOICE:
        changed = _choose(group[0], root, run) if run.planning.by_pattern else root
    else:
        changed = apply(group[0], root)
        if changed is not root:
            run.record(group[0], root, changed, None, True)
    if changed is root:
        run.idle[name] = root
        return root
    return _shared(changed)


def _shared(root: Algebra) -> Algebra:
    """Return `root` with equal subplans as one object: rules visit it once, whatever number of operators read it."""
    known: dict[str, Node] = {}
    return transform_up(root, lambda node: known.setdefault(node.fingerprint, node), Algebra)


def _swept(group: tuple[Rule, ...], root: Algebra, run: _Run) -> Algebra:
    def note(rule: Rule, before: Algebra, after: Algebra) -> None:
        run.record(rule, before, after, None, True)

    sweep = Sweep(group, note if run.all_steps or run.check else None)
    settled = sweep.settled(root)
    if sweep.exhausted:
        return _unsettled(settled, group, run.check)
    return root if settled == root else settled


def _choose(rule: Rule, root: Algebra, run: _Run) -> Algebra:
    """Return the first plan that `rule` makes of one of the nodes and that is cheaper than `root`; `root` for none."""
    known = run.planning.statistics
    before: float | None = None
    for node in {n.fingerprint: n for n in operators(root)}.values():
        for other in rule.choices(node):
            changed = _replaced(root, node, other)
            before = plan_cost(root, known) if before is None else before
            costs = (before, plan_cost(changed, known))
            taken = costs[1] < costs[0] * (1 - WORTH)
            if taken or (rule.name, other.fingerprint) not in run.declined:
                run.record(rule, root, changed, costs, taken)
            if taken:
                return changed
            run.declined.add((rule.name, other.fingerprint))
    return root


def _has_choices(root: Algebra, rules: tuple[Rule, ...]) -> bool:
    choices = [rule.choices for rule in rules if rule.kind is RuleKind.CHOICE]
    return any(choice(node) for node in operators(root) for choice in choices)


def _replaced(root: Algebra, node: Algebra, replacement: Algebra) -> Algebra:
    """Return `root` with `replacement` in place of every `node`."""
    return transform_up(root, lambda operator: replacement if operator == node else operator, Algebra)


def _verify(rule: Rule, before: Algebra, after: Algebra) -> None:
    """Check the properties that every equivalent plan shares, and the pattern, which may only get simpler."""
    for name, read in _INVARIANTS.items():
        if read(before) != read(after):
            raise UnsoundRule(f"{rule.name} changed the {name} from {read(before)} to {read(after)}")
    if after.pattern > before.pattern:
        raise UnsoundRule(f"{rule.name} worsened the pattern from {before.pattern.short} to {after.pattern.short}")
    for one in unfounded_promises(after):
        raise UnsoundRule(f"{rule.name} made {one}")


def _clocks(root: Algebra, slot: int | None = None) -> list[tuple[int, int] | None]:
    """Return the instants of every RSTREAM, and of windows as columns, which are one; the others emit changes when
    they occur. A query in the sequence model that is evaluated at the boundaries of one frequency alone has those of a
    SLIDE. slot: what is picked of the answers just below: those at other boundaries are not seen."""
    clocks: list[tuple[int, int] | None] = []
    if isinstance(root, RelationToStream) and root.kind is StreamKind.RSTREAM:
        clocks.append(_seen(evaluation_period(root), slot))
    elif isinstance(root, Restamp):
        clocks.append((root.slide, root.window.align))
    elif isinstance(root, Sequenced) and root.reports_all and root.in_time:
        clocks.append(_seen(root.periods[0], slot))
    below = root.slot if isinstance(root, Frequency) and not root.partition else None
    return clocks + [clock for child in root.inputs for clock in _clocks(child, below)]


def _seen(period: tuple[int, int] | None, slot: int | None) -> tuple[int, int] | None:
    return (slot, 0) if period is not None and slot is not None and slot % period[0] == 0 == period[1] else period


_INVARIANTS: dict[str, Callable[[Algebra], object]] = {
    "column names": lambda node: node.schema.names,
    "column types": lambda node: node.schema.types,
    "kind (stream or relation)": lambda node: node.is_stream,
    "time domain": lambda node: node.domain,
    "evaluation instants": _clocks,
}
