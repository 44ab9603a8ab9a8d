"""Random windows as text, for `worlds.py`."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.testing.choices import Choices


def row_window(choices: Choices, columns: Sequence[str]) -> str:
    """Return ROWS with any of PARTITION BY some of `columns`, RANGE and SLIDE; or a window in time that moves by
    rows.
    """
    if choices.chance(15):
        extent = choices.pick((f"RANGE {choices.integer(1, 6)} SECOND", "NOW", "RANGE UNBOUNDED"))
        return f" [{extent} SLIDE {choices.integer(1, 4)} ROWS]"
    text = f"ROWS {choices.integer(1, 4)}"
    if choices.chance(40):
        chosen = {choices.pick(columns) for _ in range(choices.integer(1, 2))}
        text = f"PARTITION BY {', '.join(sorted(chosen))} {text}"
        if choices.chance(35):
            text += f" RANGE {choices.integer(1, 6)} SECOND"
    if choices.chance(30):
        text += f" SLIDE {choices.integer(1, 4)} {choices.pick(('ROWS', 'SECOND'))}"
    return f" [{text}]" if choices.chance(90) else f" {text}"


def time_window(choices: Choices) -> str:
    """Return a window in time, or none."""
    kind = choices.pick(("RANGE", "SLIDE", "NOW", "UNBOUNDED", "NONE"))
    if kind == "NONE":
        return ""
    if kind == "NOW":
        return " [NOW]"
    if kind == "UNBOUNDED":
        return " [RANGE UNBOUNDED]"
    length = f" [RANGE {choices.integer(1, 6)} SECOND"
    if kind == "RANGE":
        return length + "]"
    align = f" ALIGN TO {choices.integer(1, 3)} SECOND" if choices.chance(15) else ""
    return f"{length} SLIDE {choices.integer(1, 5)} SECOND{align}]"


def frequency(choices: Choices, columns: Sequence[str], of_time: bool | None = None) -> str:
    """Return FREQUENCY in tuples or in time, sometimes PARTITIONED BY some of `columns`."""
    timed = choices.chance(40) if of_time is None else of_time
    text = f"FREQUENCY {choices.integer(1, 4)} {'SECOND' if timed else 'TUPLES'}"
    if choices.chance(35):
        chosen = {choices.pick(columns) for _ in range(choices.integer(1, 2))}
        text += f" PARTITIONED BY {', '.join(sorted(chosen))}"
    return text


def frequency_window(choices: Choices, columns: Sequence[str]) -> str:
    """Return a window that jumps, of any of the four mixes, or a frequency on the stream itself."""
    how = frequency(choices, columns)
    kind = choices.pick(("TUPLES", "SECOND", "NONE", "UNBOUNDED", "NOW", "PARTITION"))
    if kind == "NONE":
        return f" [{how}]"
    if kind in ("UNBOUNDED", "NOW"):
        return f" [{'RANGE UNBOUNDED' if kind == 'UNBOUNDED' else kind}, {how}]"
    if kind == "PARTITION":
        how = how.partition(" PARTITIONED")[0]
        limit = f" RANGE {choices.integer(1, 6)} SECOND" if choices.chance(30) else ""
        return f" [PARTITION BY {choices.pick(columns)} ROWS {choices.integer(1, 4)}{limit}, {how}]"
    return f" [RANGE {choices.integer(1, 6)} {kind}, {how}]"
