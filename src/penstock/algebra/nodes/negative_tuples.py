"""Expirations as negative tuples: the negative tuple approach to windows `[golab 2.3.3, 3.5.2]`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.algebra.nodes.base import Algebra, ArrivalTime, Keys, TimeModelWindow, Unary, has_lives
from penstock.algebra.nodes.internal import Internal
from penstock.algebra.nodes.nonretroactive import NRRJoin
from penstock.algebra.nodes.panes import needs_panes
from penstock.algebra.nodes.preferences import PreferringJoin, PreferringLookUp, PreferringSelection
from penstock.algebra.nodes.promised import PromisedJoin
from penstock.algebra.nodes.r2s import StreamKind
from penstock.algebra.nodes.results import IndividualResults, Restored
from penstock.algebra.nodes.shed import Shed
from penstock.algebra.nodes.window_sample import WindowSample
from penstock.algebra.properties.need import Needs, needs_of_relations
from penstock.algebra.properties.update_pattern import Pattern


@dataclass(frozen=True, eq=False)
class NegativeTuples(Unary):
    """The relation `input` itself. Its tuples carry no expiration: each is retracted by a negative tuple when it
    expires, so that all operators above are planned as for a strict input."""

    @property
    def needs(self) -> Needs:
        return needs_of_relations(self.inputs)

    @property
    def pattern(self) -> Pattern:
        return Pattern.STRICT

    @property
    def keys(self) -> Keys:
        return self.input.keys

    @property
    def carries_ends(self) -> bool:
        return False


def announced(node: Algebra) -> Algebra:
    """Return the plan `node` with negative tuples for every window that loses tuples, except below a stream of all
    results, or of those that RESTORE returns: these are computed from the expirations that the windows set."""
    if isinstance(node, IndividualResults | Internal) and has_lives(node.input):
        return replace(node, input=_below_windows(node.input))
    if needs_panes(node) or isinstance(node, WindowSample):
        # Panes are the elements with the same validity, of which draws are numbered.
        return _below_windows(node)
    if isinstance(node, Restored) and node.by_life and node.reported.kind is StreamKind.RSTREAM:
        reported = announced(node.reported)
        return node.with_children((reported, _below_windows(node.continual)))
    if isinstance(node, ArrivalTime):
        # It stamps the elements of its window, so what it stamped is announced.
        stamped = replace(node, input=_below_windows(node.input))
        return stamped if stamped.pattern in (Pattern.MONOTONIC, Pattern.STRICT) else NegativeTuples(stamped)
    if isinstance(node, NRRJoin):
        # Its elements meet the relation before their window ends them, so the join is announced instead of its window;
        # A strict relation retracts its own tuples.
        joined = replace(node, left=_below_windows(node.left))
        return joined if joined.pattern in (Pattern.MONOTONIC, Pattern.STRICT) else NegativeTuples(joined)
    if isinstance(node, Shed):
        # A budget is chosen by when tuples expire; what it emits has negative tuples already.
        return replace(node, input=_below_windows(node.input))
    if isinstance(node, PreferringJoin | PreferringLookUp | PreferringSelection):
        # What waits expires by the ends that windows set.
        chosen = _below_windows(node)
        return chosen if chosen.pattern is Pattern.MONOTONIC else NegativeTuples(chosen)
    if isinstance(node, PromisedJoin):
        # Rows of windows end when they leave, which a negative tuple does not tell of; what it emits is announced.
        held = _below_windows(node)
        return held if held.pattern in (Pattern.MONOTONIC, Pattern.STRICT) else NegativeTuples(held)
    changed = node.with_children(tuple(announced(c) if isinstance(c, Algebra) else c for c in node.children))
    if isinstance(changed, TimeModelWindow) and changed.pattern not in (Pattern.MONOTONIC, Pattern.STRICT):
        return NegativeTuples(changed)
    return changed


def _below_windows(node: Algebra) -> Algebra:
    """Return `node` with the streams below its windows transformed, and the windows as they are."""
    if node.is_stream:
        return announced(node)
    return node.with_children(tuple(_below_windows(c) if isinstance(c, Algebra) else c for c in node.children))
