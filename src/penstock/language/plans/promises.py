"""Operators whose state ends by promises of streams, as data: refused until their form is there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from penstock.algebra import Algebra
from penstock.algebra.nodes.promised import ClosedRows, ClosingGroups, PromisedJoin
from penstock.errors import PenstockError
from penstock.language.plan_form import fault
from penstock.language.plans.fields import Below, NodeForm

_HINT = "register the query by its text"


def _write(node: PromisedJoin | ClosedRows | ClosingGroups) -> NoReturn:
    raise PenstockError("P0901", f"{node.worded} by promises of streams as data is not supported yet", hint=_HINT)


def _read(below: Below) -> NoReturn:
    message = "an operator by promises of streams as data is not supported yet"
    raise fault(below.pointer, message, "P0901", _HINT)


PROMISES: Mapping[type[Algebra], NodeForm] = {
    PromisedJoin: NodeForm(_write, _read, inputs=(2, 2)),
    ClosedRows: NodeForm(_write, _read),
    ClosingGroups: NodeForm(_write, _read),
}
