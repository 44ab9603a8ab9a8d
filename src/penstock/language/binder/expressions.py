"""Scalar expressions: sqlglot's trees to bound, typed expressions.

One function per kind of node, in a table. A node that is not in the table, or carries an argument that its row does
not name, never comes here: `unsupported.py` refuses it first, by the same table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from sqlglot import exp

from penstock.language.binder.calls import CALLS
from penstock.language.binder.operators import OPERATORS
from penstock.language.binder.scalars import Binding, ScalarBinder

BINDERS: Mapping[type[exp.Expr], Binding] = {**OPERATORS, **CALLS}


@dataclass
class ExpressionBinder(ScalarBinder):
    """Binds every kind of scalar expression that is carried out."""

    table: ClassVar[Mapping[type[exp.Expr], Binding]] = BINDERS
