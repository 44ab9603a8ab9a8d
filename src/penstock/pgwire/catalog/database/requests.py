"""What the server and the process of a database exchange."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import PenstockError
from penstock.pgwire.catalog.declarations.declared import CatalogImage
from penstock.pgwire.values.wire_types import WireType


@dataclass(frozen=True)
class DatabaseSession:
    """What statements report of the connection."""

    user: str
    backend: int
    can_write: bool
    settings: Mapping[str, str]


@dataclass(frozen=True)
class DatabaseRequest:
    """A statement.

    Args:
        text: for DuckDB.
        tables: that it reads.
        control: the rows of control relations by name, each with the types of its columns.
        image: what is declared, where it is not what was declared for the statement before.
        now: when the statement began.
        most: rows that it may return.
    """

    text: str
    tables: Sequence[tuple[str, str]]
    session: DatabaseSession
    now: str
    most: int
    image: CatalogImage | None = None
    control: Mapping[str, tuple[Mapping[str, WireType], Mapping[str, list[object]]]] = field(default_factory=dict)


@dataclass(frozen=True)
class DatabaseAnswer:
    """The rows of a statement, or its error; and what it has set, in turn."""

    rows: Sequence[tuple[Any, ...]] = ()
    error: PenstockError | None = None
    settings: Sequence[tuple[str, str]] = ()
