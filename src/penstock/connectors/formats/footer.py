"""The footer of a parquet file, parsed far enough to know which columns Arrow can safely read.

Arrow aborts the process on certain damage in the metadata of a column: it raises no Python exception. So the bytes of
the footer are walked here first (Thrift's compact protocol), and statistics are requested from Arrow only for sound
columns: not encrypted, of the schema's type, with bounds as long as that type and histograms as long as its levels.

Contract: `Footer` never raises for the contents of the bytes. What is not understood counts as damaged: then nothing is
known of the values, and reading the rows reports the damage.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

_TAIL = 8
_MAGIC = b"PAR1"

# Types of the compact protocol.
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_INTEGERS = frozenset({_I16, _I32, _I64})
_MAX_DEPTH = 32

#: Parquet's physical types by number, and the length of their bounds in bytes; None for any length.
_PHYSICAL: dict[int, tuple[str, int | None]] = {
    0: ("BOOLEAN", 1),
    1: ("INT32", 4),
    2: ("INT64", 8),
    3: ("INT96", 12),
    4: ("FLOAT", 4),
    5: ("DOUBLE", 8),
    6: ("BYTE_ARRAY", None),
    7: ("FIXED_LEN_BYTE_ARRAY", None),
}

# Fields by number: their names and the types they must have.
_ROW_GROUPS, _COLUMNS = 4, 1
_META_DATA, _CRYPTO, _ENCRYPTED = 3, 8, 9
_TYPE, _PATH, _COMPRESSED, _STATISTICS, _SIZES = 1, 3, 7, 12, 16
_BOUNDS = (1, 2, 5, 6)


class _Damaged(Exception):
    """Bytes that do not form a footer as every writer writes it."""


@dataclass(frozen=True)
class _FooterGroup:
    """A row group. `stored`: bytes of all columns; `whole`: name of a top-level column -> its position, where its
    statistics are sound.
    """

    stored: int
    sound_columns: dict[str, int]


class Footer:
    """The footer of an open file. `names`: the top-level columns of interest."""

    def __init__(self, path: str, file: pq.ParquetFile, names: Collection[str]) -> None:
        self._path = path
        try:
            self._groups = _Walk(_footer_bytes(path), file, names).groups()
        except (_Damaged, IndexError):
            self._groups = []
        if len(self._groups) != file.metadata.num_row_groups:
            self._groups = []

    def place(self, group: int, name: str) -> int | None:
        """Return the position of a column in a row group; None where its statistics may not be read."""
        return self._groups[group].sound_columns.get(name) if self._groups else None

    def stored(self, group: int) -> int:
        """Return the compressed bytes of a row group; those of the file where the footer does not have them."""
        return self._groups[group].stored if self._groups else Path(self._path).stat().st_size


def _footer_bytes(path: str) -> bytes:
    with Path(path).open("rb") as file:
        end = file.seek(0, 2)
        file.seek(max(0, end - _TAIL))
        tail = file.read(_TAIL)
        length = int.from_bytes(tail[:4], "little")
        if tail[4:] != _MAGIC or length > end - _TAIL:
            raise _Damaged
        file.seek(end - _TAIL - length)
        return file.read(length)


class _Walk:
    """One pass over the bytes of a footer. A field that occurs twice in a struct, or has another type than Parquet's,
    is damage: readers interpret it differently.
    """

    def __init__(self, data: bytes, file: pq.ParquetFile, names: Collection[str]) -> None:
        self._data = data
        self._offset = 0
        self._names = {name.encode(): name for name in names}
        self._schema = file.schema
        self._columns = file.metadata.num_columns

    def groups(self) -> list[_FooterGroup]:
        groups: list[_FooterGroup] = []
        for number, type_ in self._fields():
            if number == _ROW_GROUPS:
                groups = [self._group() for _ in range(self._list(type_, _STRUCT))]
            else:
                self._skip(type_)
        return groups

    def _group(self) -> _FooterGroup:
        stored_bytes, sound_columns = 0, {}
        for number, type_ in self._fields():
            if number != _COLUMNS:
                self._skip(type_)
                continue
            count = self._list(type_, _STRUCT)
            if count != self._columns:
                raise _Damaged
            for index in range(count):
                size, name = self._column(index)
                stored_bytes += max(0, size)
                if name is not None:
                    sound_columns[name] = index
        return _FooterGroup(stored_bytes, sound_columns)

    def _column(self, index: int) -> tuple[int, str | None]:
        """Return the compressed size of a column, and its name if it is of interest and its statistics are sound."""
        size, name, is_plain = 0, None, True
        for number, type_ in self._fields():
            if number == _META_DATA:
                _expect(type_ == _STRUCT)
                size, name = self._meta_data(index)
            else:
                is_plain = is_plain and number not in (_CRYPTO, _ENCRYPTED)
                self._skip(type_)
        return size, name if is_plain else None

    def _meta_data(self, index: int) -> tuple[int, str | None]:
        physical, size, name, bounds, sizes_fit = -1, 0, None, list[int](), True
        for number, type_ in self._fields():
            if number == _TYPE:
                _expect(type_ == _I32)
                physical = self._integer()
            elif number == _PATH:
                parts = [self._binary() for _ in range(self._list(type_, _BINARY))]
                name = self._names.get(parts[0]) if len(parts) == 1 else None
            elif number == _COMPRESSED:
                _expect(type_ == _I64)
                size = self._integer()
            elif number == _STATISTICS:
                _expect(type_ == _STRUCT)
                bounds = self._bounds()
            elif number == _SIZES:
                _expect(type_ == _STRUCT)
                sizes_fit = self._sizes_fit(index)
            else:
                self._skip(type_)
        return size, name if sizes_fit and name is not None and self._sound(index, physical, bounds) else None

    def _bounds(self) -> list[int]:
        """Return the lengths of the bounds in some statistics."""
        lengths: list[int] = []
        for number, type_ in self._fields():
            if number in _BOUNDS:
                _expect(type_ == _BINARY)
                lengths.append(len(self._binary()))
            else:
                self._skip(type_)
        return lengths

    def _sizes_fit(self, index: int) -> bool:
        """Return whether the size statistics agree with the schema of the column."""
        column, fits = self._schema.column(index), True
        levels = {2: column.max_repetition_level, 3: column.max_definition_level}
        for number, type_ in self._fields():
            if number in levels:
                length = self._list(type_, _I64)
                for _ in range(length):
                    self._varint()
                fits = fits and length in (0, levels[number] + 1)
            else:
                fits = fits and (number != 1 or column.physical_type == "BYTE_ARRAY")
                self._skip(type_)
        return fits

    def _sound(self, index: int, physical: int, bounds: list[int]) -> bool:
        column = self._schema.column(index)
        name, length = _PHYSICAL.get(physical, ("", None))
        if name != column.physical_type:
            return False
        if name == "FIXED_LEN_BYTE_ARRAY":
            length = column.length
        return length is None or all(bound == length for bound in bounds)

    def _fields(self) -> Iterator[tuple[int, int]]:
        """Yield the number and type of each field of a struct; the caller reads its value before the next."""
        number, numbers = 0, set[int]()
        while head := self._byte():
            delta, type_ = head >> 4, head & 15
            number = number + delta if delta else self._integer()
            if number in numbers or not 0 < number < 2**15:
                raise _Damaged
            numbers.add(number)
            yield number, type_

    def _list(self, type_: int, expected_type: int) -> int:
        """Return the length of a list whose members, which follow, are of the type `expected_type`."""
        _expect(type_ == _LIST)
        length, member_type = self._head_of_list()
        _expect(member_type == expected_type or not length)
        return length

    def _head_of_list(self) -> tuple[int, int]:
        head = self._byte()
        length = head >> 4
        if length == 15:
            length = self._varint()
        # A member has at least one byte.
        _expect(length <= len(self._data) - self._offset)
        return length, head & 15

    def _skip(self, type_: int, depth: int = 0) -> None:
        _expect(depth < _MAX_DEPTH)
        if type_ in _INTEGERS:
            self._varint()
        elif type_ == _BINARY:
            self._binary()
        elif type_ == _STRUCT:
            for _, inner in self._fields():
                self._skip(inner, depth + 1)
        elif type_ in (_LIST, _SET):
            length, members = self._head_of_list()
            for _ in range(length):
                self._skip_member(members, depth + 1)
        elif type_ == _BYTE:
            self._advance(1)
        elif type_ == _DOUBLE:
            self._advance(8)
        else:
            # A boolean is encoded in its type. Parquet has no maps.
            _expect(type_ in (_TRUE, _FALSE))

    def _skip_member(self, type_: int, depth: int) -> None:
        if type_ in (_TRUE, _FALSE):
            self._advance(1)
        else:
            self._skip(type_, depth)

    def _byte(self) -> int:
        byte = self._data[self._offset]
        self._offset += 1
        return byte

    def _varint(self) -> int:
        data, at = self._data, self._offset
        value = data[at]
        at += 1
        if value > 127:
            value &= 127
            shift = 7
            while (part := data[at]) > 127:
                value |= (part & 127) << shift
                shift += 7
                at += 1
            value |= part << shift
            at += 1
            _expect(shift < 64)
        self._offset = at
        return value

    def _integer(self) -> int:
        raw = self._varint()
        return (raw >> 1) ^ -(raw & 1)

    def _binary(self) -> bytes:
        length = self._varint()
        start = self._offset
        self._advance(length)
        return self._data[start : self._offset]

    def _advance(self, count: int) -> None:
        self._offset += count
        _expect(self._offset <= len(self._data))


def _expect(condition: bool) -> None:
    if not condition:
        raise _Damaged
