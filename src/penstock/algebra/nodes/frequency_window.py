"""Windows of the sequence model, whose evaluation instants are independent of their content [semantics 6]."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from penstock.algebra.nodes.base import NO_KEYS, Algebra, Evaluation, Keys, StreamToRelation, column_labels
from penstock.algebra.nodes.base.checks import refused
from penstock.algebra.nodes.base.fields import Align, Columns, Counted, Ticks
from penstock.algebra.properties.update_pattern import Pattern
from penstock.types import TimeDomain


def slide_text(slide: int | None, align: int, domain: TimeDomain | None) -> str:
    """Return a SLIDE in time as written in a query; empty for none."""
    text = ""
    if slide is not None:
        text += f" SLIDE {domain.show_length(slide) if domain else slide}"
    if align:
        text += f" ALIGN TO {domain.show(align) if domain else align}"
    return text


def frequency_text(rows: int | None, slot: int | None, align: int, partition: tuple[int, ...], node: Algebra) -> str:
    """Return a frequency as written in a query; empty for none."""
    if rows is None and slot is None:
        return ""
    domain = node.domain
    text = f"{rows} TUPLES" if slot is None else slide_text(slot, align, domain).removeprefix(" SLIDE ")
    labels = column_labels(node.schema)
    return text + (f" PARTITIONED BY {', '.join(labels[i] for i in partition)}" if partition else "")


@dataclass(frozen=True, eq=False)
class FrequencyWindow(StreamToRelation):
    """A window in the sequence model. At one of its evaluation instants e it holds the elements that have arrived,
    are among the last `rows` of their partition (`partition`; None for all) and whose timestamp is more than e's less
    `length` (None for no such limit); between two such instants it stays as it is.

    Its evaluation instants are every `every`-th element (of each substream by `by`, which is evaluated by itself), or
    the boundaries align + k·slide, or, with neither, all instants of the query.
    """

    in_language: ClassVar[str] = "a window with FREQUENCY"

    rows: Counted | None = None
    length: Ticks | None = None
    partition: Columns = ()
    every: Counted | None = None
    by: Columns = ()
    slide: Ticks | None = None
    align: Align = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.every is not None and self.slide is not None:
            raise refused("a window is evaluated at every n-th element or at a slide", "P0102")
        if self.by and self.every is None:
            raise refused("by needs every", "P0102", at=("by",))

    @property
    def jumps(self) -> bool:
        """Return whether it skips instants; FREQUENCY 1 TUPLE slides."""
        return self.slide is not None or (self.every or 1) > 1

    @property
    def pattern(self) -> Pattern:
        return Pattern.MONOTONIC if self.rows is None and self.length is None else Pattern.STRICT

    @property
    def keys(self) -> Keys:
        return frozenset({frozenset(self.partition)}) if self.rows == 1 else NO_KEYS

    @property
    def is_elementwise(self) -> bool:
        return True

    def evaluations(self) -> Iterable[Evaluation]:
        jumps = self.every is not None or self.slide is not None
        return (Evaluation(self.every, self.slide, self.align, self.by),) if jumps else ()

    def describe(self) -> Mapping[str, str]:
        domain, labels = self.domain, column_labels(self.schema)
        by = f"PARTITION BY {', '.join(labels[i] for i in self.partition)} " if self.partition else ""
        text = f"{by}RANGE {self.rows} TUPLES" if self.rows is not None else ""
        if self.length is not None:
            text += f" RANGE {(domain.show_length if domain else str)(self.length)}"
        frequency = frequency_text(self.every, self.slide, self.align, self.by, self)
        return {"window": text.strip() or "RANGE UNBOUNDED", "frequency": frequency or "every instant"}
