"""Random sources and queries without a clock, for tests that feed them to a system in some way."""

from __future__ import annotations

import random

from penstock.algebra import Scan, leaves
from penstock.algebra.nodes.scans import Source
from penstock.language.scripts import bind_script
from penstock.testing.cases import case_inputs, parse_case
from penstock.testing.random.worlds import FLAVOURS, RandomCase, random_case, seeded_choices

NAMES = ("q0", "q1", "q2", "q3")
FLAVOURS_WITHOUT_CLOCK = [flavour for flavour in FLAVOURS if not flavour.clock]


def case_without_clock(draw: random.Random) -> RandomCase:
    """Return a random world, of all flavours whose time does not depend on the clock, as a text case."""
    choices = seeded_choices(draw.randrange(10**9))
    flavour = choices.pick(FLAVOURS_WITHOUT_CLOCK)
    while (case := random_case(choices, flavour, NAMES)).origin:
        pass
    return case


class RandomWorld:
    """Random sources and queries without a clock, and what comes of the sources."""

    def make_world(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.case = case_without_clock(self.draw)
        bound = bind_script("\n".join(self.case.statements))
        self.inputs = case_inputs(parse_case(self.case.render()), bound)
        self.queries = [query for query in bound.queries if query.name in NAMES]
        self.sources: dict[str, Source] = {
            leaf.source.name: leaf.source for q in bound.queries for leaf in leaves(q.root) if isinstance(leaf, Scan)
        }
        self.timed = [name for name, source in self.sources.items() if not source.is_static]
