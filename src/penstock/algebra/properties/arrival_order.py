"""In which order the elements of a stream have arrived, which is what row windows count by [semantics 1, 4.1].

The elements of a declared stream arrive in a deterministic order, and selection, projection and sampling keep it. So
does a view that only selects and projects a stream: it is the ISTREAM of a relation that loses nothing, and so that
stream itself; likewise the results that WSTREAM windows. What a query in the sequence model answers comes in the order
of its instants, and a frequency operator keeps the order. The elements of any other stream that is made of a relation
come at an instant as a bag; among them the order is that of their values (docs/decisions/meaning.md).
"""

from __future__ import annotations

from dataclasses import replace

from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.frequency import Frequency, Sequenced
from penstock.algebra.nodes.r2s import RelationToStream, StreamKind
from penstock.algebra.nodes.results import IndividualResults
from penstock.algebra.nodes.rowwise import Project, Select
from penstock.algebra.nodes.sample import Sample
from penstock.algebra.nodes.scans import StreamScan
from penstock.algebra.nodes.windows import Window, WindowKind


def in_arrival_order(stream: Algebra) -> Algebra | None:
    """Return an equivalent of `stream` whose elements come as they arrived, made of its scan, or another leaf that
    tells its elements in order, selections, projections and samples; None where the elements have no order of
    arrival."""
    found = node = as_read(stream)
    while isinstance(node, Select | Project | Sample):
        node = node.input
    return found if isinstance(node, StreamScan | Frequency | Sequenced) else None


def as_read(stream: Algebra) -> Algebra:
    """`stream` without the ISTREAMs, and results of WSTREAM, over what only selects and projects another stream; itself
    where there are none."""
    if isinstance(stream, Select | Project | Sample):
        below = as_read(stream.input)
        return stream if below is stream.input else replace(stream, input=below)
    if isinstance(stream, RelationToStream) and stream.kind is StreamKind.ISTREAM:
        given = without_window(stream.input)
        return stream if given is None else as_read(given)
    if isinstance(stream, IndividualResults):
        given = without_window(stream.input, ended=True)
        return stream if given is None else as_read(given)
    return stream


def without_window(relation: Algebra, ended: bool = False) -> Algebra | None:
    """Return the stream that `relation` only selects and projects, with these operators over it; None for anything
    else. ended: its elements may end, as long as each comes when it arrives."""
    if isinstance(relation, Select | Project):
        below = without_window(relation.input, ended)
        return None if below is None else replace(relation, input=below)
    if isinstance(relation, Window) and (ended or relation.kind is WindowKind.UNBOUNDED) and relation.slide is None:
        return relation.input
    return None
