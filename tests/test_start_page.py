"""docs/README.md leads to every page of docs, each in a line of its own. The chapters of the language and the decisions
have contents of their own (`language/test_language_docs.py`, `test_docs.py`)."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"
START = (DOCS / "README.md").read_text(encoding="utf-8")


def test_every_page_has_one_line() -> None:
    lists = START.partition("## For users")[2]
    lines = re.findall(r"^\| \[([\w-]+(?:\.md|/))\]\((\S+)\) \| .+ \|$", lists, re.MULTILINE)
    assert all(target in (name, f"{name}README.md") for name, target in lines)
    pages = {path.name for path in DOCS.glob("*.md") if path.name != "README.md"}
    contents = {f"{path.parent.name}/" for path in DOCS.glob("*/README.md")}
    assert {"language/", "decisions/"} <= contents
    assert sorted(name for name, _ in lines) == sorted(pages | contents)


def test_a_newcomer_finds_the_first_things_at_the_top() -> None:
    top = START.partition("## For users")[0]
    for target in (
        "tutorial.md#1-a-stream-and-a-query",
        "language/README.md",
        "server.md",
        "missing-rows.md",
        "how-to.md#add-a-window-kind",
        "how-to.md#add-a-statement",
    ):
        assert f"({target})" in top, target
