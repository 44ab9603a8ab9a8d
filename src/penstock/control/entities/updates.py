"""UPDATE of a control relation: the statements that set the attributes of the rows it chooses.

The rows are chosen once, when the command is accepted; what is written to the log are the declarations as they are
afterwards, as for the statements themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.control.entities.attributes import Attribute, ControlRelation
from penstock.control.entities.relations import BY_NAME
from penstock.control.entities.system import SystemView
from penstock.errors import PenstockError, counted
from penstock.expressions.evaluation.evaluate import evaluate, mask
from penstock.expressions.nodes import Column, Expression
from penstock.language.binder.statements.attributes import NONE
from penstock.language.commands import UpdateControl
from penstock.language.statements import Statement
from penstock.tree import walk


def statements_of(command: UpdateControl, view: SystemView) -> list[Statement]:
    """Return the statements that carry out an UPDATE: one for each value that changes.

    Raises:
        PenstockError: P0752 for what cannot be set, P0753 where another number of rows is chosen than it confirms.
    """
    relation = BY_NAME[command.relation.lower()]
    rows = list(relation.rows(view))
    columns = _columns(relation, rows, command)
    if command.condition is not None:
        chosen = np.flatnonzero(mask(command.condition, columns, len(rows)))
    else:
        chosen = np.arange(len(rows))
    _check_count(command, relation, len(chosen))
    _check_together(command, relation, [rows[i] for i in chosen.tolist()])
    new = [(name, evaluate(value, columns, len(rows))) for name, value in command.assignments]
    # A query is paused or resumed with the other attributes set.
    new.sort(key=lambda pair: pair[0] == "state")
    return [
        statement
        for i in chosen.tolist()
        for name, values in new
        for statement in _setting(relation, rows[i], relation.attribute(name), values[i].as_py(), command)
    ]


def _columns(relation: ControlRelation[Any], rows: Sequence[Any], command: UpdateControl) -> list[pa.Array]:
    """Return the columns of the rows; those that the statement does not read are NULL."""
    expressions = [value for _, value in command.assignments]
    expressions += [] if command.condition is None else [command.condition]
    read = {position for expression in expressions for position in _positions(expression)}
    return [
        pa.array([one.read(row) for row in rows], one.type) if i in read else pa.nulls(len(rows), one.type)
        for i, one in enumerate(relation.attributes)
    ]


def _positions(expression: Expression) -> Iterator[int]:
    return (node.index for node in walk(expression) if isinstance(node, Column))


def _check_count(command: UpdateControl, relation: ControlRelation[Any], count: int) -> None:
    """Raise PenstockError P0753 where the number of rows is not the one expected, or has to be confirmed."""
    rows, confirm = counted(count, "row"), f"CONFIRM {count} ROWS at the end confirms it"
    if command.confirmed is not None and command.confirmed != count:
        message = f"this UPDATE chooses {rows} of {relation.qualified}, not {command.confirmed}"
        raise PenstockError("P0753", message, hint=confirm).at(command.position)
    if command.condition is None and command.confirmed is None and relation.confirms:
        message = f"this UPDATE has no WHERE: it changes all {rows} of {relation.qualified}"
        raise PenstockError("P0753", message, hint=confirm).at(command.position)


def _check_together(command: UpdateControl, relation: ControlRelation[Any], rows: Sequence[Any]) -> None:
    """Raise PenstockError P0753 where a row changes several queries and that is not confirmed."""
    if command.confirmed is not None:
        return
    settings = [relation.attribute(name).setting for name, _ in command.assignments]
    for setting in settings:
        for row in rows:
            if setting is not None and setting.together is not None and setting.together(row) > 1:
                message = f"{relation.described(row)} is used by {setting.together(row)} queries, which all change"
                hint = f"CONFIRM {counted(len(rows), 'ROW')} at the end; ALTER QUERY .. SET (plan ..) is for one query"
                raise PenstockError("P0753", message, hint=hint).at(command.position)


def _setting(
    relation: ControlRelation[Any], row: Any, attribute: Attribute[Any], value: object, command: UpdateControl
) -> list[Statement]:
    """Return the statement that sets an attribute of a row; none where it has the value already."""
    setting = attribute.setting
    assert setting is not None, "the binder has looked"
    before = attribute.read(row)
    if before == value or (before is not None and as_text(before) == value):
        return []
    if value is None:
        default = setting.default if setting.default_of is None else setting.default_of(row)
        if default != NONE:
            hint = "a value of its type" + (f", such as {default}" if default else "")
            message = f"{attribute.name} of {relation.described(row)} cannot be NULL"
            raise PenstockError("P0752", message, hint=hint).at(command.position)
        value = NONE
    try:
        made = setting.statement(row, as_text(value))
    except PenstockError as error:
        raise error.at(command.position) from None
    return [made] if isinstance(made, Statement) else list(made)


def as_text(value: object) -> str:
    """Return the value of an attribute as text, as a statement would have it."""
    if isinstance(value, bool):
        return str(value).lower()
    # All digits of a number; one without a fraction as a whole one.
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)
