"""FROM: declared sources, views, nested queries and joins, each with the window that makes it a relation.

Inner joins of any number of inputs are kept flat while they are read (`from_joins.py`), with their conditions over the
columns of all of them; `joins.py` then builds the binary joins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from penstock.algebra import Algebra, RelationScan, RelationToStream, Sample, Source, StreamKind, StreamScan, unjoined
from penstock.algebra.pattern import Pattern
from penstock.algebra.timestamps import timestamp_column
from penstock.errors import nearest
from penstock.language.binder.context import Context, Refused
from penstock.language.binder.frequency import answer_stream
from penstock.language.binder.from_joins import join_sources
from penstock.language.binder.inputs import Input, Inputs
from penstock.language.binder.scope import Entry, Role
from penstock.language.binder.windows import bind_window
from penstock.language.catalog import View
from penstock.language.queries import DerivedSource, FromSource, JoinedSource, Name, NamedSource, QueryTree, WindowSpec
from penstock.language.queries import Sample as SampleTree
from penstock.language.text import Span

#: Binds a nested query: (tree, columns of the enclosing query) -> (algebra, column names).
NestedBinder = Callable[[QueryTree, tuple[Entry, ...]], tuple[Algebra, tuple[str, ...]]]


@dataclass(frozen=True)
class SourceBinder:
    """views: those of WITH, by lower-case name."""

    context: Context
    nested: NestedBinder
    views: dict[str, View]
    outer: tuple[Entry, ...] = ()

    def bind(self, source: FromSource) -> Inputs:
        """All relations of a FROM clause. Raises Refused with the errors noted."""
        found = self._bind(source, ())
        self._check_aliases(source)
        return found

    def _bind(self, source: FromSource, before: tuple[Entry, ...]) -> Inputs:
        if isinstance(source, JoinedSource):
            return self._joined(source, before)
        if isinstance(source, DerivedSource):
            return self._derived(source, before)
        return self._named(source)

    # --- one source

    def _named(self, source: NamedSource) -> Inputs:
        name = source.name
        qualifier = (source.alias or name).text
        view = self.views.get(name.key) or self.context.catalog.views.get(name.key)
        if view is not None and name.matches(view.name):
            root = self._sampled(view.root, source.sample, view.name)
            return self._relation(root, view.names, source.window, qualifier, name)
        query = self.context.catalog.queries.get(name.key)
        if query is not None and name.matches(query.name):
            root = self._sampled(query.root, source.sample, query.name)
            return self._relation(root, root.schema.names, source.window, qualifier, name)
        declared = self.context.catalog.sources.get(name.key)
        if declared is None or not name.matches(declared.name):
            self._unknown(name)
        node = self._sampled(_scan(declared), source.sample, declared.name)
        alias = source.alias.text if source.alias else declared.name
        return self._relation(node, node.schema.names, source.window, alias, name)

    def _derived(self, source: DerivedSource, before: tuple[Entry, ...]) -> Inputs:
        node, names = self.nested(source.query, before + self.outer)
        if source.columns:
            if len(source.columns) != len(names):
                message = f"{len(source.columns)} names for {len(names)} columns"
                self.context.fail("P0305", message, source.columns[0].span.to(source.columns[-1].span))
            names = tuple(c.text for c in source.columns)
        if source.window is not None:
            node = as_stream(node, source.span, self.context)
        return self._relation(node, names, source.window, source.alias.text if source.alias else None, source)

    def _sampled(self, node: Algebra, sample: SampleTree | None, name: str) -> Algebra:
        if sample is None:
            return node
        if not node.is_stream:
            self.context.fail("P0103", f"SAMPLE draws from a stream; {name} is a relation", sample.span)
        if not 0 <= sample.percent <= 100:
            self.context.fail("P0102", "a sample is between 0 and 100 percent", sample.span)
        return Sample(node, sample.percent, self.context.settings.get_int("seed"), name)

    def _relation(
        self,
        node: Algebra,
        names: Sequence[str],
        window: WindowSpec | None,
        qualifier: str | None,
        place: Name | DerivedSource,
    ) -> Inputs:
        stamp = timestamp_column(node) if node.is_stream else None
        plain = Role.ELEMENT if node.is_stream else Role.RELATION
        entries = tuple(
            Entry(i, n, f.type, qualifier, role=Role.TIMESTAMP if i == stamp else plain)
            for i, (n, f) in enumerate(zip(names, node.schema, strict=True))
        )
        if node.is_stream:
            called = place if isinstance(place, Name) else place.called
            own = called.text if called is not None else qualifier
            # Behind an alias the stream's own name is still known in its window.
            other = () if own == qualifier else (replace(e, qualifier=own, merged=True) for e in entries)
            node = bind_window(window, node, self.context, (*entries, *other))
        elif window is not None:
            shown = place.text if isinstance(place, Name) else "this query"
            hint = "a window belongs to a stream; leave it out"
            self.context.fail("P0301", f"{shown} is a relation, it takes no window", window.span, hint)
        internal = window.internal.span if window is not None and window.internal is not None else None
        return Inputs((Input(node, place.span, internal),), entries)

    def _unknown(self, name: Name) -> NoReturn:
        context = self.context
        if name.key in context.failed:
            context.fail_silently()
        if context.depends_on_itself(name.key):
            context.fail(
                "P0306", f"{context.view_kind} {context.view} depends on itself through {name.text}", name.span
            )
        if name.key in context.later:
            hint = f"it is declared later, in line {context.later[name.key]}; move that statement up"
            context.fail("P0201", f"{name.text} is not declared yet", name.span, hint)
        known = [s.name for s in context.catalog.sources.values()]
        known += [q.name for q in context.catalog.queries.values()]
        known += [v.name for v in (*context.catalog.views.values(), *self.views.values())]
        context.fail("P0201", f"unknown stream, relation or view {name.text}", name.span, nearest(name.text, known))

    # --- joins

    def _joined(self, join: JoinedSource, before: tuple[Entry, ...]) -> Inputs:
        left = self.context.attempt(lambda: self._bind(join.left, before))
        seen = before + (left.entries if left else ())
        right = self._bind(join.right, seen)
        if left is None:
            raise Refused
        return join_sources(join, left, right, self.outer, self.context)

    def _check_aliases(self, source: FromSource) -> None:
        seen: dict[str, Name] = {}
        clash = False
        for leaf in _leaves(source):
            name = leaf.alias or (leaf.name if isinstance(leaf, NamedSource) else None)
            if name is None:
                continue
            if name.key in seen:
                hint = f"give it a name of its own: {name.text} AS {name.text}2"
                message = f"{name.text} stands twice in FROM"
                self.context.attempt(lambda: self.context.fail("P0206", message, name.span, hint))  # noqa: B023
                clash = True
            seen[name.key] = name
        if clash:
            raise Refused


def as_stream(node: Algebra, span: Span, context: Context) -> Algebra:
    """A query's answer as LANGUAGE 4.3 has it: the ISTREAM of a relation that never loses a tuple, else as it is; in
    the sequence model its answer stream."""
    node = answer_stream(node, span, context)
    timed = not node.is_stream and node.domain is not None
    if timed and node.pattern is Pattern.MONOTONIC and next(unjoined(node), None) is None:
        return RelationToStream(node, StreamKind.ISTREAM)
    return node


def _scan(source: Source) -> Algebra:
    columns = tuple(range(len(source.columns)))
    return StreamScan(source, columns) if source.is_stream else RelationScan(source, columns)


def _leaves(source: FromSource) -> list[NamedSource | DerivedSource]:
    if isinstance(source, JoinedSource):
        return _leaves(source.left) + _leaves(source.right)
    return [source]
