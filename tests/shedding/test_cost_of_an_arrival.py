"""An arrival costs the logarithm of what is held: counted in lines of the machine, run without its compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

_COUNTS = Path(__file__).with_name("lines_per_arrival.py")


def lines_per_arrival(policy: str, kind: str, *sizes: int) -> list[float]:
    command = [sys.executable, str(_COUNTS), policy, kind, *map(str, sizes)]
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=600)
    return [float(word) for word in done.stdout.split()]


def check(policy: str, kind: str, *sizes: int) -> None:
    """Each time that the budget grows fourfold, a step of the same height at most is added: less than a third."""
    counts = lines_per_arrival(policy, kind, *sizes)
    steps = [later - before for before, later in pairwise(counts)]
    assert len(counts) == len(sizes) and min(counts) > 50
    assert max(steps) < counts[0] / 3


@pytest.mark.parametrize(("policy", "kind"), [("cals_q", "values"), ("random", "one")])
def test_an_arrival_costs_the_logarithm_of_what_is_held(policy: str, kind: str) -> None:
    check(policy, kind, 250, 1000)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["values", "one"])
@pytest.mark.parametrize("policy", ["random", "newest", "cals_v", "cals_i", "cals", "cals_q"])
def test_an_arrival_costs_the_logarithm_under_every_policy(policy: str, kind: str) -> None:
    check(policy, kind, 250, 1000, 4000, 16_000)
