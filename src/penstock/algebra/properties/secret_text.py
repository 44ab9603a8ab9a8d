"""Values of options that must not leave this process: passwords that stand in a script.

Contract: a `SecretText` is a text that says what may be shown, so wherever it is printed, compared, hashed or written
it is that. `reveal` gives what it stands for. Pickling loses it on purpose: a checkpoint holds no password, and a run
that goes on from one has it from its script again.
"""

from __future__ import annotations

from penstock.algebra.nodes.query import SinkSpec
from penstock.algebra.nodes.scans import Source


class SecretText(str):
    """`shown` in place of `value`."""

    __slots__ = ("_value",)
    _value: str | None

    def __new__(cls, shown: str, value: str | None) -> SecretText:
        made = super().__new__(cls, shown)
        made._value = value
        return made

    def __reduce__(self) -> tuple[object, ...]:
        return (SecretText, (str(self), None))


def reveal(text: str) -> str | None:
    """What `text` stands for; None where that was lost on the way through a file."""
    return text._value if isinstance(text, SecretText) else text


def hidden(owner: Source | SinkSpec) -> bool:
    """Return whether an option of a source or sink is a Hidden one."""
    return any(isinstance(value, SecretText) for _, value in owner.options)
