"""Values of options that must not leave this process: passwords in a script.

Contract: a `SecretText` is a text whose content is what may be shown, so it is printed, compared, hashed and written as
that. `reveal` returns the secret itself. Pickling drops it on purpose: a checkpoint holds no password, and a run that
continues from one reads it from its script again.
"""

from __future__ import annotations


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
    """Return the secret of `text`; None where it was dropped by pickling."""
    return text._value if isinstance(text, SecretText) else text
