"""The declarations of a system as a script: one that declares them again, and that is no difference to them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from penstock.control.drafting.whole_catalog import pairs_text
from penstock.control.registry import DECLARATION_ORDER, quoted, settings_of
from penstock.control.stored_catalog import StoredObject
from penstock.language.statements.values import string_text
from penstock.settings import Settings

#: Settings that bear on what a declaration means.
_MEANING = (
    "integer_division",
    "time_zone",
    "seed",
    "shed_memory",
    "shed_cpu",
    "shed",
    "shed_buckets",
    "shed_compact",
    "shed_error_sample",
    "shed_accuracy_at_least",
    "shed_on_inaccuracy",
)
#: The beginning of a statement that declares a query, up to its name.
_HEAD = re.compile(
    r"\s*CREATE\s+(?:OR\s+REPLACE\s+)?QUERY\s+(?:IF\s+NOT\s+EXISTS\s+)?(`(?:[^`]|``)+`|\w+)", re.IGNORECASE
)


def catalog_text(objects: Iterable[StoredObject], settings: Mapping[str, str]) -> str:
    """Return the script, a statement a line or more. Queries that end with their subscription are left out, and so is
    whether a query is paused, and where it began.

    Args:
        settings: those of the whole system, as written.
    """
    lines: list[str] = []
    now = dict(settings)
    for one, changed in _in_order([each.as_wished for each in objects]):
        if changed is not None:
            lines.append(changed)
        elif not one.is_temporary:
            lines += _settings(one, now)
            lines += _statements(one)
    return "".join(f"{line};\n" for line in lines)


def _in_order(objects: Sequence[StoredObject]) -> Iterator[tuple[StoredObject, str | None]]:
    """Yield the declarations in order, and the statements that have changed the promises of streams, each where it
    stood among the sources: what a statement refers to is before it."""
    by_order: dict[int, list[StoredObject]] = {}
    for one in objects:
        by_order.setdefault(DECLARATION_ORDER[one.kind], []).append(one)
    for order in sorted(by_order):
        entries: list[tuple[int, StoredObject, str | None]] = [(one.id, one, None) for one in by_order[order]]
        if order == DECLARATION_ORDER["STREAM"]:
            entries += [(number, one, text) for one in objects for number, text in one.promises]
            entries.sort(key=lambda entry: entry[0])
        yield from ((one, text) for _, one, text in entries)


def declared_text(one: StoredObject, text: str | None) -> str:
    """Return the statement that declares a query. text: as it was registered, where that is known; it has another query
    or name where that has been changed since."""
    head = None if text is None else _HEAD.match(text)
    if text is not None and head is not None and head[1].strip("`").replace("``", "`").lower() == one.name.lower():
        return text
    return next(_statements(one.as_wished))


def _settings(one: StoredObject, now: dict[str, str]) -> Iterator[str]:
    """Yield the SET statements for the settings of a declaration that differ from those in force."""
    declared, known = settings_of(one.settings), settings_of(now)
    for name in _MEANING:
        if declared[name] != known[name]:
            now[name] = one.settings.get(name, str(Settings()[name]).lower())
            yield f"SET {name} = {string_text(now[name])}"


def _statements(one: StoredObject) -> Iterator[str]:
    name = quoted(one.name)
    if one.query is None:
        yield one.text.rstrip().rstrip(";")
        if one.attributes:
            yield f"ALTER {one.kind} {name} SET ({pairs_text(one.attributes)})"
        return
    parts = [f"CREATE QUERY {name}"]
    if one.query.into:
        parts.append(f"INTO {one.query.sink.connector} ({pairs_text(dict(one.query.sink.options))})")
    if one.attributes:
        parts.append(f"WITH ({pairs_text(one.attributes)})")
    yield " ".join([*parts, "AS", one.text])
