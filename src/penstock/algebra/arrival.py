"""In which order the elements of a stream have arrived, which is what row windows count by (LANGUAGE 1, 4.1).

The elements of a declared stream arrive in a deterministic order, and selection, projection and sampling keep it. So
does a view that only selects and projects a stream: it is the ISTREAM of a relation that loses nothing, and so that
stream itself. The elements of any other stream that is made of a relation come at an instant as a bag; among them the
order is that of their values (`expressions/order.py`).
"""

from __future__ import annotations

from dataclasses import replace

from penstock.algebra.nodes import Algebra
from penstock.algebra.r2s import RelationToStream, StreamKind
from penstock.algebra.rowwise import Project, Select
from penstock.algebra.sample import Sample
from penstock.algebra.scans import StreamScan
from penstock.algebra.windows import Window, WindowKind


def in_arrival_order(stream: Algebra) -> Algebra | None:
    """An equivalent of `stream` whose elements come as they arrived, made of its scan, selections, projections and
    samples; None where the elements have no order of arrival."""
    if isinstance(stream, StreamScan):
        return stream
    if isinstance(stream, Select | Project | Sample) and stream.is_stream:
        below = in_arrival_order(stream.input)
        return None if below is None else replace(stream, input=below)
    if isinstance(stream, RelationToStream) and stream.kind is StreamKind.ISTREAM:
        below = without_window(stream.input)
        return None if below is None else in_arrival_order(below)
    return None


def without_window(relation: Algebra) -> Algebra | None:
    """The stream that `relation` only selects and projects, with these operators over it; None for anything else."""
    if isinstance(relation, Select | Project):
        below = without_window(relation.input)
        return None if below is None else replace(relation, input=below)
    if isinstance(relation, Window) and relation.kind is WindowKind.UNBOUNDED and relation.slide is None:
        return relation.input
    return None
