"""Merging changes no answer: random lives, with and without sharing across time, have the same results to the bit."""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from penstock.physical.planning import merging
from penstock.physical.planning.plan_parts import joined
from penstock.physical.planning.planned_part import PlannedPart
from penstock.physical.planning.sharing import Merges
from penstock.runtime.live import engine
from penstock.testing.compare import events_of
from tests.live_machine import System, random_life

CASES, MANY_CASES = 3, 300


class Merged(System):
    """A life without the law: only what was emitted counts."""

    def teardown(self) -> None:
        for number in range(3 * len(self.inserted)):
            self.insert(number, 4)
            self.advance()

    def emitted(self) -> dict[str, list[tuple[Any, ...]]]:
        """What each result has received, of each instant in one order."""
        return {
            name: sorted(
                (ts, op, tuple(map(_bits, row)))
                for table in life.tables
                for ts, op, row in events_of(life.query, table)
            )
            for name, life in self.lives.items()
        }


def _bits(value: object) -> str:
    """A text that tells values apart which compare as equal."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else struct.pack(">d", value).hex()
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(_bits, value)) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{_bits(one)}" for key, one in value.items()) + "}"
    return repr(value)


def _compare(seed: int, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Compare a life with the same one without sharing; return the kinds of steps that were merged."""
    kinds: Counter[str] = Counter()

    def counted(parts: Sequence[PlannedPart], merges: Merges, *others: Any) -> dict[str, str]:
        result = merging.merged(parts, merges, *others)
        sizes = Counter(result.values())
        for one in (one for part in parts for one in part.sharable.values()):
            if one.key in result and one.key not in merges and sizes[result[one.key]] > 1:
                kinds[one.step.spec.title] += 1
        return result

    with monkeypatch.context() as patched:
        patched.setattr(engine, "merged", counted)
        shared = random_life(seed, Merged)
    with monkeypatch.context() as patched:
        patched.setattr(engine, "merged", lambda parts, *others: {})
        patched.setattr(engine, "shared_plan", lambda parts, *others: joined([part.plan for part in parts]))
        alone = random_life(seed, Merged)
    found, expected = shared.emitted(), alone.emitted()
    for name in expected:
        assert found[name] == expected[name], "\n".join([shared.case.render(), *shared.steps, f"seed {seed}: {name}"])
    return kinds


@pytest.mark.parametrize("seed", range(CASES))
def test_a_life_has_the_same_results_with_and_without_sharing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    _compare(seed, monkeypatch)


def test_something_is_merged_in_such_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _compare(MERGING, monkeypatch)


#: The seed of a life in which several kinds of steps are merged.
MERGING = 16


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(CASES, MANY_CASES))
def test_many_lives_have_the_same_results_with_and_without_sharing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    _compare(seed, monkeypatch)
