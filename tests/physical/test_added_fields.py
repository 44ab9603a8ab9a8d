"""Fields that were added later change no fingerprint where they have their defaults: checkpoints find state by it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from penstock.algebra import BudgetKind, Preference, PreferenceOrder
from penstock.algebra.nodes.preference_clause import Budget
from penstock.language import bind_script
from penstock.physical.plan.identity import step_keys
from penstock.physical.planning.planner import plan_queries
from penstock.tree import Node

SCRIPT = """
CREATE STREAM s (at BIGINT, k INT, x DOUBLE) FROM MEMORY () TIMESTAMP BY at UNIT SECOND;
CREATE STREAM p (at BIGINT, k INT, y DOUBLE) FROM MEMORY () TIMESTAMP BY at UNIT SECOND;
"""


@dataclass(frozen=True, eq=False)
class _Before(Node):
    length: int


@dataclass(frozen=True, eq=False)
class _Now(Node):
    length: int
    longest: int = field(default=0, metadata={"added": True})


_Now.__name__ = _Before.__name__


def test_a_default_is_left_out_and_another_value_counts() -> None:
    assert _Now(1).fingerprint == _Before(1).fingerprint
    assert _Now(1, 2).fingerprint != _Now(1).fingerprint != _Now(2).fingerprint
    assert _Now(1, 2).fingerprint != _Now(1, 3).fingerprint


def test_preferences_have_the_text_that_they_had_before_joins_of_several() -> None:
    budget = Budget(BudgetKind.PER_TIME, 2, 3)
    assert repr(budget) == f"Budget(kind={BudgetKind.PER_TIME!r}, units=2, ticks=3)"
    preference = Preference(PreferenceOrder.WEIGHTED, budget)
    assert not any(name in repr(preference) for name in ("joins", "records", "place"))
    changed = [
        replace(preference, records=True), replace(preference, place=1),
        replace(preference, budget=replace(budget, joins=2)),
    ]  # fmt: skip
    assert len({repr(one) for one in [preference, *changed]}) == 4


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("SELECT k, x FROM s [RANGE 5 SECONDS] WITH PREFERENCE WEIGHTED x BUDGET 1 PER SECOND",
         "ae13b012c0203e133378d236"),
        ("SELECT x, y FROM s [RANGE 5 SECONDS], p [NOW] WHERE s.k = p.k WITH PREFERENCE DESC y BUDGET 1 PER TUPLE",
         "7fd34ce4c8e377f0a00e8273"),
    ],
)  # fmt: skip
def test_state_of_earlier_checkpoints_is_found(text: str, key: str) -> None:
    """The keys are those of the version before a preference had records and joins of several inputs."""
    made = plan_queries(bind_script(f"{SCRIPT}CREATE QUERY q AS {text};").queries)
    (step,) = (step for step in made.steps if type(step.spec).__name__.startswith("Preferring"))
    assert step_keys(made)[step.id] == key
