"""docs/python.md and docs/live.md are true: their blocks run one after the other and print what stands below them."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import penstock

DOCS = Path(__file__).resolve().parents[2] / "docs"
_FENCE = re.compile(r"^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("page", "least"), [("python.md", 5), ("live.md", 1)])
def test_the_page(spark: Any, monkeypatch: pytest.MonkeyPatch, page: str, least: int) -> None:
    with_spark = penstock.Session.__init__
    # One Spark for all tests of this folder; the page's session would start another.
    monkeypatch.setattr(penstock.Session, "__init__", lambda self: with_spark(self, spark))
    names: dict[str, Any] = {}
    blocks = list(_FENCE.finditer((DOCS / page).read_text(encoding="utf-8")))
    tried = 0
    for block, following in zip(blocks, [*blocks[1:], None], strict=True):
        if block["kind"] != "python":
            continue
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile(block["text"], page, "exec"), names)
        if following is not None and following["kind"] == "result":
            shown = [line.rstrip() for line in said.getvalue().splitlines()]
            assert shown == [line.rstrip() for line in following["text"].splitlines()], block["text"]
            tried += 1
    assert tried >= least


OTHER_PYTHON = """
import sys, pyarrow as pa, penstock
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
session = penstock.Session(spark)
session.stream("S", pa.table({"ts": [1, 2], "a": [1, 2]}), timestamp="ts")
try:
    session.query("SELECT a FROM S").to_arrow()
except penstock.PenstockError as error:
    print(error.render())
"""


def test_workers_with_another_python_are_refused(tmp_path: Path) -> None:
    from penstock.runtime.java import require_java

    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "other")], check=True)
    other = str(tmp_path / "other" / "bin" / "python")
    environ = os.environ | {"PYSPARK_PYTHON": other, "JAVA_HOME": str(require_java())}
    environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    call = [sys.executable, "-c", OTHER_PYTHON]
    found = subprocess.run(call, env=environ, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert "error P0604: the Python of Spark's workers, " + other in found.stdout, found.stdout + found.stderr
    assert f"this process runs {sys.executable}" in found.stdout
    assert f"hint: set PYSPARK_PYTHON to {sys.executable} before Spark starts" in found.stdout
