"""Stream to relation: windows give every element a validity interval [semantics 4.1, 5].

`Window` is a window in time, which judges every element alone; `RowWindow` counts elements.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.algebra.nodes.base import NO_KEYS, Keys, Unary, column_labels
from penstock.algebra.properties.update_pattern import Pattern
from penstock.types import TimeDomain


class WindowKind(enum.Enum):
    NOW = "NOW"
    RANGE = "RANGE"
    UNBOUNDED = "UNBOUNDED"


@dataclass(frozen=True, eq=False)
class Window(Unary):
    """A time window over a stream. Lengths are in ticks of the input's domain.

    length: T of RANGE T (≥ 1), None otherwise; slide: s of SLIDE s (≥ 1), None for none; align: the tick that
    boundaries are counted from (ALIGN TO).
    """

    kind: WindowKind
    length: int | None = None
    slide: int | None = None
    align: int = 0

    @property
    def lifetime(self) -> int | None:
        """How many ticks an element counts, before SLIDE rounds: one for NOW, None for ever."""
        return 1 if self.kind is WindowKind.NOW else self.length

    @property
    def pattern(self) -> Pattern:
        return Pattern.MONOTONIC if self.kind is WindowKind.UNBOUNDED else Pattern.WEAKEST

    def describe(self) -> Mapping[str, str]:
        domain = self.domain
        show = domain.show_length if domain else str
        text = self.kind.value + (f" {show(self.length)}" if self.length is not None else "")
        return {"window": text + slide_text(self.slide, self.align, domain)}


def slide_text(slide: int | None, align: int, domain: TimeDomain | None) -> str:
    """How a SLIDE in time is shown; empty for none."""
    text = ""
    if slide is not None:
        text += f" SLIDE {domain.show_length(slide) if domain else slide}"
    if align:
        text += f" ALIGN TO {domain.show(align) if domain else align}"
    return text


@dataclass(frozen=True, eq=False)
class RowWindow(Unary):
    """The last `rows` (≥ 1) elements of a stream in (timestamp, arrival) order, of every partition where there are any.
    rows None: a window in time that moves by rows (RANGE T SLIDE m ROWS): when the count comes to a multiple of `step`,
    the content becomes the elements counted so far whose `length` has not passed then.

    step: m of SLIDE m ROWS: the content changes only when the count of arrived elements is a multiple of m; None for 1.
    partition: positions of the PARTITION BY columns; () counts the whole stream. length: T of RANGE T in ticks: an
    element ends after T at the latest; None for no such limit. slide, align: a SLIDE in time, as for `Window`.
    """

    rows: int | None
    step: int | None = None
    partition: tuple[int, ...] = ()
    length: int | None = None
    slide: int | None = None
    align: int = 0

    @property
    def lifetime(self) -> int | None:
        """How many ticks an element counts at the most, before SLIDE rounds; None where only other elements end it."""
        return None if self.rows is None else self.length

    @property
    def pattern(self) -> Pattern:
        return Pattern.STRICT  # when an element ends, is decided by later ones

    @property
    def keys(self) -> Keys:
        return frozenset({frozenset(self.partition)}) if self.rows == 1 else NO_KEYS

    def describe(self) -> Mapping[str, str]:
        labels = column_labels(self.schema)
        by = f"PARTITION BY {', '.join(labels[i] for i in self.partition)} " if self.partition else ""
        text = f"{by}ROWS {self.rows}" if self.rows is not None else "" if self.length is not None else "UNBOUNDED"
        domain = self.domain
        show = domain.show_length if domain else str
        if self.length is not None:
            text = f"{text} RANGE {show(self.length)}".strip()
        if self.step is not None:
            text += f" SLIDE {self.step} ROWS"
        return {"window": text + slide_text(self.slide, self.align, domain)}
