"""Changed scripts: each is parsed, bound and planned, or refused with a code, within 5 s of processor time; and at
least `SHARE_PLANNED` of them reach the planner, so that not only refusals are tested.

`--cases N` tries N of them, `--case-seed S` others than the usual ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import pytest
from mutants import corpus, mutant
from plans import DECLARATIONS

from penstock.errors import PenstockError
from penstock.language.scripts import parse_script, print_statement
from penstock.session import Session

CASES, LONG, SECONDS = 60, 50_000, 5.0
#: The part of the changed scripts that must be right and have a query that is planned.
SHARE_PLANNED = 0.3


@dataclass
class Tally:
    """Count changed scripts: `tried`, of which `planned` bound, had a query and were planned; `escapes` are faults."""

    tried: int = 0
    planned: int = 0
    escapes: list[str] = field(default_factory=list)

    @property
    def share(self) -> float:
        return self.planned / max(self.tried, 1)

    def __str__(self) -> str:
        return f"{self.tried:,} changed scripts, {self.share:.1%} planned, {len(self.escapes)} escapes"


def attempt(text: str) -> bool:
    """Parse, print, bind and plan; return whether a query was planned. Raises every error that is no PenstockError."""
    try:
        for statement in parse_script(text).statements:
            print_statement(statement)
        session = Session()
        session.declare(text)
        for warning in session.warnings:
            assert warning.render()
        for name in session.catalog.queries:
            session.state(name)
            session.explain(name)
    except PenstockError as error:
        assert error.render()
        return False
    return bool(session.catalog.queries)


def tallied(seeds: Iterable[int]) -> Tally:
    """Try the changed script of each seed."""
    tally = Tally()
    for seed in seeds:
        text = mutant(seed, DECLARATIONS)
        began = time.process_time()
        tally.tried += 1
        try:
            tally.planned += attempt(text)
        except Exception as error:  # any other error is what is looked for
            tally.escapes.append(f"seed {seed}: {type(error).__name__}: {error}")
        if time.process_time() - began > SECONDS:
            tally.escapes.append(f"seed {seed}: {time.process_time() - began:.1f} s")
    return tally


def judge(start: int, count: int, record_property: Callable[[str, object], None]) -> None:
    """Try `count` changed scripts from seed `start` on; print the counts and keep them in the test's report."""
    tally = tallied(range(start, start + count))
    print(tally)
    record_property("mutants", str(tally))
    assert not tally.escapes, tally.escapes
    assert tally.share >= SHARE_PLANNED, tally


def test_the_corpus_is_broad() -> None:
    assert len(corpus()) > 500


def test_mutants(case_count: int | None, case_seed: int | None, record_property: Callable[[str, object], None]) -> None:
    judge((case_seed or 0) * 1_000_000, case_count or CASES, record_property)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_many_mutants(
    case_count: int | None, case_seed: int | None, record_property: Callable[[str, object], None]
) -> None:
    judge((case_seed or 1) * 1_000_000, case_count or LONG, record_property)
