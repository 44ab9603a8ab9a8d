"""Rule 7: rows leave that a punctuation of the other side names.

Law: after a punctuation all of whose columns are compared, no element of its side comes that fulfils it; a row of the
other side that has such values finds no further partner, and leaves. What it says of the values of one side holds of
the equal ones of the other.

Counter-example: a punctuation over a column that is not compared says nothing of the other side: C punctuated by a = 1
AND d = 2, P joined on a alone, P 1:1 still meets C 2:(1, 3).
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.algebra.nodes.promised import Leaving
from penstock.algebra.optimizer.rules.constraints.pairs import ComparedInputs
from penstock.algebra.properties.promises import Punctuated


def leaving_by_punctuations(inputs: ComparedInputs) -> Iterator[Leaving]:
    """Yield why rows leave that punctuations of the other side name."""
    for side in (0, 1):
        partners = {theirs: mine for mine, theirs in sorted(inputs.exchanged(side), reverse=True)}
        for promise in inputs.sides[1 - side].promises:
            over = promise.over(partners) if isinstance(promise.promise, Punctuated) else None
            if over is not None:
                yield Leaving(side, over, tuple(partners[c] for c in over.columns), over.slide, over.align)
