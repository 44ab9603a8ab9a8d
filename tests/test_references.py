"""Every reference leads to something in the repository: citations, links, anchors, and no document outside of it."""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = [path for folder in (ROOT.glob, DOCS.rglob, (ROOT / "benchmarks").rglob) for path in sorted(folder("*.md"))]
CITING = [
    path
    for folder in ("src", "tests", "benchmarks", "examples", "docs")
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in (".py", ".md", ".cqltest", ".txt") and path != Path(__file__).resolve()
]

_KEY = re.compile(r"^\| `(\w+)` \|", re.MULTILINE)
_NUMBERS = r"(?:def\. )?\d+(?:\.\d+)*[a-z]?"
_CITATION = re.compile(rf"\[([a-z]+) ({_NUMBERS}(?:(?:,| and| or| to) [^\]\n]{{1,40}})?)\]")
_MODULE = re.compile(r"`([a-z_][a-z_/]*\.py)`")
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def keys() -> set[str]:
    """Return the keys of the bibliography."""
    return set(_KEY.findall((DOCS / "bibliography.md").read_text(encoding="utf-8")))


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub makes them."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in _HEADING.findall(text)}


def citations(text: str) -> Iterator[tuple[str, str]]:
    """Yield (key, sections) of each citation `[key 1.2]`."""
    yield from _CITATION.findall(text)


def modules() -> set[str]:
    """Return the names of the repository's Python files, with any number of the folders above them."""
    files = [p for place in ("src", "tests", "benchmarks", "examples", "scripts") for p in (ROOT / place).rglob("*.py")]
    parts = [path.relative_to(ROOT).parts for path in files]
    return {"/".join(names[first:]) for names in parts for first in range(len(names))}


def problems(page: Path) -> list[str]:
    """Return the links of a page that lead nowhere."""
    found = []
    for target in _LINK.findall(_FENCE.sub("", page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        place = (page.parent / name).resolve() if name else page
        if not place.exists():
            found.append(f"{target}: no such file")
        elif anchor and anchor not in anchors(place):
            found.append(f"{target}: no such heading")
    return found


def test_every_citation_is_in_the_bibliography() -> None:
    known = keys()
    assert {"cidr", "golab", "csql", "semantics"} <= known
    unknown = [
        f"{path.relative_to(ROOT)}: [{key} {sections}]"
        for path in CITING
        for key, sections in citations(path.read_text(encoding="utf-8"))
        if key not in known
    ]
    assert unknown == []


def test_every_cited_section_of_the_semantics_exists() -> None:
    page = (DOCS / "semantics.md").read_text(encoding="utf-8")
    there = {heading.split()[0] for heading in _HEADING.findall(page) if heading[0].isdigit()}
    missing = [
        f"{path.relative_to(ROOT)}: [{key} {sections}]"
        for path in CITING
        for key, sections in citations(path.read_text(encoding="utf-8"))
        if key == "semantics" and not set(re.findall(r"\d(?:\.\d)?", sections)) <= there
    ]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_and_anchor_of_a_page_exists(page: Path) -> None:
    assert problems(page) == []


def test_every_page_that_the_code_names_exists() -> None:
    named = re.compile(r"\b(?:docs|benchmarks)/[\w/-]+\.md\b")
    missing = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in CITING
        for name in named.findall(path.read_text(encoding="utf-8"))
        if not (ROOT / name).is_file()
    ]
    assert missing == []


def test_nothing_refers_to_documents_outside_of_the_repository() -> None:
    structure = runpy.run_path(str(ROOT / "scripts" / "structure.py"))
    assert structure["outside_references"](ROOT) == 0


def test_what_these_tests_would_find(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One heading\n[good](#one-heading) [bad](#another) [gone](gone.md)\n", encoding="utf-8")
    assert problems(page) == ["#another: no such heading", "gone.md: no such file"]
    assert list(citations("as `[nobody 3.1]` has it")) == [("nobody", "3.1")]


def test_modules_that_are_named_exist() -> None:
    """A file that has moved or got another name leaves none of the old name behind, in docs and docstrings."""
    known = modules()
    unknown = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in CITING
        if "tests" not in path.relative_to(ROOT).parts
        for name in _MODULE.findall(path.read_text(encoding="utf-8"))
        # `queue.py` of a user that hides Python's own is an example.
        if name not in known and name.removesuffix(".py") not in sys.stdlib_module_names
    ]
    assert not unknown
