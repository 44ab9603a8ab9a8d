"""Random set operations and ORDER BY ... LIMIT, as text, for `worlds.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.testing.choices import Choices


def set_operations(choices: Choices, text: str, select: Callable[[], str]) -> str:
    """Combine `text` with one or two more of `select` by set operations, with or without parentheses."""
    for _ in range(choices.integer(1, 2)):
        operator = choices.pick(("EXCEPT ALL", "INTERSECT ALL", "EXCEPT", "INTERSECT", "UNION", "UNION ALL"))
        other = select()
        text = f"{text} {operator} {other}" if choices.chance(70) else f"{other} {operator} ({text})"
    return text


def first_rows(choices: Choices, columns: Sequence[tuple[str, str]]) -> str:
    """Return ORDER BY and LIMIT over `columns`, (name, type)."""
    keys: list[str] = []
    for _ in range(choices.integer(0, 2)):
        name, type_ = choices.pick(columns)
        key = choices.pick((name, str([n for n, _ in columns].index(name) + 1)))
        key = f"{name} % 2" if type_ == "INT" and choices.chance(20) else key
        keys.append(key + choices.pick(("", " DESC")) + choices.pick(("", " NULLS FIRST", " NULLS LAST")))
    text = f" ORDER BY {', '.join(keys)}" if keys else ""
    text += f" LIMIT {choices.integer(0, 4)}"
    return text + (f" OFFSET {choices.integer(0, 3)}" if choices.chance(30) else "")
