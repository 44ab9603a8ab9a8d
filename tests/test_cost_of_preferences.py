"""What a row costs under a preference does not grow with the window: by counts of what is looked at, not by time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("counted", "windows"),
    [(300, (20, 100, 800)), pytest.param(600, (20, 200, 2000), marks=pytest.mark.slow)],
    ids=["40 times the window", "100 times the window"],
)
def test_a_row_looks_at_as_many_elements_whatever_the_length_of_the_window(
    counted: int, windows: tuple[int, ...]
) -> None:
    """Where its partners stay as many, or the budget is the same. Loops run as Python: its table of elements counts."""
    program = Path(__file__).with_name("elements_touched.py")
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    command = [sys.executable, "-W", "ignore", str(program), str(counted), *map(str, windows)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=True)
    found = json.loads(done.stdout)
    assert len(found) == 4
    for name, rows in found.items():
        (_, least, examined), *longer = rows
        assert examined > 0.5, name
        for window, read, _ in longer:
            assert read <= 1.25 * least, f"{name}: {read} elements for a row at a window of {window}, {least} at 20"
