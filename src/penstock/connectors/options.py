"""Options of connectors, `(key 'value', ...)`, as typed tables.

Contract: every connector has one table, `OPTIONS` of its class, and no option is known anywhere else. The binder checks
scripts against the table, the connector reads its values through it, and docs/connectors.md is printed from it
(`catalogue.py`). P0208 for anything that is not in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, TypeVar

from penstock.errors import PenstockError, nearest
from penstock.quantities import LARGEST_BIGINT
from penstock.redaction import BLOT, is_secret, redacted_text
from penstock.types import Interval

T = TypeVar("T")


@dataclass(frozen=True)
class ValueType(Generic[T]):
    """The values that an option accepts.

    Args:
        name: of the type, for the page of connectors.
        normal: return the form in which a text is kept; raises ValueError with a description of the accepted values.
        read: return the value of a text in that form; raises as `normal` does.
        words: all values that are accepted, where they are a few words.
        private: whether a text that is refused is not shown, since it may hold a password.
        names_nothing: whether no value can name a place (a file, a host, an address) or hold a secret. A server accepts
            other values only where its policy knows what they reach.
    """

    name: str
    normal: Callable[[str], str]
    read: Callable[[str], T]
    words: tuple[str, ...] = ()
    private: bool = False
    names_nothing: bool = False


class Applies(Enum):
    """The sources to which an option applies."""

    ALL = "all sources"
    TIMED = "a source with a timestamp"
    STATIC = "a relation without TIMESTAMP BY"


@dataclass(frozen=True)
class Option(Generic[T]):
    """One option of a connector.

    Args:
        name: the key, in lower case.
        type: what its values look like.
        help: one line for the page of connectors.
        default: the value that holds without it, as a script would write it; None where there is none.
        required: whether there is no connector without it.
        applies: the sources to which it applies.
        formats: the formats to which it applies; empty: all.
        internal: whether the runtime alone sets it, and no script.
        is_bound: whether it only limits how much of a result is kept, so that the result goes on when it changes.
    """

    name: str
    type: ValueType[T]
    help: str
    default: str | None = None
    required: bool = False
    applies: Applies = Applies.ALL
    formats: tuple[str, ...] = ()
    internal: bool = False
    is_bound: bool = False

    @property
    def secret(self) -> bool:
        """Whether its value must not be shown."""
        return is_secret(self.name)


@dataclass(frozen=True)
class OptionTable:
    """The options of one connector.

    Args:
        options: in the order of the page.
        client: prefix of the settings of the connector's client, which are options too; empty: none.
    """

    options: tuple[Option[Any], ...] = ()
    client: str = ""

    def __iter__(self) -> Iterator[Option[Any]]:
        return iter(self.options)

    def get(self, name: str) -> Option[Any] | None:
        """Return the option called `name` that a script may write; None where there is none."""
        return next((option for option in self.written if option.name == name), None)

    @property
    def written(self) -> tuple[Option[Any], ...]:
        """The options that a script may write."""
        return tuple(option for option in self.options if not option.internal)

    @property
    def names(self) -> tuple[str, ...]:
        """The keys that a script may write."""
        return tuple(option.name for option in self.written)

    def is_client_setting(self, name: str) -> bool:
        """Return whether `name` is a setting of the connector's client."""
        return bool(self.client) and name.startswith(self.client)


@dataclass(frozen=True)
class Options:
    """The options of one declaration.

    Args:
        owner: the connector and its declaration, for messages.
        pairs: (key, value), keys in lower case.
    """

    owner: str
    pairs: tuple[tuple[str, str], ...]

    def only(self, table: OptionTable) -> None:
        """Check that `table` has every option. Raises PenstockError P0208."""
        names = [option.name for option in table]
        for key, _ in self.pairs:
            if key not in names and not table.is_client_setting(key):
                raise PenstockError("P0208", f"{self.owner} has no option {key}", hint=nearest(key, names))

    def has(self, key: str | Option[Any]) -> bool:
        return _name(key) in dict(self.pairs)

    def text(self, key: str | Option[Any]) -> str:
        """Return the value as it is written; empty for an option that is left out."""
        return dict(self.pairs).get(_name(key), "")

    def needed(self, option: Option[T]) -> T:
        """Return the value of an option that cannot be left out. Raises PenstockError P0208."""
        if not self.text(option).strip():
            hint = f"write ({option.name} '...')"
            raise PenstockError("P0208", f"{self.owner} needs the option {option.name}", hint=hint)
        return self.value(option)

    def value(self, option: Option[T]) -> T:
        """Return the value of an option that has a default, or is there. Raises PenstockError P0208."""
        value = self.optional(option)
        if value is None:
            raise PenstockError("P0208", f"{self.owner} needs the option {option.name}")
        return value

    def optional(self, option: Option[T]) -> T | None:
        """Return the value of an option or its default; None where it has neither. Raises PenstockError P0208."""
        text = dict(self.pairs).get(option.name, option.default)
        if text is None:
            return None
        try:
            return option.type.read(option.type.normal(text))
        except ValueError as error:
            raise PenstockError("P0208", f"{self.owner}: {refusal(option, text, error)}") from None

    def check_format(self, table: OptionTable, format_: str) -> None:
        """Check that every option of `table` applies to a format. Raises PenstockError P0208."""
        for option in table:
            if self.has(option) and option.formats and format_ not in option.formats:
                message = f"{self.owner}: option {option.name} is for {formats_of(option)}, the format is {format_}"
                raise PenstockError("P0208", message)


def refusal(option: Option[Any], text: str, error: ValueError) -> str:
    """Return the message of a value that an option does not accept."""
    shown_text = BLOT if option.secret or option.type.private else redacted_text(text)
    return f"option {option.name} cannot be '{shown_text}': it is {error}"


def formats_of(option: Option[Any]) -> str:
    """Return the formats to which an option applies, in words."""
    return " and ".join(option.formats)


def _name(key: str | Option[Any]) -> str:
    return key.name if isinstance(key, Option) else key


def _not_empty(text: str) -> str:
    if not text:
        raise ValueError("a text that is not empty")
    return text


TEXT = ValueType("text", _not_empty, str)
ANY_TEXT = ValueType("text, also empty", str, str)


def one_of(*words: str) -> ValueType[str]:
    """Return the type of an option that is one of `words`, in any case."""

    def normal(text: str) -> str:
        if text.lower() not in words:
            raise ValueError(" or ".join(f"'{word}'" for word in words))
        return text.lower()

    return ValueType(" ".join(f"`{word}`" for word in words), normal, str, words, names_nothing=True)


_TRUE_OR_FALSE = one_of("true", "false")
BOOLEAN = ValueType("`true` or `false`", _TRUE_OR_FALSE.normal, lambda text: text == "true", names_nothing=True)


def whole(least: int = 0, most: int | None = None) -> ValueType[int]:
    """Return the type of an option that is a whole number from `least` to `most`, None for the largest BIGINT."""
    if most is not None:
        description = f"a whole number from {least:,} to {most:,}"
    else:
        description = f"a whole number, {least:,} or more" if least else "a whole number"

    def normal(text: str) -> str:
        digits = text.lstrip("0") or "0"
        if not text.isdecimal() or not text.isascii() or len(digits) > len(str(LARGEST_BIGINT)):
            raise ValueError(description)
        if not least <= int(digits) <= (LARGEST_BIGINT if most is None else most):
            raise ValueError(description)
        return text

    return ValueType(description.removeprefix("a "), normal, int, names_nothing=True)


def characters(*besides: str) -> ValueType[str]:
    """Return the type of an option that is one ASCII character, or one of the texts `besides`."""

    def normal(text: str) -> str:
        text = "\t" if text.lower() in ("\\t", "tab") else text
        if text not in besides and (len(text) != 1 or not text.isascii() or text in "\r\n"):
            raise ValueError("one ASCII character")
        return text

    return ValueType("one ASCII character; `tab` and `\\t` are the tabulator", normal, str, names_nothing=True)


def _duration(text: str) -> str:
    _seconds(text)
    return text


def _seconds(text: str) -> float:
    interval = Interval.parse(text)
    if interval is None or interval.amount <= 0:
        raise ValueError("a length of time such as '2 seconds'")
    return float(interval.amount * interval.unit.value / 1_000_000)


#: Its values are seconds.
DURATION = ValueType("length of time, as `2 seconds`", _duration, _seconds, names_nothing=True)


_SIZE = re.compile(r"(\d{1,15}) ?(B|KB|MB|GB|TB)?", re.IGNORECASE | re.ASCII)
_POWERS = {"": 0, "B": 0, "KB": 1, "MB": 2, "GB": 3, "TB": 4}


def _size(text: str) -> int:
    found = _SIZE.fullmatch(text.strip())
    if found is None or int(found[1]) == 0:
        raise ValueError("a size such as '256 MB'")
    return int(found[1]) << 10 * _POWERS[(found[2] or "").upper()]


def _is_size(text: str) -> str:
    _size(text)
    return text


#: Its values are bytes.
SIZE = ValueType("size, as `256 MB`", _is_size, _size, names_nothing=True)
