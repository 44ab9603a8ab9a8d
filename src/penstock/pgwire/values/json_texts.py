"""JSON as PostgreSQL writes it, of values as DuckDB hands them over, and what is taken out of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from penstock.pgwire.protocol.errors import WireError
from penstock.pgwire.values.decimals import decimal_text, of_sorted_text
from penstock.pgwire.values.texts import array_text, float_text, real_text

#: What PostgreSQL writes of a number that JSON does not have.
_NO_NUMBERS = frozenset({"NaN", "Infinity", "-Infinity"})
_NUMBERS: dict[str, Callable[[Any], str]] = {
    **dict.fromkeys(("int2", "int4", "int8"), str),
    "float4": real_text,
    "float8": float_text,
    "numeric": lambda value: decimal_text(of_sorted_text(value)),
}


def json_text(value: Any, type_: str) -> str:
    """Return a value of a type as JSON; an instant is its text."""
    if value is None:
        return "null"
    if type_.startswith("_"):
        return f"[{','.join(json_text(one, type_[1:]) for one in value)}]"
    if type_ == "bool":
        return "true" if value else "false"
    if type_ in ("json", "jsonb", "record"):
        return str(value)
    text = _NUMBERS.get(type_, str)(value)
    if type_ in _NUMBERS and text not in _NO_NUMBERS:
        return text
    if type_ in ("timestamp", "timestamptz"):
        # The hours of a zone have their minutes there.
        text = f"{text[:10]}T{text[11:]}{':00' if type_ == 'timestamptz' and text[-3:-2] in ('+', '-') else ''}"
    return json.dumps(text, ensure_ascii=False)


def _pairs(parts: tuple[Any, ...], function: str) -> list[tuple[str, str]]:
    """Return the fields of an object. parts: names and JSON in turn. Raises WireError 22023."""
    if len(parts) % 2:
        raise WireError("22023", f"{function} needs a value for each name", code="P0204")
    names = parts[::2]
    if None in names:
        raise WireError("22023", f"the name of a field of {function} is NULL", code="P0203")
    return [(json.dumps(str(name), ensure_ascii=False), part) for name, part in zip(names, parts[1::2], strict=True)]


def _object(*parts: Any) -> str:
    """Return what json_build_object does. parts: names and JSON in turn."""
    return "{" + ", ".join(f"{name} : {part}" for name, part in _pairs(parts, "json_build_object")) + "}"


def _row(*parts: Any) -> str:
    """Return what row_to_json does. parts: names and JSON in turn."""
    return "{" + ",".join(f"{name}:{part}" for name, part in _pairs(parts, "row_to_json")) + "}"


class _Digits(str):
    """The digits of a number, which `jsonb` keeps."""


def _read(text: str) -> Any:
    try:
        return json.loads(text, parse_int=_Digits, parse_float=_Digits)
    except (ValueError, RecursionError) as error:
        raise WireError("22P02", f"this is no JSON: {error}", code="P0203") from None


def as_jsonb(text: str) -> str:
    """Return JSON as `jsonb` is shown: of fields of one name the last, short names first. Raises WireError 22P02."""
    return _normal(_read(text))


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


def _record_set(text: str | None, columns: str, name: str) -> list[list[str | None]]:
    """Return the rows of json_to_recordset and json_to_record, whose values are texts.

    Args:
        columns: pairs of a name and a form, as JSON: `json`, `array`, or `text`.
        name: of the function.

    Raises:
        WireError: 22P02, 22023.
    """
    fields = json.loads(columns)
    if text is None:
        return [] if name.endswith("set") else [[None] * len(fields)]
    found = _read(text)
    if not isinstance(found, list if name.endswith("set") else dict):
        kind = "an array" if name.endswith("set") else "an object"
        raise WireError("22023", f"{name} takes {kind} apart, and this is none", code="P0203")
    rows = found if isinstance(found, list) else [found]
    if not all(isinstance(row, dict) for row in rows):
        raise WireError("22023", f"{name} takes an array of objects apart", code="P0203")
    return [[_field(row.get(name), form) for name, form in fields] for row in rows]


def _field(value: Any, form: str) -> str | None:
    if form == "array" and isinstance(value, list):
        return array_text(value, lambda one: _shown(one, True) or "")
    return _shown(value, form != "json")


def _shown(value: Any, as_text: bool) -> str | None:
    """Return a part of a JSON text. as_text: a text as it is, and `null` as NULL."""
    if value is None:
        return None
    return str(value) if isinstance(value, str) and as_text else _normal(value)


def _array_agg(values: Sequence[Any], type_: str) -> str:
    """Return what json_agg does. Arrays and rows begin lines."""
    parts = [json_text(one, type_) for one in values]
    lines = type_.startswith("_") or type_ == "record"
    joints = (", \n " if lines and one != "null" else ", " for one in parts[1:])
    return f"[{parts[0]}{''.join(joint + one for joint, one in zip(joints, parts[1:], strict=True))}]"


def _object_agg(pairs: Sequence[dict[str, str | None]]) -> str:
    """Return what json_object_agg does. pairs: names and JSON."""
    names, values = [one["k"] for one in pairs], [one["v"] for one in pairs]
    if None in names:
        raise WireError("22023", "the name of a field of json_object_agg is NULL", code="P0203")
    shown = (f"{json.dumps(name, ensure_ascii=False)} : {value}" for name, value in zip(names, values, strict=True))
    return f"{{ {', '.join(shown)} }}"


# -- what is taken out of it -----------------------------------------------------------------------------------


def _part(text: str, path: Sequence[Any], as_text: bool) -> str | None:
    """Return the part of a JSON text at a path of names and numbers, None where there is none."""
    value = _read(text)
    for step in path:
        if isinstance(value, dict) and not isinstance(step, int):
            if step not in value:
                return None
            value = value[step]
        elif isinstance(value, list) and str(step).lstrip("-").isdigit():
            if not -len(value) <= int(step) < len(value):
                return None
            value = value[int(step)]
        else:
            return None
    return None if value is None and as_text else "null" if value is None else _shown(value, as_text)


def _kind(text: str) -> str:
    value = _read(text)
    kinds = {dict: "object", list: "array", bool: "boolean", type(None): "null", _Digits: "number"}
    return kinds.get(type(value), "string")


def _array(text: str) -> list[Any]:
    value = _read(text)
    if not isinstance(value, list):
        raise WireError("22023", "this JSON is no array", code="P0203")
    return value


def _fields(text: str) -> dict[str, Any]:
    value = _read(text)
    if not isinstance(value, dict):
        raise WireError("22023", "this JSON is no object", code="P0203")
    return value


def _contains(outer: Any, inner: Any) -> bool:
    """Return whether JSON contains other JSON, as `@>` does."""
    if isinstance(outer, dict) and isinstance(inner, dict):
        return all(name in outer and _contains(outer[name], one) for name, one in inner.items())
    if isinstance(outer, list):
        inner = inner if isinstance(inner, list) else [inner]
        return all(any(type(a) is type(b) and _contains(a, b) for a in outer) for b in inner)
    return type(outer) is type(inner) and outer == inner


def _each(text: str, as_text: bool) -> list[dict[str, str | None]]:
    return [{"key": name, "value": _listed(one, as_text)} for name, one in _fields(text).items()]


def _listed(value: Any, as_text: bool) -> str | None:
    return "null" if value is None and not as_text else _shown(value, as_text)


#: By name, what DuckDB takes its result for, what is called, and for some that they are called with NULL.
JSON_FUNCTIONS: tuple[tuple[Any, ...], ...] = (
    ("px_json", "VARCHAR", json_text, True),
    ("px_json_object", "VARCHAR", _object, True),
    ("px_json_array", "VARCHAR", lambda *parts: f"[{', '.join(parts)}]", True),
    ("px_json_row", "VARCHAR", _row, True),
    ("px_jsonb", "VARCHAR", as_jsonb),
    ("px_record_set", "VARCHAR[][]", _record_set, True),
    ("px_json_agg", "VARCHAR", _array_agg),
    ("px_json_object_agg", "VARCHAR", _object_agg),
    ("px_json_part", "VARCHAR", _part),
    ("px_json_typeof", "VARCHAR", _kind),
    ("px_json_length", "INTEGER", lambda text: len(_array(text))),
    ("px_json_elements", "VARCHAR[]", lambda text, as_text: [_listed(one, as_text) for one in _array(text)]),
    ("px_json_keys", "VARCHAR[]", lambda text: list(_fields(text))),
    ("px_json_each", "STRUCT(key VARCHAR, value VARCHAR)[]", _each),
    ("px_json_contains", "BOOLEAN", lambda outer, inner: _contains(_read(outer), _read(inner))),
    ("px_json_exists", "BOOLEAN", lambda text, name: name in _read(text)),
)
