"""Plans as data whose fields somebody has changed: each is a plan that can run, or an error with a code."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from penstock import physical  # noqa: F401 - every operator of the algebra is loaded
from penstock.algebra.optimizer.optimizer import optimize
from penstock.errors import PenstockError, ScriptErrors
from penstock.language.binder.context import BindingFailed, Context
from penstock.language.plan_form import FORMAT, printed
from penstock.language.plans.document import logical, read_plan
from penstock.language.scripts import bind_script
from penstock.language.text import SourceText
from penstock.settings import Settings
from penstock.testing.random.worlds import FLAVOURS, Flavour, random_case, seeded_choices

CASES, CHANGES = 6, 60
MANY_CASES, MANY_CHANGES = 60, 400
#: What a field becomes; numbers at the limits of types, names that are none, texts that end what they stand in.
OTHERS: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2, 2**31, 2**63 - 1, 2**63, -(2**63), 10**30, 1.5, -0.0, 1e308, "", " ", "'", '"', "`", "k",
    "a'; DROP STREAM s; --", "CAST(NULL AS INT)", "1 / 0", "COUNT(*)", "k = ", "\u0000", "é" * 300, [], {}, [[]],
    [0, 0], {"node": "Select"}, {"same": "/logical"}, ["k", "k"],
)  # fmt: skip


def _places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield place
    if isinstance(value, dict):
        for key in value:
            yield from _places(value[key], (*place, key))
    elif isinstance(value, list):
        for index in range(len(value)):
            yield from _places(value[index], (*place, index))


def _values(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for one in value.values():
            yield from _values(one)
    elif isinstance(value, list):
        for one in value:
            yield from _values(one)
    else:
        yield value


def changed(data: dict[str, Any], draw: Random) -> dict[str, Any]:
    """Return a plan with one or two of its fields replaced, left out, added or exchanged."""
    result = copy.deepcopy(data)
    for _ in range(draw.choice((1, 1, 2))):
        *above, last = draw.choice([place for place in _places(result) if place] or [("node",)])
        holder: Any = result
        for step in above:
            holder = holder[step]
        what = draw.randrange(8)
        if what == 0:
            del holder[last]
        elif what == 1:
            # What stands elsewhere in the plan is the nearest to what may stand here.
            holder[last] = draw.choice([*_values(data)] or [None])
        elif what == 2 and isinstance(holder, list):
            holder.append(copy.deepcopy(holder[last]))
        elif what == 3 and isinstance(holder[last], dict | list):
            others = [place for place in _places(data) if place]
            one: Any = data
            for step in draw.choice(others):
                one = one[step]
            holder[last] = copy.deepcopy(one)
        elif what == 4 and isinstance(holder, dict):
            holder["surplus"] = 1
        else:
            holder[last] = copy.deepcopy(draw.choice(OTHERS))
    return result


def attack(flavour: Flavour, cases: int, changes: int) -> Counter[str]:
    """Return how many plans were read, and the codes of the others."""
    found: Counter[str] = Counter()
    for seed in range(cases):
        draw, case = Random(seed), random_case(seeded_choices(seed), flavour)
        bound = bind_script("\n".join(case.statements))
        data = logical(bound.queries[0].root)
        for number in range(changes):
            text = printed({"format": FORMAT, "logical": changed(data, draw)})
            context = Context(SourceText(""), bound.catalog, Settings())
            try:
                optimize(read_plan(text, context))
                found["read"] += 1
            except PenstockError as error:
                found[error.code] += 1
            except (BindingFailed, ScriptErrors):
                assert context.errors, text
                found.update({error.code for error in context.errors})
            except Exception as error:
                raise AssertionError(f"seed {seed}, change {number}: {text}") from error
    return found


@pytest.mark.spread(3)
@pytest.mark.parametrize("flavour", FLAVOURS, ids=lambda one: FLAVOURS.index(one))
def test_each_is_a_plan_or_an_error(flavour: Flavour) -> None:
    found = attack(flavour, CASES, CHANGES)
    assert found["P0106"] > CHANGES and found["P0341"] + found["read"] > 0, found


@pytest.mark.slow
@pytest.mark.parametrize("flavour", FLAVOURS, ids=lambda one: FLAVOURS.index(one))
def test_many_are_plans_or_errors(flavour: Flavour) -> None:
    attack(flavour, MANY_CASES, MANY_CHANGES)
