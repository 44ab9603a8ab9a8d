"""Options of a connector, `(key 'value', ...)`, checked against what the connector knows: P0208 for anything else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.errors import PenstockError, nearest
from penstock.types import Interval


@dataclass(frozen=True)
class Options:
    """The options of a connector. `owner`: for messages; `pairs`: (key, value), keys in lower case."""

    owner: str
    pairs: tuple[tuple[str, str], ...]

    def only(self, known: Iterable[str]) -> None:
        """Check that every option is `known`.

        Raises:
            PenstockError: P0208, one is not.
        """
        for key, _ in self.pairs:
            if key not in known:
                raise PenstockError("P0208", f"{self.owner} has no option {key}", hint=nearest(key, known))

    def text(self, key: str, default: str = "") -> str:
        return dict(self.pairs).get(key, default)

    def has(self, key: str) -> bool:
        return key in dict(self.pairs)

    def needed(self, key: str) -> str:
        """Return the value of a required option."""
        if not self.text(key).strip():
            raise PenstockError("P0208", f"{self.owner} needs the option {key}", hint=f"write ({key} '...')")
        return self.text(key)

    def choice(self, key: str, values: tuple[str, ...], default: str) -> str:
        """Return an option that must be one of `values`, ignoring case."""
        value = self.text(key, default).strip().lower()
        if value not in values:
            expected = " or ".join(values)
            raise PenstockError("P0208", f"{self.owner}: option {key} cannot be '{value}': it is {expected}")
        return value

    def flag(self, key: str, default: bool) -> bool:
        return self.choice(key, ("true", "false"), str(default).lower()) == "true"

    def character(self, key: str, default: str) -> str:
        """Return an option that must be one ASCII character; `\\t` and `tab` are the tabulator."""
        value = self.text(key, default)
        value = "\t" if value.lower() in ("\\t", "tab") else value
        if len(value) != 1 or not value.isascii() or value in "\r\n":
            raise PenstockError("P0208", f"{self.owner}: option {key} cannot be '{value}': it is one ASCII character")
        return value

    def seconds(self, key: str, default: str) -> float:
        """Return a length of time such as '500 ms' or '2 seconds', in seconds."""
        value = self.text(key, default).strip()
        found = Interval.parse(value)
        if found is not None and found.amount > 0:
            return float(found.amount * found.unit.value / 1_000_000)
        raise PenstockError("P0208", f"{self.owner}: option {key} cannot be '{value}': it is as '2 seconds'")

    def count(self, key: str, default: int) -> int:
        value = self.text(key, str(default)).strip()
        if not value.isdecimal():
            raise PenstockError("P0208", f"{self.owner}: option {key} cannot be '{value}': it is a whole number")
        return int(value)
