"""What operators hold, and the kinds of synopses that can be chosen for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from penstock.control.entities.attributes import (
    COUNT,
    FLAG,
    REAL,
    TEXT,
    Attribute,
    AttributeSetting,
    ControlRelation,
    Origin,
    unmeasured,
)
from penstock.control.entities.plan import PLAN_APPLIED, operator_id, plan_statements
from penstock.control.entities.system import SystemView
from penstock.errors import PenstockError
from penstock.language.binder.statements.attributes import NONE
from penstock.language.statements import Statement
from penstock.physical.execution.meter import SynopsisSize, all_closed
from penstock.physical.plan.plan import Step
from penstock.physical.plan.step_choices import KindChoice

_TASKS = Origin.TASKS


@dataclass(frozen=True)
class SynopsisRow:
    """A synopsis of a step, in all shards."""

    view: SystemView
    step: Step
    part: str
    sizes: tuple[SynopsisSize, ...]

    @property
    def key(self) -> str:
        return self.view.figures.run.keys[self.step.id]

    @property
    def readers(self) -> tuple[str, ...]:
        return self.view.readers[self.step.id]

    @property
    def choice(self) -> KindChoice | None:
        """Return what can be chosen of its kind; None where there is one kind."""
        return next((one for one in self.step.choices.kinds if one.part == self.part), None)

    def total(self, name: str, over: Callable[[list[int]], int] = sum) -> int | None:
        """Return a figure of all shards; None where none of them has it."""
        known = [value for size in self.sizes if (value := getattr(size, name)) is not None]
        return over(known) if known else None

    @property
    def span(self) -> int | None:
        """Return the length of the longest window whose rows it keeps, where it keeps those of windows."""
        return max((length for length in self._lengths() if length is not None), default=None)

    @property
    def closed(self) -> dict[str, int] | None:
        """Return by promise how many of its rows it has closed; None where none ends it."""
        return all_closed(self.sizes) or None

    def _lengths(self) -> Iterable[int | None]:
        if not self.step.spec.keeps_rows:
            return
        for step in self.view.steps:
            for port, edge in enumerate(step.inputs):
                if edge.step == self.step.id:
                    yield step.spec.read_length(port)


def _synopses(view: SystemView) -> Iterable[SynopsisRow]:
    keys = view.figures.run.keys
    kept = {keys[step.id]: step for step in view.steps}
    found: dict[tuple[str, str], list[SynopsisSize]] = {}
    for (key, _, part), size in sorted(view.figures.run.synopses.items()):
        if key in kept:
            found.setdefault((key, part), []).append(size)
    return [SynopsisRow(view, kept[key], part, tuple(sizes)) for (key, part), sizes in found.items()]


def _set_kind(row: SynopsisRow, value: str) -> list[Statement]:
    choice = row.choice
    if choice is None:
        message = (
            f"{row.part} of operator {row.step.spec.title} is a {row.sizes[0].kind}, and cannot be another synopsis"
        )
        raise PenstockError("P0752", message, hint="chosen can be the sides of joins, and queues of what expires")
    return plan_statements(row.view, row.step, choice.operator, choice.attribute, value)


SYNOPSES: ControlRelation[SynopsisRow] = ControlRelation(
    "synopses",
    "What operators hold, by operator and part, over all shards.",
    (
        Attribute("id", TEXT, "the id of its entity", lambda row: f"synopsis:{row.key}.{row.part}"),
        Attribute("operator", TEXT, "the id of its operator", lambda row: operator_id(row.key)),
        Attribute(
            "kind",
            TEXT,
            "the class of the synopsis",
            lambda row: row.sizes[0].kind,
            _TASKS,
            setting=AttributeSetting(_set_kind, PLAN_APPLIED, NONE, lambda row: len(row.readers)),
        ),
        Attribute("rows", COUNT, "its rows", lambda row: sum(size.rows for size in row.sizes), _TASKS, "rows"),
        Attribute("bytes", COUNT, "its bytes", lambda row: sum(size.bytes for size in row.sizes), _TASKS, "bytes"),
        Attribute(
            "chunks",
            COUNT,
            "the pieces in which it is written; of indexes of joins and queues",
            lambda row: row.total("chunks"),
            _TASKS,
        ),
        Attribute(
            "oldest",
            COUNT,
            "the least timestamp in it, of a queue the tick at which a row is due first",
            lambda row: row.total("oldest", min),
            _TASKS,
            "ticks",
        ),
        Attribute("newest", COUNT, "the largest one", lambda row: row.total("newest", max), _TASKS, "ticks"),
        Attribute("readers", COUNT, "how many queries use it", lambda row: len(row.readers)),
        Attribute(
            "span",
            COUNT,
            "of the rows that are kept for windows of several lengths, the longest of them",
            lambda row: row.span,
            unit="ticks",
        ),
        Attribute(
            "open",
            COUNT,
            "of state that ends by promises: the rows, groups or values that are open",
            lambda row: None if row.closed is None else sum(size.rows for size in row.sizes),
            _TASKS,
            "rows",
        ),
        Attribute(
            "closed",
            COUNT,
            "how many promises have closed since the process started",
            lambda row: None if row.closed is None else sum(row.closed.values()),
            _TASKS,
            "rows",
        ),
        Attribute(
            "closed_by",
            TEXT,
            "the same by promise, such as `UNIQUE id of O: 12`",
            lambda row: None if row.closed is None else "; ".join(f"{p}: {n}" for p, n in row.closed.items()),
            _TASKS,
        ),
        unmeasured("memory", COUNT, "comes with approximation"),
        unmeasured("compression", TEXT, "comes with approximation"),
        unmeasured("precision_fp", REAL, "comes with approximation"),
        unmeasured("precision_fn", REAL, "comes with approximation"),
        Attribute(
            "possible",
            TEXT,
            "the kinds that can be chosen; NULL where there is one",
            lambda row: None if row.choice is None else ", ".join(row.choice.possible),
        ),
        Attribute(
            "chosen",
            FLAG,
            "whether its kind is chosen, instead of the planner's",
            lambda row: row.choice is not None and row.choice.is_chosen,
        ),
    ),
    _synopses,
    kind="synopsis",
    key=lambda row: f"{row.key}.{row.part}",
    title=lambda row: row.part,
)
