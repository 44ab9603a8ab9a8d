"""Syntax trees of the clauses that several statements share."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from penstock.algebra.nodes.query import StartMode
from penstock.algebra.properties.promises import PromiseMode
from penstock.language.queries import NOWHERE, Count, Duration, Mark, Name
from penstock.language.text import TextSpan


class Existence(enum.Enum):
    """What a CREATE does where the name is declared already, if it is not an error."""

    OR_REPLACE = "OR REPLACE"
    IF_NOT_EXISTS = "IF NOT EXISTS"


@dataclass(frozen=True)
class TypeText:
    """A type as it is written."""

    text: str
    span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class WrittenOption:
    key: Name
    value: str
    value_span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class Connector:
    name: Name
    options: tuple[WrittenOption, ...] = ()
    span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class AsOf:
    """AS OF: the tick, or the timestamp in ISO form, at which a one-time query is answered."""

    at: int | str
    span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class StartClause:
    """START { NOW | WARM [WAIT] | BEGINNING | AT instant }. at: of AT alone."""

    mode: StartMode
    at: AsOf | None = None
    wait: Mark | None = None
    span: TextSpan = field(default=NOWHERE, compare=False)


class PromiseKind(enum.Enum):
    """What a promise of a stream begins with."""

    UNIQUE = "UNIQUE"
    FOREIGN_KEY = "FOREIGN KEY"
    CLUSTERED = "CLUSTERED BY"
    ORDERED = "ORDERED BY"


@dataclass(frozen=True)
class PromiseClause:
    """[CONSTRAINT name] promise [ASSERTED | CHECKED | OBSERVED] of a stream (docs/promises.md).

    Args:
        parent, parent_columns: of REFERENCES.
        descending: DESC.
        within: k of WITHIN, which may be negative; None without the clause.
        mode: None where it is not written.
        name: of CONSTRAINT.
    """

    kind: PromiseKind
    columns: tuple[Name, ...]
    parent: Name | None = None
    parent_columns: tuple[Name, ...] = ()
    descending: Mark | None = None
    within: Count | Duration | None = None
    mode: PromiseMode | None = None
    name: Name | None = None
    span: TextSpan = field(default=NOWHERE, compare=False)
