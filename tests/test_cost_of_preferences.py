"""What a row costs under a preference does not grow with the window: by counts of what is looked at, not by time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path


def test_a_row_looks_at_as_many_elements_whatever_the_length_of_the_window() -> None:
    """Where its partners stay as many, or the budget is the same: the window is 10, 100 and 1,000 times 2 rows a side.
    Loops run as Python, whose table of elements counts."""
    program = Path(__file__).with_name("elements_touched.py")
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    command = [sys.executable, "-W", "ignore", str(program)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=True)
    found = json.loads(done.stdout)
    assert len(found) == 4
    for name, rows in found.items():
        (_, least, examined), *longer = rows
        assert examined > 0.5, name
        for window, read, _ in longer:
            assert read <= 1.25 * least, f"{name}: {read} elements for a row at a window of {window}, {least} at 20"
