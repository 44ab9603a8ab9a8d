"""JSON as PostgreSQL writes it, of values as SQLite has them.

A *form* is how a value is written: `number`, `bool`, `json` as it is, `moment`, a text otherwise; `[form]` is an
array of such values, and an object of forms a record.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from penstock.server.pgwire.protocol.errors import TOO_LARGE, WireError

#: Characters of one JSON text that is collected.
_MOST_CHARACTERS = 16_000_000
#: What PostgreSQL writes of a number that JSON does not have.
_NO_NUMBERS = frozenset({"NaN", "Infinity", "-Infinity"})


def json_text(value: Any, form: str) -> str:
    """Return a value as JSON."""
    if value is None:
        return "null"
    if form.startswith("["):
        values = json.loads(value) if isinstance(value, str) else value
        return f"[{','.join(json_text(one, form[1:-1]) for one in values)}]"
    if form.startswith("{"):
        fields = json.loads(value) if isinstance(value, str) else value
        forms = json.loads(form).items()
        return row_object(*(part for name, one in forms for part in (name, json_text(fields.get(name), one))))
    if form == "bool":
        return "true" if int(value) else "false"
    if form == "json":
        return str(value)
    text = str(value)
    if form == "number" and text not in _NO_NUMBERS:
        return text
    if form == "moment" and text[10:11] == " ":
        text = f"{text[:10]}T{text[11:]}"
        # The hours of a zone have their minutes there.
        text += ":00" if text[-3:-2] in ("+", "-") and ":" in text[11:] else ""
    return json.dumps(text, ensure_ascii=False)


def _pairs(parts: tuple[Any, ...], function: str) -> list[tuple[str, str]]:
    """Return the fields of an object. parts: names and JSON in turn. Raises WireError 22023."""
    if len(parts) % 2:
        raise WireError("22023", f"{function} needs a value for each name", code="P0204")
    names = parts[::2]
    if None in names:
        raise WireError("22023", f"the name of a field of {function} is NULL", code="P0203")
    return [(json.dumps(str(name), ensure_ascii=False), part) for name, part in zip(names, parts[1::2], strict=True)]


def json_object(*parts: Any) -> str:
    """Return what json_build_object does. parts: names and JSON in turn."""
    return "{" + ", ".join(f"{name} : {part}" for name, part in _pairs(parts, "json_build_object")) + "}"


def row_object(*parts: Any) -> str:
    """Return what row_to_json does. parts: names and JSON in turn."""
    return "{" + ",".join(f"{name}:{part}" for name, part in _pairs(parts, "row_to_json")) + "}"


def json_array(*parts: Any) -> str:
    """Return what json_build_array does. parts: JSON."""
    return f"[{', '.join(parts)}]"


class _Digits(str):
    """The digits of a number, which `jsonb` keeps."""


def as_jsonb(text: Any) -> Any:
    """Return JSON as `jsonb` is shown: of fields of one name the last, short names first. Raises WireError 22P02."""
    if text is None:
        return None
    try:
        return _normal(json.loads(str(text), parse_int=_Digits, parse_float=_Digits))
    except (ValueError, RecursionError) as error:
        raise WireError("22P02", f"this is no JSON: {error}", code="P0203") from None


def _normal(value: Any) -> str:
    if isinstance(value, _Digits):
        return str(value)
    if isinstance(value, dict):
        names = sorted(value, key=lambda name: (len(name.encode()), name.encode()))
        fields = (f"{json.dumps(name, ensure_ascii=False)}: {_normal(value[name])}" for name in names)
        return "{" + ", ".join(fields) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(_normal, value))}]"
    return json.dumps(value, ensure_ascii=False)


def record_set(text: Any, columns: str, name: str) -> str:
    """Return the rows of json_to_recordset and json_to_record as an array of arrays, whose elements are texts.

    Args:
        columns: pairs of a name and whether it has JSON, as JSON.
        name: of the function.

    Raises:
        WireError: 22P02, 22023.
    """
    if text is None:
        return "[]" if name.endswith("set") else json.dumps([[None] * len(json.loads(columns))])
    try:
        found = json.loads(str(text), parse_int=_Digits, parse_float=_Digits)
    except (ValueError, RecursionError) as error:
        raise WireError("22P02", f"this is no JSON: {error}", code="P0203") from None
    if not isinstance(found, list if name.endswith("set") else dict):
        kind = "an array" if name.endswith("set") else "an object"
        raise WireError("22023", f"{name} takes {kind} apart, and this is none", code="P0203")
    rows = found if isinstance(found, list) else [found]
    if not all(isinstance(row, dict) for row in rows):
        raise WireError("22023", f"{name} takes an array of objects apart", code="P0203")
    fields = json.loads(columns)
    return json.dumps([[_field(row.get(field), is_json) for field, is_json in fields] for row in rows])


def _field(value: Any, is_json: bool) -> str | None:
    """Return a field of a record: texts as they are, unless its column is JSON."""
    if value is None:
        return None
    return str(value) if isinstance(value, str) and not is_json else _normal(value)


class JsonArrayAggregate:
    """json_agg. step: a value as JSON, and whether it is an array or a row."""

    shown: Callable[[str], Any] = staticmethod(str)

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.characters = 0

    def step(self, part: Any, more: Any = 0) -> None:
        if self.parts:
            part = (", \n " if more and part != "null" else ", ") + part
        self._add(part)

    def _add(self, part: str) -> None:
        self.characters += len(part)
        if self.characters > _MOST_CHARACTERS:
            raise WireError(TOO_LARGE, f"a JSON text has more than {_MOST_CHARACTERS:,} characters", code="P0804")
        self.parts.append(part)

    def finalize(self) -> str | None:
        return type(self).shown(f"[{''.join(self.parts)}]") if self.parts else None


class JsonbArrayAggregate(JsonArrayAggregate):
    """jsonb_agg."""

    shown = staticmethod(as_jsonb)


class JsonObjectAggregate(JsonArrayAggregate):
    """json_object_agg. step: a name, and a value as JSON."""

    def step(self, part: Any, more: Any = "null") -> None:
        if part is None:
            raise WireError("22023", "the name of a field of json_object_agg is NULL", code="P0203")
        self._add((", " if self.parts else "") + f"{json.dumps(str(part), ensure_ascii=False)} : {more}")

    def finalize(self) -> str | None:
        return type(self).shown(f"{{ {''.join(self.parts)} }}") if self.parts else None


class JsonbObjectAggregate(JsonObjectAggregate):
    """jsonb_object_agg."""

    shown = staticmethod(as_jsonb)


#: The aggregates by name.
AGGREGATES: dict[str, type[JsonArrayAggregate]] = {
    "json_agg": JsonArrayAggregate,
    "jsonb_agg": JsonbArrayAggregate,
    "json_object_agg": JsonObjectAggregate,
    "jsonb_object_agg": JsonbObjectAggregate,
}
