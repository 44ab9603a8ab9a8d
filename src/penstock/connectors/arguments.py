"""Arguments of the library's calls as they come from users: a wrong one is a PenstockError that names it."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any, TypeVar

import pyarrow as pa

from penstock.errors import PenstockError, nearest
from penstock.settings import Settings
from penstock.types import CALENDAR, LONGEST_TICKS, Interval, Schema, TimeDomain, Unit, type_name

T = TypeVar("T")


class Named(dict[str, T]):
    """Things by their names. Raises PenstockError P0201 for a name that nothing has.

    Args:
        what: what they are, in the singular.
    """

    def __init__(self, what: str, things: Mapping[str, T]) -> None:
        super().__init__(things)
        self._what = what

    def __missing__(self, name: object) -> T:
        raise PenstockError("P0201", f"unknown {self._what} {name}", hint=nearest(str(name), list(self)))


def text_argument(value: object, what: str, hint: str | None = None) -> str:
    """Return a text that is not empty. Raises PenstockError P0203."""
    if not isinstance(value, str):
        raise PenstockError("P0203", f"{what}: expected a text, not {type_of(value)}", hint=hint)
    if not value:
        raise PenstockError("P0203", f"{what}: expected a text, not an empty one")
    return value


def path_argument(value: object, what: str) -> str:
    """Return the path or address of a folder. Raises PenstockError P0203."""
    return text_argument(str(value) if isinstance(value, PurePath) else value, what, "as in 'state/run'")


def settings_argument(value: object) -> Settings:
    """Return settings; the defaults for None. Raises PenstockError P0203."""
    if value is None:
        return Settings()
    if not isinstance(value, Settings):
        hint = "session.execute('SET shards = 3') sets one"
        raise PenstockError("P0203", f"settings: expected Settings, not {type_of(value)}", hint=hint)
    return value


def script_argument(value: object) -> str:
    """Return a script. Raises PenstockError P0203."""
    if not isinstance(value, str):
        hint = "bytes.decode() makes a text of bytes" if isinstance(value, bytes) else None
        if isinstance(value, PurePath):
            hint = "path.read_text() is the text of a file"
        raise PenstockError("P0203", f"a script is a text, not {type_of(value)}", hint=hint)
    return value


def names_argument(value: object, what: str) -> tuple[str, ...]:
    """Return names; a text is one of them. Raises PenstockError P0203."""
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, Iterable):
        raise PenstockError("P0203", f"{what}: expected names, not {type_of(value)}", hint="as in ['a', 'b']")
    return tuple(text_argument(one, what) for one in value)


def length_argument(value: object, what: str) -> str | None:
    """Return a length of time as CQL writes it; a timedelta is one. Raises PenstockError P0203."""
    if value is None:
        return None
    if isinstance(value, dt.timedelta):
        return f"{value // dt.timedelta(microseconds=1)} MICROSECONDS"
    if not isinstance(value, str):
        message = f"{what}: expected a length of time, not {type_of(value)}"
        raise PenstockError("P0203", message, hint="write it as '5 SECONDS', or as a timedelta")
    return value


def table_argument(name: str, value: Any) -> Any:
    """Return a frame of pandas or Polars, a record batch, or what else has columns of Arrow, as an Arrow table; all
    else as it is.

    Rows keep their order. An index of pandas without a name is left out, one with a name is a column.

    Raises:
        PenstockError: P0203 for values that are none of Arrow.
    """
    if isinstance(value, pa.Table):
        table = value
    elif isinstance(value, pa.RecordBatch):
        table = pa.Table.from_batches([value])
    elif type(value).__module__.partition(".")[0] == "pandas" and hasattr(value, "columns"):
        table = _of_pandas(name, value)
    elif type(value).__module__.partition(".")[0] == "polars" and hasattr(value, "columns"):
        if callable(getattr(value, "collect", None)):
            message = f"{name}: {type_of(value)} is a plan, its rows have not been computed"
            raise PenstockError("P0203", message, hint="pass frame.collect()")
        table = value.to_arrow()
    else:
        return value
    seen: dict[str, str] = {}
    for column in table.column_names:
        if column.lower() in seen:
            message = f"{name} has the columns {seen[column.lower()]} and {column}, which are one name"
            raise PenstockError("P0206", message, hint="names differ in more than capitals: rename one of them")
        seen[column.lower()] = column
    if not seen:
        raise PenstockError("P0203", f"{name} has no columns")
    return table


def _of_pandas(name: str, frame: Any) -> pa.Table:
    others = [column for column in frame.columns if not isinstance(column, str)]
    if others:
        message = f"{name}: the names of columns are texts, {others[0]!r} is {type_of(others[0])}"
        raise PenstockError("P0203", message, hint="frame.columns = ['a', 'b', ...] names them")
    doubled = sorted({str(column) for column in frame.columns[frame.columns.duplicated()]})
    if doubled:
        hint = "frame.columns = ['a', 'b', ...] names them; frame.loc[:, ~frame.columns.duplicated()] keeps the first"
        raise PenstockError("P0206", f"{name} has several columns {', '.join(doubled)}", hint=hint)
    try:
        kept = [one for one in frame.index.names if one is not None]
        return pa.Table.from_pandas(frame.reset_index(level=kept) if kept else frame, preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError) as error:
        first = str(error.args[0] if error.args else error).partition("\n")[0]
        column = re.search(r"column (\S+) with type", str(error))
        shown = column[1] if column else "a"
        hint = f"a column has values of one type: frame[{shown!r}].astype(str)"
        first += f", in column {shown}" if column else ""
        raise PenstockError("P0203", f"{name}: the frame cannot be read: {first}", hint=hint, cause=error) from None


def type_of(value: object) -> str:
    """Return the type of a value as users call it."""
    return f"{type(value).__module__}.{type(value).__name__}".removeprefix("builtins.")


def position_of(name: str, columns: Schema, column: str) -> int:
    """Return the position of a column. Raises PenstockError P0202, P0203."""
    position = columns.index(text_argument(column, f"a column of {name}", "a column is given by its name, as in 'k'"))
    if position is None:
        hint = nearest(column, columns.names)
        if column == "index":
            hint = f"an index of pandas without a name is no column: frame.reset_index() makes one; {hint}"
        raise PenstockError("P0202", f"{name} has no column {column}", hint=hint)
    return position


def timestamp_of(name: str, columns: Schema, column: str, unit: str) -> tuple[int, TimeDomain]:
    """Return the position of a timestamp and its time. Raises PenstockError P0202, P0203, P0209."""
    position = position_of(name, columns, column)
    kind = columns[position].type
    tick_unit = Unit.parse(text_argument(unit, "unit"))
    if pa.types.is_timestamp(kind):
        if tick_unit is not Unit.SECOND:
            message = f"{name}: unit={unit!r} is for integer columns; {column} is a TIMESTAMP, which has microseconds"
            raise PenstockError("P0209", message, hint="leave it out")
        return position, CALENDAR
    if not pa.types.is_integer(kind) or tick_unit not in (Unit.SECOND, Unit.MILLISECOND, Unit.MICROSECOND):
        hint = "a TIMESTAMP, or an integer with unit SECOND, MILLISECOND or MICROSECOND"
        message = f"{name}: the timestamp column {column} is {kind}"
        if pa.types.is_integer(kind):
            message += f" with unit {unit}"
        elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
            hint = f"frame[{column!r}] = pandas.to_datetime(frame[{column!r}]) makes timestamps of texts"
        raise PenstockError("P0209", message, hint=hint)
    return position, TimeDomain(tick_unit, False)


def heartbeat_of(name: str, columns: Schema, column: str | None) -> int | None:
    """Return the position of the column of heartbeats, None without one. Raises PenstockError P0202, P0380."""
    hint = "a row in which it is true is a heartbeat at its timestamp, and no element"
    return _column_of_type(name, columns, column, "heartbeats", pa.bool_(), hint)


def punctuated_of(name: str, columns: Schema, column: str | None) -> int | None:
    """Return the position of the column of punctuations, None without one. Raises PenstockError P0202, P0380."""
    hint = "a row in which it has a text, such as 'auction = 17', is a punctuation, and no element"
    return _column_of_type(name, columns, column, "punctuations", pa.string(), hint)


def _column_of_type(
    name: str, columns: Schema, column: str | None, what: str, type_: pa.DataType, hint: str
) -> int | None:
    if column is None:
        return None
    position = position_of(name, columns, column)
    found = columns[position].type
    if found != type_:
        message = f"{name}: the column {column} of {what} is {found}, no {type_name(type_)}"
        raise PenstockError("P0380", message, hint=hint)
    return position


def ticks_of(value: object, what: str, domain: TimeDomain) -> int | None:
    """Return a length of time in ticks. Raises PenstockError P0102, P0203 or P0303."""
    text = length_argument(value, what)
    if text is None:
        return None
    ticks = domain.ticks(_interval(text))
    if not 0 <= ticks < LONGEST_TICKS:
        raise PenstockError("P0102", f"{text!r} is less than nothing, or longer than time lasts")
    return ticks


def _interval(text: str) -> Interval:
    interval = Interval.parse(text)
    if interval is None:
        raise PenstockError("P0102", f"{text!r} is no interval", hint="write it as '5 SECONDS'")
    return interval
