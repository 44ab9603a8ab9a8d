"""The order of arrival of the elements of a stream, by which row windows count [semantics 1, 4.1].

The elements of a declared stream arrive in a deterministic order, and selection, projection and sampling keep it. So
does a view that only selects and projects a stream: it is the ISTREAM of a relation that loses nothing, and so equals
that stream; likewise the results that WSTREAM windows. The answers of a query in the sequence model are in the order of
its instants, and a frequency operator keeps the order. The elements of any other stream that is made of a relation
arrive at an instant as a bag; among them the order is that of their values (docs/decisions/windows-and-streams.md).
Each operator declares its case (`Algebra.arrives_in_order`, `Algebra.as_read`).
"""

from __future__ import annotations

from penstock.algebra.nodes.base.algebra import Algebra


def in_arrival_order(stream: Algebra) -> Algebra | None:
    """Return an equivalent of `stream` whose elements are in order of arrival, made of its scan, or another leaf that
    emits its elements in order, selections, projections and samples; None where the elements have no order of
    arrival."""
    read = stream.as_read()
    return read if read.arrives_in_order else None
