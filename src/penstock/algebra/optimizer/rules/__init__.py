"""The rewrite rules: one file per rule, and this ordered list of them.

A rule is a function from a plan to an equivalent plan; it returns its argument itself when it does not
apply. A rule of kind CHOICE returns equivalents of a node, possibly none, of which the optimizer takes one where that
makes the whole plan cheaper; the rule states the law alone, and no costs. A rule's docstring states the law it uses and
a counter-example where the law ends. `tests/algebra/fixtures/` holds a text file of before;after pairs for each.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from penstock.algebra.nodes.base import Algebra
from penstock.algebra.optimizer.rules.bound_interval_joins import bound_interval_joins
from penstock.algebra.optimizer.rules.compute_join_keys import compute_join_keys
from penstock.algebra.optimizer.rules.evaluate_as_often_as_picked import evaluate_as_often_as_picked
from penstock.algebra.optimizer.rules.evaluate_at_timestamps import evaluate_at_timestamps
from penstock.algebra.optimizer.rules.evaluate_in_time import evaluate_in_time
from penstock.algebra.optimizer.rules.fold_constants import fold_constants
from penstock.algebra.optimizer.rules.form_multi_joins import form_multi_joins
from penstock.algebra.optimizer.rules.group_in_windows import group_in_windows
from penstock.algebra.optimizer.rules.merge_frequencies import merge_frequencies
from penstock.algebra.optimizer.rules.merge_projections import merge_projections
from penstock.algebra.optimizer.rules.merge_selections import merge_selections
from penstock.algebra.optimizer.rules.outer_join_to_join import outer_join_to_join
from penstock.algebra.optimizer.rules.prune_columns import prune_columns
from penstock.algebra.optimizer.rules.pull_grouping_above_join import pull_grouping_above_join
from penstock.algebra.optimizer.rules.pull_negation_above_grouping import pull_negation_above_grouping
from penstock.algebra.optimizer.rules.pull_negation_above_join import pull_negation_above_join
from penstock.algebra.optimizer.rules.pull_projection_above_frequency import pull_projection_above_frequency
from penstock.algebra.optimizer.rules.push_negation_below_join import push_negation_below_join
from penstock.algebra.optimizer.rules.push_selection_below_closed_rows import push_selection_below_closed_rows
from penstock.algebra.optimizer.rules.push_selection_below_coalesce import push_selection_below_coalesce
from penstock.algebra.optimizer.rules.push_selection_below_frequency import push_selection_below_frequency
from penstock.algebra.optimizer.rules.push_selection_below_window import push_selection_below_window
from penstock.algebra.optimizer.rules.push_selection_into_nrr_join import push_selection_into_nrr_join
from penstock.algebra.optimizer.rules.push_selection_into_preserved_side import push_selection_into_preserved_side
from penstock.algebra.optimizer.rules.push_selection_through_aggregate import push_selection_through_aggregate
from penstock.algebra.optimizer.rules.push_selection_through_distinct import push_selection_through_distinct
from penstock.algebra.optimizer.rules.push_selection_through_except_intersect import (
    push_selection_through_except_intersect,
)
from penstock.algebra.optimizer.rules.push_selection_through_projection import push_selection_through_projection
from penstock.algebra.optimizer.rules.push_selection_through_union import push_selection_through_union
from penstock.algebra.optimizer.rules.read_sequence_as_stream import read_sequence_as_stream
from penstock.algebra.optimizer.rules.read_view_as_stream import read_view_as_stream
from penstock.algebra.optimizer.rules.remove_distinct import remove_distinct
from penstock.algebra.optimizer.rules.remove_identity_projection import remove_identity_projection
from penstock.algebra.optimizer.rules.remove_uncounted_distinct import remove_uncounted_distinct
from penstock.algebra.optimizer.rules.selection_into_join import selection_into_join
from penstock.algebra.optimizer.rules.simplify_conditions import simplify_conditions
from penstock.algebra.optimizer.rules.split_join_condition import split_join_condition


class RuleKind(enum.Enum):
    """The scope of a rule. LOCAL: a node and its inputs; tried at every node; PLAN: the root; CHOICE: as LOCAL, but its
    result is taken only where it is cheaper."""

    LOCAL = "local"
    PLAN = "plan"
    CHOICE = "choice"


class RulePhase(enum.Enum):
    """REWRITE: makes the plan smaller or moves work down; SIMPLIFY: puts operators with simple update patterns below
    those with complicated ones, or the other way round, as it costs less `[golab 3.5.3]`; JOINS: gathers joins, once
    their conditions have moved as far down as they go; PRUNE: fits the columns to the plan's final shape."""

    REWRITE = "rewrite"
    SIMPLIFY = "simplify"
    JOINS = "joins"
    PRUNE = "prune"


#: Returns the equivalents of a node: one, or for a CHOICE any number of them.
Rewrite = Callable[[Algebra], Algebra]
Choices = Callable[[Algebra], tuple[Algebra, ...]]


@dataclass(frozen=True)
class Rule:
    name: str
    function: Rewrite | Choices
    kind: RuleKind = RuleKind.LOCAL
    phase: RulePhase = RulePhase.REWRITE

    @property
    def rewrite(self) -> Rewrite:
        """Return the function of a rule that is no CHOICE."""
        return cast(Rewrite, self.function)

    @property
    def choices(self) -> Choices:
        """Return the function of a CHOICE."""
        return cast(Choices, self.function)


RULES: tuple[Rule, ...] = (
    Rule("fold_constants", fold_constants),
    Rule("simplify_conditions", simplify_conditions),
    Rule("merge_selections", merge_selections),
    Rule("merge_projections", merge_projections),
    Rule("remove_identity_projection", remove_identity_projection),
    Rule("remove_distinct", remove_distinct),
    Rule("push_selection_into_nrr_join", push_selection_into_nrr_join),
    Rule("read_view_as_stream", read_view_as_stream),
    Rule("read_sequence_as_stream", read_sequence_as_stream),
    Rule("evaluate_in_time", evaluate_in_time),
    Rule("pull_projection_above_frequency", pull_projection_above_frequency),
    Rule("merge_frequencies", merge_frequencies),
    Rule("evaluate_as_often_as_picked", evaluate_as_often_as_picked),
    Rule("push_selection_below_frequency", push_selection_below_frequency),
    Rule("push_selection_through_projection", push_selection_through_projection),
    Rule("push_selection_through_union", push_selection_through_union),
    Rule("push_selection_below_closed_rows", push_selection_below_closed_rows),
    Rule("push_selection_below_coalesce", push_selection_below_coalesce),
    Rule("push_selection_through_distinct", push_selection_through_distinct),
    Rule("push_selection_through_except_intersect", push_selection_through_except_intersect),
    Rule("push_selection_through_aggregate", push_selection_through_aggregate),
    Rule("outer_join_to_join", outer_join_to_join),
    Rule("push_selection_into_preserved_side", push_selection_into_preserved_side),
    Rule("selection_into_join", selection_into_join),
    Rule("split_join_condition", split_join_condition),
    Rule("compute_join_keys", compute_join_keys),
    Rule("group_in_windows", group_in_windows, RuleKind.PLAN),
    Rule("evaluate_at_timestamps", evaluate_at_timestamps, RuleKind.PLAN),
    Rule("bound_interval_joins", bound_interval_joins, RuleKind.PLAN),
    Rule("push_selection_below_window", push_selection_below_window, RuleKind.PLAN),
    Rule("pull_negation_above_join", pull_negation_above_join, RuleKind.CHOICE, RulePhase.SIMPLIFY),
    Rule("push_negation_below_join", push_negation_below_join, RuleKind.CHOICE, RulePhase.SIMPLIFY),
    Rule("pull_negation_above_grouping", pull_negation_above_grouping, RuleKind.CHOICE, RulePhase.SIMPLIFY),
    Rule("pull_grouping_above_join", pull_grouping_above_join, RuleKind.CHOICE, RulePhase.SIMPLIFY),
    Rule("remove_uncounted_distinct", remove_uncounted_distinct, RuleKind.CHOICE, RulePhase.SIMPLIFY),
    Rule("form_multi_joins", form_multi_joins, phase=RulePhase.JOINS),
    Rule("prune_columns", prune_columns, RuleKind.PLAN, RulePhase.PRUNE),
)
