"""docs/results.md: its script runs, and its Python prints what the page shows."""

from __future__ import annotations

import re
from contextlib import chdir, redirect_stdout
from io import StringIO
from itertools import pairwise
from pathlib import Path

from inline_run import InlineRun, cold

PAGE = (Path(__file__).parents[2] / "docs" / "results.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(cql|python|)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
READINGS = "ts,sensor,value\n3,b,21\n10,a,20\n12,a,31.5\n14,b,40\n"


def test_the_page_shows_what_its_examples_print(tmp_path: Path) -> None:
    cold()
    (tmp_path / "readings.csv").write_text(READINGS, encoding="utf-8")
    blocks = [(kind, text) for kind, text in BLOCK.findall(PAGE)]
    (script,) = (text for kind, text in blocks if kind == "cql")
    with chdir(tmp_path):
        run = InlineRun(script, tmp_path / "checkpoint").run()
    assert run.ended
    ids = {name: sink.own_place.id for name, sink in run.sinks.items() if sink.own_place is not None}
    names: dict[str, object] = {"results": tmp_path / "checkpoint" / "results", "ids": ids}
    shown = 0
    for (kind, text), (_, output) in pairwise(blocks):
        if kind == "python":
            printed = StringIO()
            with redirect_stdout(printed):
                exec(text, names)
            assert printed.getvalue() == output
            shown += 1
    assert shown == 2
