"""Constructs that Penstock does not carry out yet are refused by name, at their place; nothing is ignored."""

from __future__ import annotations

import ast
import inspect
import pkgutil
import sys
from dataclasses import fields, is_dataclass
from types import ModuleType
from typing import Any

import pytest
from plans import errors_of, marked

from penstock.language import binder as bound
from penstock.language.scripts import Catalog
from penstock.language.statements import KINDS, definitions

#: (statement, the words marked, the name in the message)
CASES = [
    ("SELECT SUM(a) OVER (ORDER BY b) FROM s", "SUM(a) OVER (ORDER BY b)", "a window function (OVER)"),
    ("SELECT ARRAY_AGG(a ORDER BY b LIMIT 1) FROM s", "a ORDER BY b LIMIT 1", "LIMIT in an aggregate"),
    ("SELECT RANK(3) WITHIN GROUP (ORDER BY b) FROM s", "RANK", "RANK with WITHIN GROUP"),
    ("SELECT COLLECT_SET(a) FROM s", "COLLECT_SET", "the aggregate COLLECT_SET"),
    ("SELECT FIRST(a) IGNORE NULLS FROM s", "FIRST(a) IGNORE NULLS", "IGNORE NULLS"),
    ("SELECT s.a.b FROM s", "s.a.b", "a name of more than two parts"),
    ("SELECT a FROM s WHERE b = 'x' 'y'", "'x' 'y'", "adjacent strings"),
    ("SELECT a FROM s LATERAL VIEW EXPLODE(a) z", "LATERAL", "LATERAL VIEW"),
    ("SELECT a FROM s QUALIFY a > 1", "QUALIFY", "QUALIFY"),
    ("SELECT a FROM s PIVOT (x)", "PIVOT", "PIVOT"),
    ("SELECT a FROM read_csv('s.csv')", "read_csv", "a function in FROM"),
    ("SELECT a FROM s EXCEPT BY NAME SELECT a FROM s", "NAME", "EXCEPT BY NAME"),
    ("WITH RECURSIVE v AS (SELECT a FROM s) SELECT a FROM v", "RECURSIVE", "WITH RECURSIVE"),
]


@pytest.mark.parametrize(("text", "words", "name"), CASES, ids=[c[0] for c in CASES])
def test_refused_by_name_at_its_place(text: str, words: str, name: str, catalog: Catalog) -> None:
    found = errors_of(text, catalog)
    assert words in [marked(e) for e in found if e.message.startswith(f"{name} is not supported")]
    assert {e.code for e in found} == {"P0901"}, [e.render() for e in found]


def test_every_field_of_every_statement_is_bound() -> None:
    """What the grammar reads is not ignored: of a statement its file binds every field, of queries and clauses the
    binder does, or what statements define queries with."""
    modules = [module.name for module in pkgutil.walk_packages(bound.__path__, f"{bound.__name__}.")]
    binder = {name for module in [*modules, definitions.__name__] for name in read_in(module)}
    for module in {"penstock.language.queries", "penstock.language.clauses", *(kind.tree.__module__ for kind in KINDS)}:
        read = read_in(module) if ".statements." in module else binder
        for kind in trees(sys.modules[module]):
            own = [field.name for field in fields(kind) if field.compare and field.name in kind.__annotations__]
            assert set(own) - read == set(), kind.__name__


def trees(module: ModuleType) -> list[Any]:
    return [kind for kind in vars(module).values() if is_dataclass(kind) and kind.__module__ == module.__name__]


def read_in(module: str) -> set[str]:
    """Return the attributes that the functions of a module read, but for those that parse and print."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    binding = [one for one in functions if not one.name.endswith("_text") and not one.name.startswith("_read")]
    return {node.attr for one in binding for node in ast.walk(one) if isinstance(node, ast.Attribute)}


def test_a_refused_query_tells_its_other_errors_too(catalog: Catalog) -> None:
    found = errors_of("SELECT nope, FIRST(a) IGNORE NULLS FROM s [RANGE 5 ROWS] WHERE b + TRUE > 1", catalog)
    assert [e.code for e in found] == ["P0202", "P0901", "P0203"]
