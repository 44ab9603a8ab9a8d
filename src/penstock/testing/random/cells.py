"""Values of random cells by type, and what random predicates compare them with."""

from __future__ import annotations

from collections.abc import Sequence

#: type -> the values of a cell, simplest first
VALUES: dict[str, Sequence[str]] = {
    "INT": ("0", "1", "2", "3", "NULL", "-1"),
    "BIGINT": ("0", "1", "2", "NULL", "9000000000"),
    "STRING": ("'a'", "'b'", "'ab'", "''", "NULL"),
    "DOUBLE": ("0.0", "0.5", "1.25", "-0.0", "NULL", "NaN"),
    "DECIMAL(6,2)": ("0.00", "1.25", "1.50", "NULL", "-3.75"),
    "DATE": ("2013-01-01", "2013-01-02", "NULL", "1969-12-31"),
    "BOOLEAN": ("false", "true", "NULL"),
}
#: type -> what a predicate compares with
COMPARED = {
    "INT": "1",
    "BIGINT": "1",
    "STRING": "'ab'",
    "DOUBLE": "0.5",
    "DECIMAL(6,2)": "1.25",
    "DATE": "DATE '2013-01-01'",
}
NUMERIC = ("INT", "BIGINT", "DOUBLE", "DECIMAL(6,2)")
ROUGH = "ROUGH"
"""A double that two correct programs may round differently: never a key, never compared."""
