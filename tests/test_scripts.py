"""Every `.cqltest` file of `scripts/`, on the oracle and on the local runtime."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.testing import run_case
from penstock.testing.cases import RUNS, CaseRun

FILES = sorted((Path(__file__).parent / "scripts").rglob("*.cqltest"))


each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")


@each_file
def test_script(path: Path) -> None:
    """In single rows, over restarts; and in one of the other ways, of which files take turns."""
    single, restarted = RUNS[1], RUNS[4]
    others = [run for run in RUNS if run not in (single, restarted)]
    check(path, (single, restarted, random.Random(path.stem).choice(others)))


@pytest.mark.slow
@each_file
def test_script_in_every_way(path: Path) -> None:
    check(path, RUNS)


def check(path: Path, runs: tuple[CaseRun, ...]) -> None:
    # Under a preference each shard has a queue of its own: the oracle has one.
    alone = path.parent.name == "preferences"
    run_case(path, tuple(replace(run, shards=1) for run in runs) if alone else runs)


def test_there_are_scripts() -> None:
    assert len(FILES) >= 40
