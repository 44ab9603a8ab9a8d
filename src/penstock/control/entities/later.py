"""Relations of things that no version so far has: they are empty, with the columns that they will have."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.control.entities.attributes import COUNT, FLAG, REAL, TEXT, ControlRelation, never, unmeasured

_TYPES: dict[str, pa.DataType] = {"t": TEXT, "n": COUNT, "x": REAL, "b": FLAG}


def _empty(name: str, what: str, columns: str) -> ControlRelation[Any]:
    """Return a relation without rows. columns: each as `name:type`, with a letter of `_TYPES`."""
    pairs = (column.split(":") for column in columns.split())
    attributes = tuple(unmeasured(column, _TYPES[type_], f"of {what}") for column, type_ in pairs)
    return ControlRelation(name, f"Always empty: this version has no {what}.", attributes, never)


ARCHIVES = _empty(
    "archives", "archives",
    "name:t on_object:t lifetime:t key:t g:n e:n layout:t strategy:t rows:n bytes:n blocks_read:n blocks_written:n"
    " last_update:n",
)  # fmt: skip
ARCHIVE_PARTS = _empty(
    "archive_parts", "archives",
    "archive:t part:t insertion_from:n insertion_until:n expiration_from:n expiration_until:n rows:n bytes:n",
)  # fmt: skip
CONSTRAINTS = _empty(
    "constraints", "constraints",
    "name:t stream:t kind:t columns:t k_declared:n unit:t k_seen_max:n k_seen_p99:n violations:n on_violation:t"
    " enforced:b bytes_saved:n",
)  # fmt: skip
PERIODIC = _empty(
    "periodic", "periodic queries", "group:t query:t window:n slide:n period:n deadline:n runs:n late:n latency:x"
)
POLICIES = _empty("policies", "scheduling policies", "name:t kind:t parameters:t")
