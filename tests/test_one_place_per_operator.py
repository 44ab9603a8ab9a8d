"""What an operator is to others it says itself: no other code decides by the class of a spec or of a leaf."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from penstock.algebra.nodes.scans import Scan
from penstock.physical.operators import OPERATORS
from penstock.physical.plan.spec import Spec

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "penstock"

#: The registries of a phase, in which every operator has an entry of its own: a folder each.
REGISTRIES = ("physical/planning/lowering/", "testing/definitions/", "testing/promises/", "language/binder/")


def classes(base: type) -> Iterator[type]:
    for kind in base.__subclasses__():
        yield kind
        yield from classes(kind)


@cache
def parsed() -> dict[str, ast.Module]:
    paths = sorted(PACKAGE.rglob("*.py"))
    return {str(path.relative_to(PACKAGE)): ast.parse(path.read_text(encoding="utf-8")) for path in paths}


def decisions(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, name) of every class that `tree` decides by: in `isinstance`, `issubclass`, `type(x) is` and `match`."""
    for node in ast.walk(tree):
        asked: list[ast.expr] = []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            asked = node.args[1:] if node.func.id in ("isinstance", "issubclass") else []
        elif isinstance(node, ast.MatchClass):
            asked = [node.cls]
        elif isinstance(node, ast.Compare) and _is_type_of(node.left):
            asked = node.comparators
        for expression in asked:
            named = (part for part in ast.walk(expression) if isinstance(part, ast.Name | ast.Attribute))
            yield from ((node.lineno, ast.unparse(part).rpartition(".")[2]) for part in named)


def _is_type_of(node: ast.expr) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "type"


@cache
def all_decisions() -> list[tuple[str, int, str]]:
    """Return (file, line, name) of every class that a file of the package decides by."""
    return [(place, line, name) for place, tree in parsed().items() for line, name in decisions(tree)]


def deciding(kinds: set[type]) -> list[str]:
    """Return where code outside the file of a class decides by the class."""
    own = {kind.__name__: kind.__module__.removeprefix("penstock.").replace(".", "/") + ".py" for kind in kinds}
    return [
        f"{place}:{line} asks for {name}" for place, line, name in all_decisions() if name in own and place != own[name]
    ]


def test_no_code_asks_which_spec_a_step_has() -> None:
    assert len(OPERATORS) > 30
    assert deciding({kind for kind in classes(Spec) if kind.__module__.startswith("penstock.")}) == []


def test_no_code_asks_whether_a_leaf_is_a_scan() -> None:
    """The oracle does: it defines every operator a second time."""
    assert [place for place in deciding({Scan}) if not place.startswith("testing/oracle.py")] == []


def test_properties_of_operators_are_methods_not_functions_by_class() -> None:
    """A function that dispatches by the class of its argument is a registry of one phase, and stands in its folder."""
    dispatching = [
        f"{place}:{node.lineno}"
        for place, tree in parsed().items()
        if not place.startswith(REGISTRIES)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and any(ast.unparse(decorator).startswith("singledispatch") for decorator in node.decorator_list)
    ]
    assert dispatching == []


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("isinstance(x, Scan)", "Scan"),
        ("isinstance(x, (int, nodes.Scan))", "Scan"),
        ("isinstance(x, A | Scan)", "Scan"),
        ("type(x) is Scan", "Scan"),
        ("match x:\n    case Scan(): pass", "Scan"),
    ],
)
def test_a_decision_by_class_is_noticed(source: str, name: str) -> None:
    assert name in {found for _, found in decisions(ast.parse(source))}
