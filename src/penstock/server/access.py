"""The role that each statement needs."""

from __future__ import annotations

from penstock.language.parse import parse_script
from penstock.language.statements import (
    CreateFunction,
    DropStatement,
    ExplainStatement,
    OneTimeSelect,
    SetSetting,
    ShowStatement,
)
from penstock.server.roles import AccessRole, Caller

#: Statements that change nothing but the session.
_READS = (ExplainStatement, OneTimeSelect, SetSetting, ShowStatement)
#: What runs code, or changes the whole job.
_ADMIN = (CreateFunction,)
_CODE = ("FUNCTION", "AGGREGATE")


def role_of(statement: object) -> AccessRole:
    """Return the role that a parsed statement needs."""
    if isinstance(statement, _READS):
        return AccessRole.READ
    if isinstance(statement, _ADMIN) or (isinstance(statement, DropStatement) and statement.kind.upper() in _CODE):
        return AccessRole.ADMIN
    return AccessRole.CONTROL


def check_roles(script: str, caller: Caller) -> None:
    """Raises ScriptErrors where the script cannot be read, PenstockError P0802 for a statement that the caller's role
    does not allow."""
    for statement in parse_script(script).statements:
        caller.need(role_of(statement), f"for {type(statement).__name__}")
