"""Every `.cqltest` file of `scripts/`, on the oracle and on the local runtime."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.testing import run_case

FILES = sorted((Path(__file__).parent / "scripts").rglob("*.cqltest"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_script(path: Path) -> None:
    run_case(path)


def test_there_are_scripts() -> None:
    assert len(FILES) >= 40
