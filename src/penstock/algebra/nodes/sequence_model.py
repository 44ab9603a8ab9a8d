"""The line of instants of a query in the sequence model [semantics 6].

Contract: `sequenced` builds the query of an answer whose windows are all `on_the_line`. An element that arrives is one
instant, however many windows it enters: windows that select by WHERE from one stream share one stream of the line,
which has the elements that any of them selects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.frequency import Arrivals, Sequenced
from penstock.algebra.nodes.frequency_window import FrequencyWindow
from penstock.algebra.nodes.rowwise import Select
from penstock.expressions.calls.volatile import volatile
from penstock.expressions.nodes import Call, Expression


def sequenced(answer: Algebra, rank: Callable[[Algebra], int]) -> Sequenced:
    """Return the query `answer`, a relation-to-stream operator over a relation whose windows are all `on_the_line`,
    whole. rank: the position of a stream among those of the script; at equal ones the order in the query decides."""
    on_line = _streams([window.input for window in _each_window(answer)])
    ordered = sorted(dict.fromkeys(on_line.values()), key=rank)

    def placed(node: Algebra) -> Algebra:
        if isinstance(node, FrequencyWindow):
            stream = on_line[node.input]
            arrivals = Arrivals(ordered.index(stream), stream.schema, stream.domain)
            if isinstance(node.input, Select) and stream != node.input:
                return replace(node, input=Select(arrivals, node.input.predicate))
            return replace(node, input=arrivals)
        if node.is_stream and node is not answer:
            return node
        return node.with_children(tuple(placed(c) if isinstance(c, Algebra) else c for c in node.children))

    return Sequenced(placed(answer), tuple(ordered))


def _streams(below: Sequence[Algebra]) -> dict[Algebra, Algebra]:
    """Return, for each stream below a window, the stream of the line that has its elements."""
    related: dict[Algebra, list[Algebra]] = {}
    for stream in dict.fromkeys(below):
        related.setdefault(_chosen_of(stream), []).append(stream)
    line_streams: dict[Algebra, Algebra] = {}
    for whole, streams in related.items():
        line_stream = streams[0]
        if len(streams) > 1:
            conditions = [stream.predicate for stream in streams if isinstance(stream, Select) and stream != whole]
            line_stream = whole if whole in streams else Select(whole, _any(conditions))
        line_streams |= dict.fromkeys(streams, line_stream)
    return line_streams


def _chosen_of(stream: Algebra) -> Algebra:
    """Return the stream from which a WHERE selects; one with a volatile condition is a stream of its own."""
    return stream.input if isinstance(stream, Select) and not volatile(stream.predicate) else stream


def _any(conditions: list[Expression]) -> Expression:
    result = conditions[0]
    for condition in conditions[1:]:
        result = Call(pa.bool_(), "OR", (result, condition))
    return result


def _each_window(answer: Algebra) -> Iterator[FrequencyWindow]:
    for child in answer.inputs:
        if isinstance(child, FrequencyWindow):
            yield child
        elif not child.is_stream:
            yield from _each_window(child)
