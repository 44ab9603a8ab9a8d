"""Random calls of the aggregates of `samples`. Part of the generators."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.testing.choices import Choices

_WHOLE = ("INT", "BIGINT")
_NUMBERS = (*_WHOLE, "DOUBLE", "DECIMAL(6,2)")


def user_aggregate(choices: Choices, scope: Sequence[tuple[str, str]]) -> tuple[str, str]:
    """Return a call over columns (name, type), and its type."""
    distinct = "DISTINCT " if choices.chance(15) else ""
    name, type_, taken, constant = choices.pick(
        (
            ("total", "BIGINT", _WHOLE, "1"),
            ("spread", "DOUBLE", _NUMBERS, "1"),
            # A double as text may be spelled in two ways for one value.
            ("joined", "STRING", tuple(t for _, t in scope if t != "DOUBLE"), "'a'"),
        )
    )
    argument = choices.pick([column for column, t in scope if t in taken] or [constant])
    return f"{name}({distinct}{argument})", type_
