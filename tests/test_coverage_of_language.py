"""Every construct has a place in docs/language/support.md and a test that names it; every node has a meaning.

Walks what the grammar can build (the trees of `language/queries.py`, `language/clauses.py` and `language/statements/`)
and every operator of the algebra. A node that is in no row of the table "Where each construct is tested", an operator
without lowering or definition: each fails here. What the binder does with every field is in
`tests/language/test_unsupported.py`.
"""

from __future__ import annotations

import enum
import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
from sqlglot import exp

import penstock.session  # noqa: F401 - loads every operator
from penstock.algebra import Algebra
from penstock.language import clauses, queries
from penstock.language.statements import KINDS
from penstock.physical.planning.lowering import lower
from penstock.testing.definitions import denote

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "language" / "support.md"
HEADING = "## Where each construct is tested"


@dataclass(frozen=True)
class Row:
    """words: the construct, as it is written; nodes: the trees and operators that it becomes; tests: paths."""

    words: tuple[str, ...]
    nodes: tuple[str, ...]
    tests: tuple[str, ...]


def rows() -> list[Row]:
    _, _, section = PAGE.read_text(encoding="utf-8").partition(HEADING)
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    cells = [[tuple(re.findall(r"`([^`]+)`", cell)) for cell in line.strip("| ").split(" | ")] for line in lines]
    assert all(len(row) == 3 for row in cells), [line for line, row in zip(lines, cells, strict=True) if len(row) != 3]
    return [Row(*row) for row in cells if row[2]]


def grammar_types(*modules: ModuleType) -> Iterator[type]:
    """What a parsed statement may consist of."""
    for module in modules:
        for _, found in inspect.getmembers(module, inspect.isclass):
            if found.__module__ == module.__name__:
                yield found


#: What a statement consists of, beside queries; its file binds all of it.
WHOLE = {*grammar_types(clauses, *(sys.modules[kind.tree.__module__] for kind in KINDS))}
GRAMMAR = sorted({*grammar_types(queries), *WHOLE}, key=lambda t: t.__name__)


def operators(base: type[Algebra] = Algebra) -> Iterator[type[Algebra]]:
    """The operators that a plan may consist of: all subclasses that stand for something themselves."""
    for kind in base.__subclasses__():
        if not kind.__subclasses__() and kind.__module__.startswith("penstock."):
            yield kind
        yield from operators(kind)


OPERATORS = sorted(set(operators()), key=lambda t: t.__name__)


def test_the_table_is_there() -> None:
    assert len(rows()) > 20
    assert len(OPERATORS) > 10
    assert len(GRAMMAR) > 30


def test_every_node_is_documented() -> None:
    documented = {name for row in rows() for name in row.nodes}
    assert [kind for kind in (*GRAMMAR, *OPERATORS) if kind.__name__ not in documented] == []


def test_the_table_names_only_what_there_is() -> None:
    known = {kind.__name__ for kind in (*GRAMMAR, *OPERATORS)}
    assert {name for row in rows() for name in row.nodes} <= known


@pytest.mark.parametrize("kind", OPERATORS, ids=lambda kind: kind.__name__)
def test_every_operator_has_a_meaning_and_a_lowering(kind: type[Algebra]) -> None:
    assert denote.dispatch(kind) is not denote.dispatch(object), f"the oracle does not know {kind.__name__}"
    assert lower.dispatch(kind) is not lower.dispatch(Algebra), f"{kind.__name__} has no lowering"


def test_the_tests_of_a_construct_name_it() -> None:
    """Every path is there, and the files together hold every word of the construct."""
    missing = []
    for row in rows():
        assert [path for path in row.tests if not (ROOT / path).is_file()] == []
        text = "".join((ROOT / path).read_text(encoding="utf-8") for path in row.tests)
        missing += [(row.tests, word) for word in row.words if not re.search(_pattern(word), text, re.IGNORECASE)]
    assert missing == []


def _pattern(word: str) -> str:
    """`ROWS n` as a pattern: letters alone and `...` stand for anything short."""
    parts = [r"[^\n;]{1,60}?" if re.fullmatch(r"[a-z]|\.\.\.", part) else re.escape(part) for part in word.split()]
    return r"\s*".join(parts)


def test_expression_nodes_of_the_grammar_are_sqlglots() -> None:
    """The one tree of our own among scalar expressions is a query that stands in one."""
    own = [kind for kind in GRAMMAR if issubclass(kind, exp.Expr)]
    assert [kind.__name__ for kind in own] == ["EmbeddedQuery"]


def test_enumerations_are_whole() -> None:
    """Every value of the grammar's enumerations is a word of some row."""
    words = " ".join(word for row in rows() for word in row.words).upper()
    for kind in GRAMMAR:
        if issubclass(kind, enum.Enum):
            missing = [member.name for member in kind if member.name.replace("_", " ") not in words]
            assert missing == [], f"{kind.__name__}: no row names {', '.join(missing)}"
