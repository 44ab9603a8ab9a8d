"""Algebra as text, short enough to stand in a test: one operator a line, its parameters as explain shows them."""

from __future__ import annotations

from penstock.algebra import Algebra, Join
from penstock.errors import PenstockError, ScriptErrors
from penstock.expressions.calls.text import to_sql
from penstock.language.scripts import Catalog, bind_query, bind_script

DECLARATIONS = """
CREATE STREAM s (a INT, b STRING, x DOUBLE, ts TIMESTAMP) FROM MEMORY () TIMESTAMP BY ts;
CREATE STREAM t (a BIGINT, y DECIMAL(10,2), ts TIMESTAMP) FROM MEMORY () TIMESTAMP BY ts;
CREATE STREAM n (a INT, tick INT) FROM MEMORY () TIMESTAMP BY tick UNIT SECOND;
CREATE RELATION r (a INT, name STRING) FROM MEMORY ();
CREATE RELATION u (a INT, op STRING, ts TIMESTAMP) FROM MEMORY () TIMESTAMP BY ts OPERATION BY op;
"""


def shown(node: Algebra, depth: int = 0) -> str:
    described = ", ".join(node.describe().values())
    if isinstance(node, Join):
        described = f"{node.equal}" + (f" {to_sql(node.residual, node.schema.names)}" if node.residual else "")
    lines = ["  " * depth + f"{type(node).__name__} {described}".rstrip()]
    return "\n".join([*lines, *(shown(child, depth + 1) for child in node.inputs)])


def plan(text: str, catalog: Catalog) -> str:
    return shown(bind_query(text, catalog).root)


def errors_of(text: str, catalog: Catalog | None = None) -> tuple[PenstockError, ...]:
    """The errors of a script that must have some."""
    try:
        bind_script(text, catalog)
    except ScriptErrors as errors:
        return errors.errors
    raise AssertionError(f"no error in {text!r}")


def marked(error: PenstockError) -> str:
    """The text under the caret."""
    position = error.position
    assert position is not None
    return position.text[position.column - 1 : position.column - 1 + position.length]
