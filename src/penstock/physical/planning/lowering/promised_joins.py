"""Joins whose rows leave by promises. Children whose parents have come are elements that meet what is there (rule 1 of
`algebra/optimizer/rules/constraints/references.py`); all others are a `PromisedJoin`.

Its rows lie in shards by columns that all CLUSTERED BY have, else by all columns that are compared. A row is held from
the timestamp of its element on, so where it enters later that timestamp is a column of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from penstock.algebra import Algebra, Pattern, Project, Select, StreamScan, TimeModelWindow, UnionAll
from penstock.algebra.nodes.base import operators
from penstock.algebra.nodes.promised import (
    ClosedRows,
    JoinResult,
    Leaving,
    PromisedJoin,
    compared_pairs,
    shard_pairs,
)
from penstock.algebra.nodes.scans import AcceptedScan
from penstock.algebra.optimizer.rules.constraints.references import met_at_once
from penstock.algebra.properties.promises import Clustered, ForeignKey, PassedPromise, Promises, Punctuated, Unique
from penstock.errors import PenstockError
from penstock.expressions.coercion import cast_to, common_type
from penstock.expressions.nodes import Column, Expression
from penstock.physical.plan.joins.promised import ClosedBy, PromisedJoinSpec, PromisedSide
from penstock.physical.planning.lowering.builder import Builder, Lowered, Partitions, lower, meet
from penstock.physical.planning.lowering.closings import ThinInputs
from penstock.types import Field

_HINT = "leave the promise out of the declaration: the same rows are answered, and state grows"
#: What answers whether rows have partners.
_OF_LEFT_ROWS = (JoinResult.SEMI, JoinResult.ANTI, JoinResult.MARK)


@dataclass
class _Held:
    """An input of a join, with further columns behind those of its relation.

    Args:
        node: the rows; the last column is the timestamp of the element where they enter late.
        entering: by condition of CLOSED the promises that close rows, over its columns.
        accepted: whether they are all elements of a declared stream that were accepted.
    """

    node: Algebra
    width: int
    enters_late: bool
    entering: tuple[Promises, ...]
    accepted: bool = False
    #: By column and type, the place of the column as a value of that type.
    casts: dict[tuple[int, pa.DataType], int] = field(default_factory=dict)

    def place(self, column: int, type_: pa.DataType) -> int:
        """Return the place of a column as a value of a type."""
        if self.node.schema[column].type == type_:
            return column
        made = self.node.expressions if isinstance(self.node, Project) else ()
        if made and (cast := cast_to(made[column], type_)) in made:
            return made.index(cast)
        known = len(self.node.schema) - self.enters_late + len(self.casts)
        return self.casts.setdefault((column, type_), known)

    @property
    def whole(self) -> Algebra:
        """Return the rows with all further columns."""
        if not self.casts:
            return self.node
        own: list[Expression] = [Column(f.type, i, f.name) for i, f in enumerate(self.node.schema)]
        came = [own.pop()] if self.enters_late else []
        cast = [cast_to(own[column], type_) for column, type_ in self.casts]
        expressions = (*own, *cast, *came)
        names = [*self.node.schema.names[: len(own)], *(f"compared{i}" for i in range(len(cast)))]
        names += ["came"] * self.enters_late
        return Project(
            self.node, expressions, tuple(Field(name, e.type) for name, e in zip(names, expressions, strict=True))
        )


@lower.register
def _promised_join(node: PromisedJoin, builder: Builder) -> Lowered:
    at_once = met_at_once(node)
    return builder.lower(at_once) if at_once is not None else _Lowering(node, builder).lowered()


class _Lowering:
    """The lowering of one join."""

    def __init__(self, node: PromisedJoin, builder: Builder) -> None:
        self._node, self._builder = node, builder
        self._sides = _held(node, 0), _held(node, 1)
        self._pairs = self._shard_pairs()
        #: By side and column of the relation, the type as which it decides in which shard a row is.
        self._types: list[dict[int, pa.DataType]] = [{}, {}]
        for pair in self._pairs:
            type_ = _compared(node, pair)
            for side in (0, 1):
                self._types[side][pair[side]] = type_

    def lowered(self) -> Lowered:
        node, builder = self._node, self._builder
        keys = [tuple(pair[side] for pair in node.equal) for side in (0, 1)]
        lying = keys
        if self._pairs:
            lying = [self._places(side, [pair[side] for pair in self._pairs]) for side in (0, 1)]
        # Before the inputs are lowered, all their further columns are known.
        leaving = [self._compared_columns(one) for one in node.leaving]
        promising = [self._promising(one, types) for one, (_, types) in zip(node.leaving, leaving, strict=True)]
        entering = [[self._own_columns(side, one) for one in self._conditions(side)] for side in (0, 1)]
        left, right = (builder.lower(side.whole) for side in self._sides)
        stage, edges, parts = meet(left, right, *lying)
        thin = ThinInputs(node.inputs, 2, builder)
        closed = [
            self._closed_by(thin, one.promise, places, types, parts[one.side], (one.of, whole, parts[one.of]))
            for one, (places, types), whole in zip(node.leaving, leaving, promising, strict=True)
            if not isinstance(one.promise.promise, Unique)
        ]
        of_sides = [one.side for one in node.leaving if not isinstance(one.promise.promise, Unique)]
        specs = []
        for number in (0, 1):
            enters = [
                self._closed_by(thin, promise, places, types, parts[number])
                for promise, (places, types) in zip(self._conditions(number), entering[number], strict=True)
            ]
            own = tuple(one for one, side in zip(closed, of_sides, strict=True) if side == number)
            specs.append(self._side(number, keys[number], own, enters, thin))
        spec = PromisedJoinSpec((specs[0], specs[1]), node.residual, node.joined)
        step = builder.add(spec, [*edges, *thin.edges], stage, node)
        return Lowered(step, stage, self._partitions(parts))

    def _shard_pairs(self) -> tuple[tuple[int, int], ...]:
        """Return the pairs (left, right) of columns by which rows lie in shards; none: by all that are compared."""
        node = self._node
        own = [(side, one) for side in (0, 1) for one in self._conditions(side)]
        by_own = [(side, one.columns) for side, one in own if isinstance(one.promise, Clustered)]
        if not by_own and not any(isinstance(one.promise.promise, Clustered) for one in node.leaving):
            return ()
        pairs = shard_pairs(node.leaving, dict.fromkeys((*compared_pairs(node.leaving), *node.equal)))
        of_all = tuple(pair for pair in pairs if all(pair[side] in columns for side, columns in by_own))
        return of_all or pairs

    def _conditions(self, side: int) -> list[PassedPromise]:
        return [one for condition in self._sides[side].entering for one in condition]

    def _places(self, side: int, columns: Iterable[int]) -> tuple[int, ...]:
        """Return the places of the columns of a side by which its rows lie in shards."""
        return tuple(self._sides[side].place(c, self._types[side][c]) for c in columns)

    def _compared_columns(self, one: Leaving) -> tuple[tuple[int, ...], tuple[pa.DataType, ...]]:
        """Return the places of the columns of a row that are compared with those of a promise, and their types; of a
        reference those that it has itself."""
        side = self._sides[one.side]
        if isinstance(one.promise.promise, ForeignKey):
            return one.promise.columns, ()
        pairs = compared_pairs([one])
        types = tuple(_compared(self._node, pair) for pair in pairs)
        return tuple(side.place(c, t) for c, t in zip(one.columns, types, strict=True)), types

    def _promising(self, one: Leaving, types: Sequence[pa.DataType]) -> tuple[int, ...]:
        """Return the places of the columns of CLUSTERED BY in the rows of its own side, as values of the types that are
        compared; none where these rows are not all elements of its stream."""
        side = self._sides[one.of]
        if not side.accepted or not isinstance(one.promise.promise, Clustered):
            return ()
        return tuple(side.place(c, t) for c, t in zip(one.promise.columns, types, strict=True))

    def _own_columns(self, side: int, one: PassedPromise) -> tuple[tuple[int, ...], tuple[pa.DataType, ...]]:
        """Return the same of a promise of the rows themselves."""
        held = self._sides[side]
        types = tuple(self._types[side].get(c, held.node.schema[c].type) for c in one.columns)
        return tuple(held.place(c, t) for c, t in zip(one.columns, types, strict=True)), types

    def _closed_by(
        self,
        thin: ThinInputs,
        promise: PassedPromise,
        places: tuple[int, ...],
        types: tuple[pa.DataType, ...],
        part: Sequence[int],
        of: tuple[int, tuple[int, ...], Sequence[int]] | None = None,
    ) -> ClosedBy:
        """Return by what rows are closed.

        Args:
            places: of the columns of a row.
            part: those by which rows lie in shards.
            of: the side whose promise it is, the places of the columns of the promise in its rows (none where these are
                not all of a declared stream), and the places of those by which they lie in shards.
        """
        lying = [places.index(c) for c in part] if set(part) <= set(places) else None
        rows = None
        if of is not None and of[1] and lying is not None and [of[1][i] for i in lying] == list(of[2]):
            rows = of[0], of[1]
        return ClosedBy(thin.closing(promise, lying, types, rows), places)

    def _side(
        self,
        number: int,
        key: tuple[int, ...],
        leaving: tuple[ClosedBy, ...],
        enters: Sequence[ClosedBy],
        thin: ThinInputs,
    ) -> PromisedSide:
        held, rest = self._sides[number], iter(enters)
        own = [one for one in self._node.leaving if one.side == number]
        unique = [one.promise for one in own if isinstance(one.promise.promise, Unique)]
        slides = [(one.slide, one.align) for one in own if not isinstance(one.promise.promise, Unique)]
        slide, align = slides[0] if slides else (None, 0)
        return PromisedSide(
            held.whole.schema.types,
            held.width,
            key,
            leaving,
            once=bool(unique),
            unique=" or ".join(map(thin.text, unique)),
            slide=slide,
            align=align,
            came=len(held.whole.schema) - 1 if held.enters_late else None,
            entering=tuple(tuple(next(rest) for _ in condition) for condition in held.entering),
            ends=self._node.inputs[number].pattern is not Pattern.MONOTONIC,
            accepted=held.accepted,
        )

    def _partitions(self, parts: tuple[tuple[int, ...], tuple[int, ...]]) -> Partitions:
        """Return the columns of the results by which they lie in shards."""
        node = self._node
        found = []
        if node.joined is not JoinResult.FULL and all(c < self._sides[0].width for c in parts[0]):
            found.append(parts[0])
        if node.joined is JoinResult.INNER and all(c < self._sides[1].width for c in parts[1]):
            found.append(tuple(self._sides[0].width + c for c in parts[1]))
        return frozenset(found) or None


def _held(node: PromisedJoin, number: int) -> _Held:
    """Return a side of a join. Where closings end its rows, what lets them enter later than their elements is known to
    the join: rows wait there, since a closing counts that comes before they enter."""
    side = node.inputs[number]
    width = len(side.schema)
    if not any(one.side == number and _counts_from_elements(one, node.inputs[one.of]) for one in node.leaving):
        return _accepted(node, number) or _Held(side, width, False, ())
    below, conditions = _without_closed(side)
    # UNIQUE closes a row at its own instant, at which it comes.
    entering = tuple(one for one in conditions if not any(isinstance(p.promise, Unique) for p in one))
    late = _enters_late(below, node, True)
    if not late and not entering and (every := _accepted(node, number)) is not None:
        return every
    return _Held(below.with_arrival_time() if late else below, width, late, entering)


def _accepted(node: PromisedJoin, number: int) -> _Held | None:
    """Return a side whose rows are a whole stream as all elements of it that were accepted, where a CLUSTERED BY of it
    ends rows of the other side: their values are those that it needs to know. None for another one."""
    if not any(one.of == number and isinstance(one.promise.promise, Clustered) for one in node.leaving):
        return None
    side = scan = node.inputs[number]
    if isinstance(side, TimeModelWindow) and side.judges_alone and side.lifetime is None and side.slide is None:
        scan = side.inputs[0]
    if not isinstance(scan, StreamScan) or scan.checks:
        return None
    return _Held(AcceptedScan(scan.source, scan.columns), len(side.schema), False, (), True)


def _counts_from_elements(one: Leaving, other: Algebra) -> bool:
    """Return whether closings before a row enters count for it, from its element on. UNIQUE closes a row by what it
    finds. What a punctuation closes stays closed, and all of its partners have entered by then unless they wait for
    CLOSED.

    Args:
        other: the side whose promise it is.
    """
    if isinstance(one.promise.promise, Punctuated):
        return any(isinstance(below, ClosedRows) for below in operators(other))
    return not isinstance(one.promise.promise, Unique)


def _without_closed(node: Algebra) -> tuple[Algebra, tuple[Promises, ...]]:
    """Return a side without its CLOSED, with further columns behind its own, and the conditions over its columns."""
    if isinstance(node, ClosedRows):
        return node.input, node.closing
    if not isinstance(node, Select | Project):
        return node, ()
    below, conditions = _without_closed(node.input)
    if isinstance(node, Select) or not conditions:
        return replace(node, input=below), conditions
    read = sorted({c for one in conditions for promise in one for c in promise.columns})
    columns = tuple(Column(below.schema[c].type, c, below.schema[c].name) for c in read)
    places = {c: len(node.expressions) + i for i, c in enumerate(read)}
    fields = (*node.fields, *(Field(c.name, c.type) for c in columns))
    moved = tuple(tuple(m for p in one if (m := p.moved(places.get)) is not None) for one in conditions)
    return Project(below, (*node.expressions, *columns), fields), moved


def _enters_late(node: Algebra, join: PromisedJoin, alone: bool) -> bool:
    """Return whether rows enter later than their elements come.

    Args:
        join: the join of whose sides `node` is a part.
        alone: no join or DISTINCT stands between the two.
    Raises:
        PenstockError: P0901 where that is so below another join or a DISTINCT: the closings before are not known.
    """
    if isinstance(node, TimeModelWindow):
        late = node.slide is not None
    elif isinstance(node, ClosedRows):
        late = True
        alone = False  # only one at the top of a side is known to the join
    elif node.is_stream:
        return False
    else:
        alone = alone and isinstance(node, Select | Project | UnionAll)
        inputs = [_enters_late(one, join, alone) for one in node.inputs]
        late = any(inputs)
    if late and not alone:
        raise _refused(join, "rows of a SLIDE or of CLOSED below another join or a DISTINCT")
    return late


def _compared(node: PromisedJoin, pair: tuple[int, int]) -> pa.DataType:
    """Return the type as which two columns of a join are compared: that of the wider one."""
    types = [side.schema[c].type for side, c in zip(node.inputs, pair, strict=True)]
    wider = common_type(types)
    assert wider is not None, "columns of widened numbers are compared"
    return wider


def _refused(node: PromisedJoin, what: str) -> PenstockError:
    bases = [base for one in node.leaving for base in one.promise.bases]
    names = ", ".join(dict.fromkeys(f"{base.promise.WORDS} of {base.source}" for base in bases))
    return PenstockError("P0901", f"a join that ends its state by {names} over {what} is not supported yet", hint=_HINT)
