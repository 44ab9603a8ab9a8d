"""Scalar expressions: sqlglot's trees to bound, typed expressions.

One function per kind of node, in a table. A node that is not in the table, or has an argument that is not listed for
it, never gets here: `unsupported.py` rejects it first, by the same table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from sqlglot import exp

from penstock.language.binder.scalars.binder import Binding, ScalarBinder
from penstock.language.binder.scalars.calls import CALLS
from penstock.language.binder.scalars.operators import OPERATORS

BINDERS: Mapping[type[exp.Expr], Binding] = {**OPERATORS, **CALLS}


@dataclass
class ExpressionBinder(ScalarBinder):
    """Binds every supported kind of scalar expression."""

    table: ClassVar[Mapping[type[exp.Expr], Binding]] = BINDERS
