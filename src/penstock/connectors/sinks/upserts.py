"""The changes of one batch as operations on a table with a key: one row per key, to be upserted or deleted.

Contract: a batch has columns `ts`, `op` and the items, its rows in ts order, `-` before `+` at one instant. Per key,
`+` and `-` must alternate: two rows with one key at one instant violate the key (PenstockError P0502).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.algebra.nodes.query import Query
from penstock.connectors.options import TEXT, Option, Options, one_of
from penstock.errors import PenstockError, nearest
from penstock.expressions.values.shown import shown_cell

MODE = Option("mode", one_of("new", "append"), "whether a table that has rows is refused, or added to", "new")
KEY = Option("key", TEXT, "columns of a relation, with commas, by which its rows are replaced and removed")


@dataclass(frozen=True)
class Net:
    """The net changes of a batch.

    `rows`: the last change of every key, without ts and op; `stays`: which of them are upserts, the others are
    deletions; `fresh`: which keys did not exist before the batch, if the key is unique.
    """

    rows: pa.Table
    stays: npt.NDArray[np.bool_]
    fresh: npt.NDArray[np.bool_]


def key_option(options: Options, query: Query) -> tuple[str, ...]:
    """Return the columns that the option `key` names, as spelled in the result; none without it.

    Raises:
        PenstockError: P0208.
    """
    if not options.has(KEY):
        return ()
    if query.root.is_stream:
        hint = "a stream only gains rows; leave the key out to append them"
        raise PenstockError("P0208", f"{options.owner}: the option key is for relations, this is a stream", hint=hint)
    items = query.output_names[2:]
    names = [name.strip() for name in options.needed(KEY).split(",")]
    key = []
    for name in names:
        key_column = next((column for column in items if column.lower() == name.lower()), None)
        if key_column is None:
            message = f"{options.owner}: option key: the result has no column {name or 'without a name'}"
            raise PenstockError("P0208", message, hint=nearest(name, items))
        if key_column in key:
            raise PenstockError("P0208", f"{options.owner}: option key: {name} occurs twice")
        key.append(key_column)
    return tuple(key)


def only_adds(options: Options) -> bool:
    """Return whether a result only adds to what its table holds."""
    return options.value(MODE) == "append" and not options.has(KEY)


def is_unique(query: Query, key: Sequence[str]) -> bool:
    """Return whether the plan of the result guarantees that no two rows share the key."""
    items = query.output_names[2:]
    key_positions = {items.index(name) for name in key}
    return any(unique_key <= key_positions for unique_key in query.root.keys)


def net(query: Query, key: Sequence[str], table: pa.Table) -> Net:
    """Return the net changes of `table`.

    Raises:
        PenstockError: P0502, two rows share a key.
    """
    if not table.num_rows:
        return Net(table.select(list(query.output_names[2:])), np.empty(0, np.bool_), np.empty(0, np.bool_))
    signs = pc.equal(table.column(1), "+").to_numpy()
    codes = _codes([table[name] for name in key])
    order = np.argsort(codes, kind="stable")
    same_as_previous = codes[order][1:] == codes[order][:-1]
    clash = np.flatnonzero(same_as_previous & (signs[order][1:] == signs[order][:-1]))
    if len(clash):
        raise violation(query, key, table, int(order[1:][clash[0]]))
    ends, begins = np.append(~same_as_previous, True), np.append(True, ~same_as_previous)
    last, first = order[ends], order[begins]
    rows = table.take(pa.array(last)).select(list(query.output_names[2:]))
    return Net(rows, signs[last], signs[first])


def violation(query: Query, key: Sequence[str], table: pa.Table, row: int) -> PenstockError:
    """Return the error for a second row with one key."""
    key_values = ", ".join(f"{name} = {shown_cell(table[name][row])}" for name in key)
    hint = "name columns in `key` that identify each row of the result, such as those of its GROUP BY"
    return PenstockError("P0502", f"query {query.name}: two rows share the key ({key_values})", hint=hint)


def _codes(columns: Sequence[pa.ChunkedArray]) -> npt.NDArray[np.int64]:
    """Return a number per row, equal for equal tuples; NULL equals NULL."""
    codes = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
        encoded = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
        indices = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        _, codes = np.unique(codes * (len(encoded.dictionary) + 1) + indices, return_inverse=True)
    return codes
