"""A query in the sequence model that gives each element of one stream once, read as that stream."""

from __future__ import annotations

from dataclasses import replace

from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.base.arrival_order import in_arrival_order
from penstock.algebra.nodes.frequency import Arrivals, Sequenced
from penstock.algebra.nodes.frequency_window import FrequencyWindow
from penstock.algebra.nodes.r2s import RelationToStream, StreamKind
from penstock.algebra.nodes.results import IndividualResults
from penstock.algebra.nodes.rowwise import Project, Select
from penstock.algebra.nodes.windows import unbounded


def read_sequence_as_stream(node: Algebra) -> Algebra:
    """Sequenced(Results(π(σ(W(S))))) = ISTREAM(π(σ(S [RANGE UNBOUNDED]))) for a window W that slides, over one stream.

    Law: every element is an instant, comes into W at it, and gives one result there or none; `IndividualResults`
    ignores its expiration. So the answers are those elements in the order of their arrival, which a view that selects
    and projects a stream has too (`algebra/nodes/base/arrival_order.py`). No instants need be counted, and the query
    leaves its one shard. Unsound for:
    - a window that jumps: F-th elements speak for all others;
    - a projection of a stream without an order of arrival, whose elements of one instant come in the order of their
      values: behind the projection that is another one;
    - ISTREAM in place of Results: an element of S [RANGE 1 TUPLE] that comes as an equal one goes is not in it;
    - a join: another element of the other stream gives more results.
    """
    if not isinstance(node, Sequenced) or not isinstance(node.body, IndividualResults) or len(node.streams) != 1:
        return node
    windowless = _without_window(node.body.input, node.streams[0])
    return node if windowless is None else RelationToStream(windowless, StreamKind.ISTREAM)


def _without_window(relation: Algebra, stream: Algebra) -> Algebra | None:
    if isinstance(relation, Select) or (isinstance(relation, Project) and in_arrival_order(stream) is not None):
        below = _without_window(relation.input, stream)
        return None if below is None else replace(relation, input=below)
    if isinstance(relation, FrequencyWindow) and isinstance(relation.input, Arrivals) and not relation.jumps:
        return unbounded(stream)
    return None
