"""The rewrite rules on plans made of CQL text: `fixtures/<rule>.txt`, at least one file per rule.

A fixture opens with the law in a word and holds cases of this form::

    === what the case shows
    expect: rule              the rule that must fire here; or `never: rule`, which must not
    with: rule, rule | all    further rules that are applied too
    given: S(rate 10, k 50)   what is known of the sources, as SET statistics takes it
    SELECT ...
    ---
    the plan afterwards, as explain draws it without properties

With PENSTOCK_REWRITE=1 in the environment, the plans in the files are written anew, to be read in the diff.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from penstock.algebra import Algebra
from penstock.algebra.optimizer.optimizer import Planning, TraceStep, optimize
from penstock.algebra.optimizer.rules import RULES, Rule, RuleKind
from penstock.algebra.properties.statistics import Statistics
from penstock.algebra.render import render
from penstock.explain import RenderNode, to_text
from penstock.language.scripts import bind_script
from penstock.settings import Settings

FIXTURES = Path(__file__).parent / "fixtures"
REWRITE = "PENSTOCK_REWRITE" in os.environ


@dataclass(frozen=True)
class Case:
    title: str
    fires: bool
    rule: str
    others: tuple[str, ...]
    given: str
    query: str
    plan: str

    def text(self) -> str:
        head = [f"=== {self.title}", f"{'expect' if self.fires else 'never'}: {self.rule}"]
        with_ = [f"with: {', '.join(self.others)}"] if self.others else []
        given = [f"given: {self.given}"] if self.given else []
        return "\n".join([*head, *with_, *given, self.query, "---", self.plan]) + "\n"


def read(path: Path) -> Iterator[Case]:
    """The cases of a file; what stands before the first one is a comment."""
    for block in path.read_text().split("=== ")[1:]:
        head, _, plan = block.partition("\n---\n")
        title, verdict, *query = head.split("\n")
        others: tuple[str, ...] = ()
        if query[0].startswith("with: "):
            others, query = tuple(query[0].removeprefix("with: ").split(", ")), query[1:]
        given = ""
        if query[0].startswith("given: "):
            given, query = query[0].removeprefix("given: "), query[1:]
        word, rule = verdict.split(": ")
        yield Case(title, word == "expect", rule, others, given, "\n".join(query), plan.strip("\n"))


def rewrite(path: Path, case: Case, plan: str) -> None:
    comment, mark, _ = path.read_text().partition("=== ")
    cases = [replace(c, plan=plan) if c == case else c for c in read(path)]
    path.write_text(comment + "\n".join(c.text() for c in cases) if mark else comment)


def bare(node: RenderNode) -> RenderNode:
    return replace(node, edge=(), children=tuple(bare(child) for child in node.children))


def planning(case: Case) -> Planning:
    return Planning(Statistics().updated(Settings().with_value("statistics", case.given)["statistics"]))


CASES = [(path, case) for path in sorted(FIXTURES.glob("*.txt")) for case in read(path)]


@pytest.mark.parametrize(("path", "case"), CASES, ids=[f"{p.stem}: {c.title}" for p, c in CASES])
def test_fixture(path: Path, case: Case, bind) -> None:  # type: ignore[no-untyped-def]
    names = {case.rule, *case.others}
    trace: list[TraceStep] = []
    before: Algebra = bind(case.query)
    rules = tuple(r for r in RULES if "all" in names or r.name in names)
    after = optimize(before, trace, check=True, rules=rules, planning=planning(case))
    plan = to_text(bare(render(after))).strip("\n")
    fired = [step.rule for step in trace if step.taken]
    assert (case.rule in fired) == case.fires, f"fired: {fired}\n{to_text(render(before))}\n{plan}"
    if REWRITE:
        rewrite(path, case, plan)
    else:
        assert plan == case.plan


def test_every_rule_has_a_fixture_that_fires_it() -> None:
    assert {case.rule for _, case in CASES if case.fires} == {rule.name for rule in RULES}


def test_every_fixture_names_rules_that_exist() -> None:
    known = {rule.name for rule in RULES} | {"all"}
    assert {name for _, case in CASES for name in (case.rule, *case.others)} <= known


def test_every_rule_states_its_law_and_its_limits() -> None:
    for rule in RULES:
        text = rule.function.__doc__ or ""
        assert "Unsound" in text, rule.name


@pytest.mark.parametrize(("path", "case"), CASES, ids=[f"{p.stem}: {c.title}" for p, c in CASES])
def test_optimizing_twice_changes_nothing(path: Path, case: Case, bind) -> None:  # type: ignore[no-untyped-def]
    once = optimize(bind(case.query), check=True, planning=planning(case))
    trace: list[TraceStep] = []
    assert optimize(once, trace, check=True, planning=planning(case)) == once, [step.rule for step in trace]


def test_a_rule_that_had_nothing_to_do_is_not_asked_again_of_the_same_plan() -> None:
    asked: list[tuple[str, int]] = []
    kept: list[Algebra] = []

    def noting(rule: Rule) -> Rule:
        def function(root: Algebra) -> Algebra:
            asked.append((rule.name, id(root)))
            kept.append(root)  # so that no other plan gets its place in memory
            return rule.function(root)  # type: ignore[return-value]

        return replace(rule, function=function) if rule.kind is RuleKind.PLAN else rule

    assert len({rule.name for rule in RULES}) == len(RULES)
    text = "SELECT RSTREAM(k, v + 1 AS w) FROM S [RANGE 9 SECONDS SLIDE 3 SECONDS] WHERE k > 1 + 1;"
    stream = "CREATE STREAM S (ts BIGINT, k INT, v INT) FROM MEMORY () TIMESTAMP BY ts;"
    (query,) = bind_script(stream + text, one_time=False).queries
    optimize(query.root, rules=tuple(noting(rule) for rule in RULES))
    assert asked and len(set(asked)) == len(asked)
