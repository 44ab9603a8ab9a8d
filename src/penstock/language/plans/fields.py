"""The fields of operators as data: the type of a field decides how it is written and read.

`algebra/nodes/base/fields.py` has the types that say more than Python's. What a value must be beside others the
operator checks when it is made.

A field may be missing where it has a default, or may be None; it is written where it has another value.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass, replace
from enum import Enum
from fractions import Fraction
from functools import partial
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from penstock.algebra import Algebra, SortKey
from penstock.algebra.nodes.base.fields import Between, Holds, OneOf
from penstock.expressions.nodes import Expression
from penstock.language.plan_form import Part, fault
from penstock.language.plans.scalar_binding import NamedColumns, ScalarReader
from penstock.language.plans.scalar_text import column_names, written
from penstock.quantities import LARGEST_BIGINT
from penstock.types import LONGEST_TICKS, Schema, exact

Fields = dict[str, Any]


@dataclass(frozen=True)
class Below:
    """What an operator is read over.

    Args:
        pointer: to the operator.
        fields: those that are written.
        inputs: the operators below, in order.
        line: the streams of the enclosing query in the sequence model; None outside of one.
        scalars: binds its expressions.
    """

    pointer: str
    fields: Mapping[str, Part]
    inputs: tuple[Algebra, ...]
    line: tuple[Algebra, ...] | None
    scalars: ScalarReader

    @property
    def input(self) -> Algebra:
        return self.inputs[0]

    @property
    def columns(self) -> NamedColumns:
        return NamedColumns.of(self.input.schema)

    @property
    def all_columns(self) -> NamedColumns:
        """Return the columns of the first two inputs."""
        return NamedColumns.of(_joined(self.inputs))

    def positions(self, name: str) -> tuple[int, ...]:
        """Return the columns of the input that a field names; none where it is missing."""
        return self.columns.positions(self.fields[name]) if name in self.fields else ()


def _joined(inputs: Sequence[Algebra]) -> Schema:
    return Schema(tuple(field for node in inputs[:2] for field in node.schema.fields))


def given(**values: Any) -> Fields:
    """Return the fields that have a value."""
    return {name: value for name, value in values.items() if value not in (None, (), [], "")}


def names_of(node: Algebra, positions: Sequence[int]) -> list[str]:
    """Return the names of columns of an operator."""
    names = column_names(node.schema)
    return [names[i] for i in positions]


@dataclass(frozen=True)
class Codec:
    """How values of a type are written, beside the inputs of their operator, and read."""

    write: Callable[[Any, Sequence[Algebra]], Any]
    read: Callable[[Part, Below], Any]


@dataclass(frozen=True)
class DataField:
    """A field of an operator as data. is_needed: it has neither a default nor may be None."""

    name: str
    attribute: str
    codec: Codec
    is_needed: bool
    default: Any

    def write(self, owner: Any, inputs: Sequence[Algebra]) -> Fields:
        """Return the field where it has to be written."""
        value = getattr(owner, self.attribute)
        is_default = not self.is_needed and value == self.default
        return {} if is_default else {self.name: self.codec.write(value, inputs)}

    def read(self, below: Below) -> Any:
        """Return the value of the field, its default where it is missing."""
        return self.codec.read(below.fields[self.name], below) if self.name in below.fields else self.default


@dataclass(frozen=True)
class FieldGroup:
    """The fields of a value that an operator has, which are written among those of the operator."""

    attribute: str
    kind: type
    fields: tuple[DataField, ...]
    may_be_none: bool

    def write(self, owner: Any, inputs: Sequence[Algebra]) -> Fields:
        """Return the fields of the value; none where there is none."""
        value = getattr(owner, self.attribute)
        return {} if value is None else write_fields(self.fields, value, inputs)

    def read(self, below: Below) -> Any:
        """Return the value; None where its needed fields are missing."""
        missing = [one.name for one in self.fields if one.is_needed and one.name not in below.fields]
        if missing and self.may_be_none:
            lone = next((one.name for one in self.fields if one.name in below.fields), None)
            if lone is not None:
                raise fault(below.fields[lone].pointer, f"{lone} needs {missing[0]}")
            return None
        return self.kind(**{one.attribute: one.read(below) for one in self.fields})


def write_fields(known: Sequence[DataField | FieldGroup], owner: Any, inputs: Sequence[Algebra]) -> Fields:
    """Return the fields that are written of an operator, or of a value of one."""
    return {name: value for one in known for name, value in one.write(owner, inputs).items()}


def fields_of(kind: type) -> tuple[tuple[DataField | FieldGroup, ...], tuple[bool, ...]]:
    """Return the fields of a class of operators, and its inputs: whether each field of these holds many."""
    hints = typing.get_type_hints(kind, include_extras=True)
    found: list[DataField | FieldGroup] = []
    inputs: list[bool] = []
    for one in fields(kind):
        hint, may_be_none = _without_none(hints[one.name])
        if isinstance(hint, type) and issubclass(hint, Algebra):
            inputs.append(False)
        elif get_args(hint)[:1] == (Algebra,):
            inputs.append(True)
        elif isinstance(hint, type) and is_dataclass(hint) and not issubclass(hint, Expression):
            found.append(FieldGroup(one.name, hint, data_fields(hint), may_be_none))
        elif one.metadata.get("data", one.name) is not None:
            found.append(_data_field(one, hint, may_be_none))
    return tuple(found), tuple(inputs)


def data_fields(kind: type) -> tuple[DataField, ...]:
    """Return the fields of a value that an operator has."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return tuple(_data_field(one, *_without_none(hints[one.name])) for one in fields(kind))


def _data_field(one: Field[Any], hint: Any, may_be_none: bool) -> DataField:
    default = None if one.default is MISSING else one.default
    is_needed = one.default is MISSING and not may_be_none
    codec = _TEXT if default == "" else codec_of(hint)
    return DataField(one.metadata.get("data", one.name), one.name, codec, is_needed, default)


def _without_none(hint: Any) -> tuple[Any, bool]:
    """Return a type without None, and whether it had that."""
    if get_origin(hint) not in (Union, UnionType):
        return hint, False
    (rest,) = (one for one in get_args(hint) if one is not NoneType)
    return rest, True


def codec_of(hint: Any) -> Codec:
    """Return how values of a type are written and read."""
    if get_origin(hint) is Annotated:
        return _meant(get_args(hint)[1])
    if hint in _KINDS:
        return _KINDS[hint]
    if get_origin(hint) is tuple:
        return _listed(codec_of(get_args(hint)[0]))
    if isinstance(hint, type) and is_dataclass(hint):
        return _object(hint)
    if issubclass(hint, Enum):
        words = {one.name: one for one in hint}
        return Codec(lambda value, inputs: value.name, lambda part, below: words[part.one_of(words)])
    raise AssertionError(f"{hint} has no form as data")


def _meant(meaning: Between | OneOf | Holds) -> Codec:
    if isinstance(meaning, Between):
        return Codec(_as_it_is, lambda part, below: part.whole(meaning.least, meaning.most))
    if isinstance(meaning, OneOf):
        return Codec(_as_it_is, lambda part, below: part.one_of(meaning.words))
    return _HOLDS[meaning]


def _object(kind: type) -> Codec:
    known = data_fields(kind)
    names, needed = [one.name for one in known], [one.name for one in known if one.is_needed]

    def read(part: Part, below: Below) -> Any:
        inside = replace(below, fields=part.object(names, needed))
        return kind(**{one.attribute: one.read(inside) for one in known})

    return Codec(lambda value, inputs: write_fields(known, value, inputs), read)


def _as_it_is(value: Any, inputs: Sequence[Algebra]) -> Any:
    return value


def _listed(codec: Codec) -> Codec:
    return Codec(
        lambda values, inputs: [codec.write(one, inputs) for one in values],
        lambda part, below: tuple(codec.read(one, below) for one in part.items()),
    )


def _fraction(part: Part, below: Below) -> Fraction:
    try:
        return exact(part.text())
    except ValueError:
        raise fault(part.pointer, "this is no fraction, such as 5 or 1/3") from None


def _write_key(key: SortKey, inputs: Sequence[Algebra]) -> Fields:
    (name,) = names_of(inputs[0], [key.column])
    return {"column": name, "descending": key.descending, "nulls_first": key.nulls_first}


def _read_key(part: Part, below: Below) -> SortKey:
    parts = part.object(("column", "descending", "nulls_first"), ("column",))
    descending = "descending" in parts and parts["descending"].flag()
    nulls_first = parts["nulls_first"].flag() if "nulls_first" in parts else not descending
    return SortKey(below.columns.position(parts["column"]), descending, nulls_first)


def _write_pairs(pairs: Sequence[tuple[int, int]], inputs: Sequence[Algebra]) -> list[list[str]]:
    left, right = (column_names(side.schema) for side in inputs[:2])
    return [[left[i], right[j]] for i, j in pairs]


def _read_pairs(part: Part, below: Below) -> tuple[tuple[int, int], ...]:
    left, right = (NamedColumns.of(side.schema) for side in below.inputs[:2])
    found: list[tuple[int, int]] = []
    for item, pair in read_pairs(part):
        columns = left.position(pair[0]), right.position(pair[1])
        if columns in found:
            raise fault(item.pointer, "this pair of columns occurs twice", "P0206")
        found.append(columns)
    return tuple(found)


def read_pairs(part: Part) -> Iterator[tuple[Part, tuple[Part, Part]]]:
    """Yield the pairs of names of columns, each with its place."""
    for item in part.items():
        pair = item.items()
        if len(pair) != 2:
            raise fault(item.pointer, "a pair of columns is needed, of the left and of the right input")
        yield item, (pair[0], pair[1])


def _write_expression(expression: Expression, inputs: Sequence[Algebra]) -> str:
    return written(expression, column_names(_joined(inputs)))


def _read_align(part: Part, below: Below) -> int:
    if "slide" not in below.fields:
        raise fault(part.pointer, "align needs a slide", "P0102")
    return part.whole(0, below.fields["slide"].whole(1, LONGEST_TICKS - 1) - 1)


_HOLDS: Mapping[Holds, Codec] = {
    Holds.ALIGN: Codec(_as_it_is, _read_align),
    Holds.COLUMNS: Codec(
        lambda positions, inputs: names_of(inputs[0], positions), lambda part, below: below.columns.positions(part)
    ),
    Holds.PAIRS: Codec(_write_pairs, _read_pairs),
    Holds.CONDITION: Codec(_write_expression, lambda part, below: below.scalars.condition(part, below.all_columns)),
}
#: A name that may be empty.
_TEXT = Codec(_as_it_is, lambda part, below: part.text())
_KINDS: Mapping[Any, Codec] = {
    int: Codec(_as_it_is, lambda part, below: part.whole(-LARGEST_BIGINT - 1, LARGEST_BIGINT)),
    tuple[int, ...]: _HOLDS[Holds.COLUMNS],
    bool: Codec(_as_it_is, lambda part, below: part.flag()),
    str: Codec(_as_it_is, lambda part, below: part.name()),
    Fraction: Codec(lambda value, inputs: str(value), _fraction),
    Expression: Codec(_write_expression, lambda part, below: below.scalars.value(part, below.all_columns)),
    SortKey: Codec(_write_key, _read_key),
}


@dataclass(frozen=True)
class NodeForm:
    """One operator as data.

    Args:
        write: returns the fields that are written of one.
        read: builds one over its inputs. Raises PenstockError.
        fields, needed: the fields that it may have and must have.
        inputs: how many inputs it has, at least and at most; None for any number.
        below: returns the inputs that are written.
    """

    write: Callable[[Any], Fields]
    read: Callable[[Below], Algebra]
    fields: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()
    inputs: tuple[int, int | None] = (1, 1)
    below: Callable[[Any], Sequence[Algebra]] = lambda node: node.inputs


def form_of(kind: type[Algebra]) -> NodeForm:
    """Return the form of an operator all of whose fields are data."""
    known, inputs = fields_of(kind)
    flat = [field for one in known for field in (one.fields if isinstance(one, FieldGroup) else (one,))]
    needed = [one.name for one in known if isinstance(one, DataField) and one.is_needed]
    single = inputs.count(False)
    return NodeForm(
        lambda node: write_fields(known, node, node.inputs),
        partial(_read, kind, known, inputs),
        tuple(one.name for one in flat),
        tuple(needed),
        (single + inputs.count(True), None if True in inputs else single),
    )


def _read(
    kind: type[Algebra], known: Sequence[DataField | FieldGroup], inputs: Sequence[bool], below: Below
) -> Algebra:
    single = inputs.count(False)
    over = [*below.inputs[:single], *([below.inputs[single:]] if True in inputs else [])]
    return kind(*over, **{one.attribute: one.read(below) for one in known})
