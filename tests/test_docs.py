"""The examples of the README and of docs/ are true: every block of CQL is bound, the queries over rows that it INSERTs
are answered by the local runtime, and where a ```result block follows, the answer to the last one is compared with it.

The blocks of a page build on each other. A block after the word `refused` (```cql refused) must be refused; one after
`drain` is answered as with --drain.

A page of docs/decisions is one decision: three headings, at most 150 lines, and a line in the index.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import pytest

from penstock.algebra import Scan
from penstock.connectors.sources.memory import inserted_rows
from penstock.connectors.text import csv_text
from penstock.errors import PenstockError
from penstock.language.scripts import BoundScript, Catalog, bind_script
from penstock.runtime.local.runtime import run_local
from penstock.tree import walk

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
INDEX = ROOT / "docs" / "decisions" / "README.md"
DECISIONS = sorted(path for path in INDEX.parent.glob("*.md") if path != INDEX)

_FENCE = re.compile(r"^```(?P<kind>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Example:
    """line: where it stands in its page; result: the text of the block that follows it, if that is a result."""

    line: int
    text: str
    refused: bool
    drain: bool
    result: str | None


def examples(page: str) -> list[Example]:
    blocks = list(_FENCE.finditer(page))
    found = []
    for block, following in zip_longest(blocks, blocks[1:]):
        words = block["kind"].split()
        if words[:1] != ["cql"]:
            continue
        adjacent = following is not None and following["kind"].strip() == "result"
        result = following["text"] if adjacent and following is not None else None
        line = page.count("\n", 0, block.start()) + 1
        found.append(Example(line, block["text"], "refused" in words, "drain" in words, result))
    return found


def answers(bound: BoundScript, drain: bool) -> dict[str, str]:
    """The answers of the queries that read only rows INSERTed by the page, as csv."""
    inputs = {}
    for key, source in bound.catalog.sources.items():
        if source.connector != "MEMORY":
            continue
        inputs[source.name] = inserted_rows(source, bound.catalog.memory.get(key, ()))
    queries = [q for q in bound.queries if {s.source.name for s in walk(q.root) if isinstance(s, Scan)} <= set(inputs)]
    tables = run_local(queries, inputs, drain=drain).tables if queries else {}
    return {name: csv_text(table).to_pybytes().decode() for name, table in tables.items()}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_examples_of_a_page(path: Path) -> None:
    catalog = Catalog()
    for example in examples(path.read_text(encoding="utf-8")):
        place = f"{path.name}:{example.line}"
        if example.refused:
            with pytest.raises(PenstockError):
                bind_script(example.text, catalog)
            continue
        bound = bind_script(example.text, catalog, file=place)
        catalog = bound.catalog
        found = answers(bound, example.drain)
        if example.result is not None:
            assert found[bound.queries[-1].name] == example.result, place


def test_the_readme_shows_a_result() -> None:
    assert any(example.result for example in examples(PAGES[0].read_text(encoding="utf-8")))


def test_every_query_of_the_tutorial_shows_its_answer() -> None:
    queries = [
        example
        for example in examples((ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8"))
        if not example.refused and "FROM FILES" not in example.text
    ]
    assert len(queries) >= 10 and all(example.result for example in queries)


def test_every_recipe_shows_its_answer() -> None:
    recipes = examples((ROOT / "docs" / "recipes.md").read_text(encoding="utf-8"))
    assert len(recipes) >= 20 and all(example.result for example in recipes)


def test_the_script_over_tables_of_others_is_correct() -> None:
    script = ROOT / "examples" / "tables.cql"
    assert len(bind_script(script.read_text(encoding="utf-8"), file=script.name).queries) == 2


def test_the_demo_script_is_correct() -> None:
    script = ROOT / "examples" / "flights.cql"
    assert len(bind_script(script.read_text(encoding="utf-8"), file=script.name).queries) >= 6


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem)
def test_a_page_of_a_decision_has_its_form(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    headings = [line for line in lines if re.match(r"#{1,6} ", line)]
    assert headings[:1] == lines[:1], "it begins with its title"
    assert headings[1:] == ["## Context", "## Decision", "## Consequences"]
    assert len(lines) <= 150


def test_the_index_has_each_decision_once() -> None:
    named = re.findall(r"^- \[([\w-]+\.md)\]\(\1\): ", INDEX.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(named) == [path.name for path in DECISIONS]
