"""Instants and days over the catalogs: texts of one form, so that they are in order as texts."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

from penstock.server.pgwire.protocol.errors import WireError

MOMENT_TYPES = frozenset({"timestamp", "timestamptz", "date"})


def moment_text(value: dt.datetime) -> str:
    """Return an instant in that form."""
    return value.astimezone(dt.UTC).replace(tzinfo=None).isoformat(" ", "microseconds") + "+00"


def _cast(value: Any, type_: str) -> str | None:
    """Return a text or an instant as a value of a type. Without a time zone it is in UTC."""
    if value is None:
        return None
    text = str(value).strip()
    try:
        found = dt.datetime.fromisoformat(text)
    except ValueError:
        raise WireError("22007", f"{text[:100]!r} is no {type_}", "'2024-02-29 12:00:00'", code="P0203") from None
    if type_ == "date":
        return found.date().isoformat()
    if type_ == "timestamptz":
        return moment_text(found if found.tzinfo is not None else found.replace(tzinfo=dt.UTC))
    return found.replace(tzinfo=None).isoformat(" ", "microseconds")


def _shown(value: Any) -> str | None:
    """Return an instant as PostgreSQL writes it: without zeros at the end of its fraction."""
    if value is None:
        return None
    text, zone, _ = str(value).partition("+00")
    return (text.rstrip("0").rstrip(".") if "." in text else text) + zone


MOMENTS: dict[str, tuple[str, Callable[..., Any]]] = {"pg_moment": ("", _cast), "pg_moment_text": ("text", _shown)}
