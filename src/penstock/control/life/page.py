"""Print docs/life.md from the table: `python -m penstock.control.life.page > docs/life.md`."""

from __future__ import annotations

from penstock.control.life.transitions import POSSIBLE, Becomes, Event, Refusal, Verdict, verdict
from penstock.control.phases import OF_ANSWER, Beside, Phase

_HEAD = """# The life of a query

Printed from `src/penstock/control/life/transitions.py` by `python -m penstock.control.life.page`; a test keeps it
current.

A declared query has a computation that answers, or is to, in one of these phases:

{phases}

While it is SILENT or answers, a second one may be computed beside it: *another plan* of the same query, *another query*
that is to take its place (`ALTER QUERY .. AS .. START WARM WAIT`), which wait for rows or are computed without readers;
and after both have exchanged their places *the former one*, until it has emitted the rest of what is its.

An empty cell: nothing changes.

## Nothing is computed beside it

{alone}

## Something is computed beside it

{beside}

## Refusals

A statement that is refused has no effect, and its error is `P0701`.

{refusals}
"""
_REFUSED = {
    Refusal.STATE: "state",
    Refusal.NOT_BEGUN: "not begun",
    Refusal.CHANGING: "changing",
    Refusal.NOT_ENDED: "not ended",
}


def life_page() -> str:
    """Return docs/life.md."""
    phases = "\n".join(f"- *{phase.value}*: {_meaning(phase)};" for phase in OF_ANSWER)
    alone = _table(
        [f"{phase.value}" for phase in OF_ANSWER],
        {event: [_cell(event, phase, Beside.NOTHING) for phase in OF_ANSWER] for event in Event},
    )
    places = [(phase, beside) for phase in OF_ANSWER for beside in POSSIBLE[phase] if beside is not Beside.NOTHING]
    changing = _table(
        [f"{phase.value}, {beside.value}" for phase, beside in places],
        {event: [_cell(event, *place) for place in places] for event in Event},
    )
    refusals = "\n".join(f"- *{name}*: {why.value[0].format(**_WORDS)}" for why, name in _REFUSED.items())
    return _HEAD.format(phases=phases[:-1] + ".", alone=alone, beside=changing, refusals=refusals)


_WORDS = {"name": "q", "status": "PAUSED, FAILED, ..", "verb": "paused, resumed, .."}


def _meaning(phase: Phase) -> str:
    texts = " ".join((Phase.__doc__ or "").split()).rstrip(".").split("; ")
    return next(text.removeprefix(f"{phase.name}: ") for text in texts if text.startswith(f"{phase.name}: "))


def _table(heads: list[str], rows: dict[Event, list[str]]) -> str:
    lines = ["| | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
    lines += [f"| {event.value} | " + " | ".join(cells) + " |" for event, cells in rows.items()]
    return "\n".join(lines).replace("|  |", "| |").replace("|  |", "| |")


def _cell(event: Event, phase: Phase, beside: Beside) -> str:
    found: Verdict = verdict(event, phase, beside)
    if isinstance(found, Refusal):
        return f"refused: {_REFUSED[found]}"
    if not isinstance(found, Becomes):
        return ""
    if not found.phases:
        return "gone"
    phases = "" if found.phases == {phase} else " or ".join(each.value for each in OF_ANSWER if each in found.phases)
    others = found.beside
    if others is None or others == {beside}:
        return phases
    also = " or ".join(each.value for each in Beside if each in others and each is not Beside.NOTHING)
    if Beside.NOTHING in others:
        also = f"{also} or nothing" if also else "nothing"
    return f"{phases}; beside it {also}" if phases else f"beside it {also}"


if __name__ == "__main__":
    print(life_page(), end="")
