"""A view that only selects and projects a stream, read as that stream."""

from __future__ import annotations

from dataclasses import replace

from penstock.algebra.nodes.base import Algebra, TimeModelWindow
from penstock.algebra.nodes.frequency import Frequency
from penstock.algebra.nodes.restamp import Restamp


def read_view_as_stream(node: Algebra) -> Algebra:
    """W(ISTREAM(π(σ(S [RANGE UNBOUNDED])))) = W(π(σ(S))), and so with the results of WSTREAM, over any window without
    SLIDE, and for a frequency operator or windows as columns in place of W.

    Law: R gains at τ the elements of S with timestamp τ and loses nothing, so nothing cancels, and R(τ) − R(τ−1) is
    what S has at τ. Of results nothing cancels in any window. Both begin at the first element of the same sources. A
    stage less, and for a row window the order of arrival.
    Unsound for:
    - ISTREAM over any other window: an element of S [RANGE 5] that comes as an equal one goes is not in its ISTREAM;
    - S [RANGE UNBOUNDED SLIDE 5], whose ISTREAM has other timestamps than S;
    - DISTINCT, grouping or a join on the way, which do not give one tuple for one element.
    The root stays as it is: an answer is put in order by its own operator.
    """
    if not isinstance(node, TimeModelWindow | Frequency | Restamp):
        return node
    below = node.input.as_read()
    return node if below is node.input else replace(node, input=below)
