"""The options of each connector in a script: their checks, and where they may be used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

Check = Callable[[str], str]


def text(value: str) -> str:
    if not value:
        raise ValueError("a text that is not empty")
    return value


def anything(value: str) -> str:
    return value


def boolean(value: str) -> str:
    if value.lower() not in ("true", "false"):
        raise ValueError("'true' or 'false'")
    return value.lower()


def one_of(*choices: str) -> Check:
    def check(value: str) -> str:
        if value.lower() not in choices:
            raise ValueError(" or ".join(f"'{c}'" for c in choices))
        return value.lower()

    return check


def whole(value: str) -> str:
    if not value.isdecimal() or not value.isascii():
        raise ValueError("a whole number")
    return value


def character(value: str) -> str:
    value = {"\\t": "\t"}.get(value, value)
    if len(value) != 1 or value in "\r\n" or ord(value) > 127:
        raise ValueError("one ASCII character")
    return value


def secrets(*keys: str) -> dict[str, Check]:
    """Return the options of a connector's secrets: each in the script itself, in the environment, or in a file."""
    return {name: text for key in keys for name in (key, f"{key}_env", f"{key}_file")}


@dataclass(frozen=True)
class ConnectorRule:
    """options: key -> check, which gives the normal form or raises ValueError with what a value looks like; required:
    keys without which there is no connector; csv: keys that only csv files have; timed: keys for sources with a
    timestamp only; static: keys for relations without one only; client: what the settings of the connector's client
    begin with, where they can be given too."""

    options: Mapping[str, Check]
    required: tuple[str, ...] = ()
    csv: frozenset[str] = frozenset()
    timed: frozenset[str] = frozenset()
    static: frozenset[str] = frozenset()
    client: str = ""
