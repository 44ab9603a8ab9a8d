"""Every `.cqltest` file of `scripts/`, on the oracle and on the local runtime."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from penstock.testing import run_case
from penstock.testing.cases import RUNS

FILES = sorted((Path(__file__).parent / "scripts").rglob("*.cqltest"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_script(path: Path) -> None:
    # Under a preference each shard has a queue of its own: the oracle has one.
    alone = path.parent.name == "preferences"
    run_case(path, tuple(replace(run, shards=1) for run in RUNS) if alone else RUNS)


def test_there_are_scripts() -> None:
    assert len(FILES) >= 40
