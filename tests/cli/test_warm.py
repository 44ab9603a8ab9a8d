"""`penstock warm`: what first queries would wait for is there before them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli.warming import QUERIES, compile_loops
from penstock.compilation import kept_in


def test_every_query_runs() -> None:
    reports: list[str] = []
    compile_loops(reports.append)
    assert len(reports) == len(QUERIES)


_QUERY = """
import sys
from penstock.cli import warming
warming.QUERIES = warming.QUERIES[:2]
warming.compile_loops(lambda text: None)
"""


def test_loops_are_kept_where_penstock_cache_says(tmp_path: Path) -> None:
    """A second process compiles nothing: it adds no file and changes none."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PENSTOCK_CACHE": str(tmp_path)}
    environ.pop("NUMBA_CACHE_DIR", None)
    kept: list[dict[str, int]] = []
    for _ in range(2):
        subprocess.run([sys.executable, "-c", _QUERY], env=environ, check=True)
        folder = Path(kept_in(environ))
        kept.append({str(file): file.stat().st_mtime_ns for file in folder.rglob("*.nbc")})
    assert len(kept[0]) > 5 and kept[0] == kept[1]
    assert kept_in({}) == kept_in({"PENSTOCK_CACHE": ""}) == ""


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_the_archive_of_classes_is_written(tmp_path: Path) -> None:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PENSTOCK_CACHE": str(tmp_path)}
    command = [sys.executable, "-m", "penstock", "warm", "--only-java"]
    for said in (f"written to {tmp_path}", "is there"):
        warmed = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
        assert (warmed.returncode, said in warmed.stderr) == (0, True), warmed.stderr
    (archive,) = tmp_path.glob("*.jsa")
    assert archive.stat().st_size > 10**7
