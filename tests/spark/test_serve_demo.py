"""`make serve-demo` goes through: queries registered with curl while flights stream, a kill, a start."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(shutil.which("curl") is None, reason="the demo calls the server with curl"),
]


def test_the_demo_of_the_server() -> None:
    command = [sys.executable, str(ROOT / "examples" / "serve_demo.py"), "--speed", "4000", "--seconds", "3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARM: yes; Flights: the source, read again" in done.stdout
    counts = re.search(r"(\d+) rows before the kill, (\d+) after it", done.stdout)
    assert counts is not None and int(counts[1]) > 0 and int(counts[2]) > 0, done.stdout
