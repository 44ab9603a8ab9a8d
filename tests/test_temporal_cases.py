"""Random queries over periods and sessions: the local runtime, cut anywhere and on several shards, answers as the
oracle."""

from __future__ import annotations

import pytest

from penstock.language.scripts import bind_script
from penstock.testing.cases import CaseRun, case_inputs, parse_case
from penstock.testing.choices import Choices, seeded_choices
from penstock.testing.compare import assert_same
from penstock.testing.oracle import run_oracle
from penstock.testing.random.periods import TemporalMaker

SHORT, LONG = 15, 5_000


class SessionMaker(TemporalMaker):
    """Cases of which every query is over sessions."""

    def __init__(self, choices: Choices) -> None:
        super().__init__(choices)
        self.coalesced = self.valid = self.joined = self.counted = self.granules = self.until_next = self.sessions


class GranuleMaker(TemporalMaker):
    """Cases of which every query coalesces granules of SLIDE."""

    def __init__(self, choices: Choices) -> None:
        super().__init__(choices)
        self.coalesced = self.valid = self.joined = self.counted = self.sessions = self.until_next = self.granules


class WindowMaker(TemporalMaker):
    """Cases of which every query coalesces periods of one length under a window in time."""

    def __init__(self, choices: Choices) -> None:
        super().__init__(choices)
        self.sessions = self.valid = self.joined = self.counted = self.granules = self.until_next = self.coalesced

    def window(self) -> str:
        length, slide = self.choices.integer(1, 9), self.choices.integer(1, 4)
        return self.choices.pick(
            (
                f"[RANGE {length} SECOND]",
                "[NOW]",
                "[RANGE 3 SECOND WHERE v > 0]",
                f"[RANGE {length} SECOND SLIDE {slide} SECOND]",
                f"[RANGE {length} SECOND SLIDE {slide} SECOND ALIGN TO {self.choices.integer(0, 2)}]",
            )
        )

    def valid_clause(self) -> str:
        return f"VALID FOR {self.choices.integer(1, 4)} SECOND"


MAKERS = (TemporalMaker, SessionMaker, GranuleMaker, WindowMaker)


def check(seed: int, maker: type[TemporalMaker]) -> None:
    choices = seeded_choices(seed)
    case = maker(choices).case(("q", "r"))
    bound, parsed = bind_script("\n".join(case.statements)), parse_case(case.render())
    inputs, drain = case_inputs(parsed, bound), choices.chance(50)
    thresholds = choices.integer(0, 1000) if choices.chance(50) else None
    run = CaseRun(choices.integer(1, 3), choices.integer(0, 1000), thresholds=thresholds)
    result = run.answer(bound.queries, inputs, drain, None)
    try:
        for query in bound.queries:
            assert_same(query, result.tables[query.name], run_oracle(query, inputs, drain))
    except AssertionError as error:
        raise AssertionError(f"seed {seed}, drain={drain}, {run}\n{case.render()}\n{error}") from error


@pytest.mark.parametrize("maker", MAKERS)
def test_random_queries_over_periods(maker: type[TemporalMaker]) -> None:
    for seed in range(SHORT):
        check(seed, maker)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("maker", MAKERS)
def test_many_random_queries_over_periods(
    maker: type[TemporalMaker], case_count: int | None, case_seed: int | None
) -> None:
    """--cases over all makers together, from --case-seed on."""
    first = SHORT if case_seed is None else case_seed
    for seed in range(first, first + (case_count or LONG) // len(MAKERS)):
        check(seed, maker)
