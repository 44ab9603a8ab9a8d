"""The summaries that the preferences of a SELECT may read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.algebra import SummaryDefinition
from penstock.errors import nearest
from penstock.expressions.nodes import Column
from penstock.language.binder.context import Context
from penstock.language.queries import Name
from penstock.language.text import TextSpan


@dataclass(frozen=True)
class SummarisedStream:
    """A stream of FROM. first, end: of its columns among those of FROM; name: of the stream, empty for a query."""

    first: int
    end: int
    name: str


@dataclass(frozen=True)
class StreamSummaries:
    """The streams of FROM, and all declared summaries."""

    streams: tuple[SummarisedStream, ...]
    declared: tuple[SummaryDefinition, ...]

    def find(
        self, name: Name | None, columns: Sequence[Column], span: TextSpan, context: Context
    ) -> tuple[SummaryDefinition, tuple[Column, ...]]:
        """Return the summary of `columns` and these in its order. name: None for SUMMARY. Raises BindingFailed after
        P0201 for an unknown name, else P0350."""
        if name is not None and not any(name.matches(one.name) for one in self.declared):
            known = [one.name for one in self.declared]
            context.fail("P0201", f"unknown summary {name.text}", name.span, nearest(name.text, known))
        owners = {self._owner(column) for column in columns}
        stream = next(iter(owners))
        if len(owners) > 1 or stream is None or not stream.name:
            hint = "name the columns of one stream of FROM, as its summary has them"
            context.fail("P0350", "an estimate is one of the columns of a stream", span, hint)
        estimated = sorted(column.name.lower() for column in columns)
        fitting = [
            one
            for one in self.declared
            if one.stream.lower() == stream.name.lower() and sorted(map(str.lower, one.columns)) == estimated
        ]
        if name is not None:
            fitting = [one for one in fitting if name.matches(one.name)]
        names = ", ".join(column.name for column in columns)
        if not fitting:
            what = "no summary" if name is None else f"{name.text} is no summary"
            hint = f"CREATE SUMMARY {stream.name}_{columns[0].name} ON {stream.name} ({names})"
            context.fail("P0350", f"{what} of {stream.name} ({names})", span, hint)
        if len(fitting) > 1:
            hint = f"name one of them: {', '.join(one.name for one in fitting)}"
            context.fail("P0350", f"{stream.name} ({names}) has several summaries", span, hint)
        by_name = {column.name.lower(): column for column in columns}
        return fitting[0], tuple(by_name[one.lower()] for one in fitting[0].columns)

    def _owner(self, column: Column) -> SummarisedStream | None:
        return next((one for one in self.streams if one.first <= column.index < one.end), None)
