"""Load shedding in a plan as data."""

from __future__ import annotations

from dataclasses import replace

from penstock.algebra import Algebra, Shed
from penstock.algebra.nodes.shed import NO_BUDGET, StretchBudget
from penstock.algebra.properties.update_pattern import Pattern
from penstock.expressions.coercion import BIGINT
from penstock.language.plans import checks
from penstock.language.plans.node_form import Below, Fields, NodeForm
from penstock.shedding.policies import POLICIES
from penstock.types import END, LONGEST_TICKS

_SHED = (
    "policy",
    "budget",
    "bytes",
    "buckets",
    "compact",
    "least",
    "ordered",
    "sample",
    "misses_only",
    "query",
    "every",
    "at_least",
    "fails",
    "cpu",
    "shares_limit",
)


def _write_shed(node: Shed) -> Fields:
    return {
        "policy": node.policy,
        "budget": node.budget,
        "bytes": node.in_bytes,
        "buckets": node.buckets,
        "compact": node.compact,
        "least": node.least,
        "ordered": node.ordered,
        "sample": node.sample,
        "misses_only": node.misses_only,
        "query": node.query,
        "every": node.every,
        "at_least": node.at_least,
        "fails": node.fails,
        "cpu": node.cpu,
        "shares_limit": node.shares_limit,
    }


def _read_shed(below: Below) -> Algebra:
    checks.relation(below.input, below.pointer)
    checks.without_internal(below.inputs, "shedding", below.pointer)
    schema = below.input.schema
    if len(schema) < 2 or {schema[-2].type, schema[-1].type} != {BIGINT}:
        raise below.refuse("the last two columns of what is shed are a period, two BIGINTs")
    if below.input.pattern is Pattern.STRICT and Shed(below.input, "newest", 1).row_window is None:
        raise below.refuse(
            "a relation with updates has no budget: a tuple that was dropped could be retracted later", "P0376"
        )

    def number(name: str, least: int, most: int) -> int:
        found = below.whole(name, least, most)
        assert found is not None
        return found

    budget = number("budget", 1, NO_BUDGET)
    flags = {
        name: below.fields[name].flag()
        for name in ("bytes", "compact", "ordered", "misses_only", "fails", "shares_limit")
    }
    return Shed(
        below.input,
        below.fields["policy"].one_of(tuple(POLICIES)),
        budget,
        flags["bytes"],
        number("buckets", 1, budget),
        flags["compact"],
        number("least", 0, END),
        flags["ordered"],
        number("sample", 0, 10**6),
        flags["misses_only"],
        below.fields["query"].name(),
        number("every", 1, LONGEST_TICKS),
        number("at_least", 0, 10**6),
        flags["fails"],
        number("cpu", 0, 10**12),
        flags["shares_limit"],
    )


#: The fields of a budget of what goes on.
BUDGET = (
    "budget",
    "bytes",
    "buckets",
    "cpu",
    "shares_limit",
    "least_length",
    "query",
    "every",
    "at_least",
    "fails",
    "compact",
)


def write_budget(budget: StretchBudget | None) -> Fields:
    """Return the fields of a budget of stretches or sessions that go on; none where there is none."""
    if budget is None:
        return {}
    floor: Fields = {
        "query": budget.query,
        "every": budget.every,
        "at_least": budget.at_least,
        "fails": budget.fails,
    }
    return {
        "budget": budget.budget,
        "bytes": budget.in_bytes,
        "buckets": budget.buckets,
        "cpu": budget.cpu,
        "shares_limit": budget.shares_limit,
        **({"least_length": budget.least} if budget.least else {}),
        **(floor if budget.at_least else {}),
        **({} if budget.compact else {"compact": False}),
    }


def read_budget(below: Below) -> StretchBudget | None:
    """Return the budget in the fields, None for none."""
    if "budget" not in below.fields:
        return None
    budget = below.whole("budget", 1, NO_BUDGET) or 1
    buckets, cpu = below.whole("buckets", 1, budget, 1) or 1, below.whole("cpu", 0, 10**12, 0) or 0
    in_bytes, shares = (name in below.fields and below.fields[name].flag() for name in ("bytes", "shares_limit"))
    compact = "compact" not in below.fields or below.fields["compact"].flag()
    least = below.whole("least_length", 0, END, 0) or 0
    made = StretchBudget(budget, in_bytes, buckets, cpu, shares, least, compact=compact)
    at_least = below.whole("at_least", 0, 10**6, 0) or 0
    if not at_least:
        return made
    every = below.whole("every", 1, LONGEST_TICKS) or 1
    return replace(
        made, query=below.fields["query"].name(), every=every, at_least=at_least, fails=below.fields["fails"].flag()
    )


SHED = NodeForm(_write_shed, _read_shed, _SHED, _SHED)
