"""Damaged scripts: whatever stands there is read, bound and planned, or refused with a code, within 5 s."""

from __future__ import annotations

import time

import pytest
from mutants import corpus, mutant
from plans import DECLARATIONS

from penstock.errors import PenstockError
from penstock.language import parse_script, print_statement
from penstock.session import Session

CASES, LONG, SECONDS = 400, 20_000, 5.0


def attempt(text: str) -> bool:
    """Read, bind, print and plan; whether the script was right. Raises whatever is no PenstockError."""
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
    return True


def escapes(start: int, count: int) -> list[str]:
    """What is wrong with these mutants."""
    found: list[str] = []
    for seed in range(start, start + count):
        text = mutant(seed, DECLARATIONS)
        began = time.process_time()
        try:
            attempt(text)
        except Exception as error:  # any other error is what is looked for
            found.append(f"seed {seed}: {type(error).__name__}: {error}")
        if time.process_time() - began > SECONDS:
            found.append(f"seed {seed}: {time.process_time() - began:.1f} s")
    return found


def test_the_corpus_is_broad() -> None:
    assert len(corpus()) > 500


def test_mutants(case_count: int | None, case_seed: int | None) -> None:
    assert not escapes((case_seed or 0) * 1_000_000, case_count or CASES)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_many_mutants(case_count: int | None, case_seed: int | None) -> None:
    assert not escapes((case_seed or 1) * 1_000_000, case_count or LONG)
