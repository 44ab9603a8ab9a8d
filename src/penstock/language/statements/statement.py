"""What the tree of every statement has: its kind, the role that it needs, and its place in the script."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

from penstock.language.queries import NOWHERE
from penstock.language.text import TextSpan


class AccessRole(enum.IntEnum):
    """Who may execute a statement; each role includes those before it."""

    READ = 1
    CONTROL = 2
    ADMIN = 3

    @property
    def word(self) -> str:
        """Return the role as it is written in the token file."""
        return self.name.lower()


@dataclass(frozen=True)
class StatementTree:
    """Base of the trees of statements, which are frozen dataclasses.

    Attributes:
        KIND: what replies call it, such as `CREATE QUERY` or `SELECT`, where that is the same for every tree.
        ROLE: the role that it needs, where that is the same for every tree.
        span: its place in the script, which the registry gives to what it has read.
    """

    KIND: ClassVar[str] = ""
    ROLE: ClassVar[AccessRole] = AccessRole.CONTROL
    span: TextSpan = field(default=NOWHERE, compare=False, kw_only=True)

    @property
    def statement_kind(self) -> str:
        """Return what replies call it."""
        return self.KIND

    @property
    def role(self) -> AccessRole:
        """Return the role that it needs."""
        return self.ROLE


Statement: TypeAlias = StatementTree
