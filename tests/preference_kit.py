"""Random queries WITH PREFERENCE, their worlds and shards, as the tests of preferences need them."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa

from penstock.algebra import PreferringJoin, PreferringLookUp, PreferringSelection
from penstock.algebra.nodes.base import operators
from penstock.algebra.nodes.preference_clause import Budget, BudgetKind
from penstock.algebra.nodes.query import Query
from penstock.algebra.nodes.scans import declared_sources
from penstock.language.scripts import BoundScript, bind_script
from penstock.physical.kernels.fingerprints import fingerprints
from penstock.runtime.local.runtime import LocalResult, run_local
from penstock.runtime.monitoring.metrics import RunMetrics
from penstock.runtime.monitoring.preference_metrics import PreferenceMetrics
from penstock.testing.cases import case_inputs, parse_case
from penstock.testing.definitions import Shards, World
from penstock.testing.oracle import timely_rows
from penstock.testing.preferences.kinds import simulate
from penstock.testing.preferences.simulation import Simulation
from penstock.testing.random.preference_queries import PreferenceCase, random_preference

T = TypeVar("T")
PREFERRING = PreferringJoin | PreferringLookUp | PreferringSelection


class Seeded:
    """`Choices` of a seeded generator."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def integer(self, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def pick(self, options: Sequence[T]) -> T:
        return self._random.choice(list(options))

    def chance(self, percent: int) -> bool:
        return self._random.randrange(100) < percent


def bound_preference(seed: int, several: bool = False) -> tuple[PreferenceCase, BoundScript, dict[str, pa.Table]]:
    """Return a random case, bound, with its inputs. several: of more than two inputs."""
    made = random_preference(Seeded(seed), several)
    case = parse_case(made.case.render())
    script = bind_script(case.script)
    return made, script, case_inputs(case, script)


def shards_of(count: int) -> Shards:
    """Return the shards to which the runtime's exchanges send rows."""

    def of(columns: Sequence[pa.Array], rows: int) -> list[int]:
        first, _ = fingerprints(list(columns), rows)
        return [int(shard) for shard in (first >> np.uint64(32)) % np.uint64(count)]

    return Shards(count, of)


def preferring_node(query: Query) -> PREFERRING:
    """Return the preference of a query, which has one."""
    return next(one for one in operators(query.root) if isinstance(one, PREFERRING))


def simulated(query: Query, inputs: Mapping[str, pa.Table], final: int, shards: int) -> list[Simulation]:
    """Return the simulations of a query's preference up to an instant."""
    sources = declared_sources(query.root)
    rows = {name: timely_rows(source, inputs[name]) for name, source in sources.items()}
    return simulate(preferring_node(query), World(rows, final, shards=shards_of(shards)))


def run_measured(
    query: Query, inputs: Mapping[str, pa.Table], shards: int, drain: bool, cut: int | None
) -> tuple[LocalResult, PreferenceMetrics | None]:
    """Run a query, with restarts where it is cut; return its result and the metrics at its end."""
    last: list[RunMetrics] = []
    result = run_local(
        [query], dict(inputs), shards, drain, cut, reload=cut is not None, watcher=lambda run: last.append(run)
    )
    return result, last[-1].queries[query.name].preference


def budget_of(query: Query) -> Budget:
    """Return the budget of the first operator with a preference."""
    return preferring_node(query).preference.budget


def is_nowhere_smaller(many: Budget, few: Budget, shards: int = 1) -> bool:
    """Return whether the budget `many` grants at no tick less than `few`: at each as many slots begin."""
    if few.kind is not BudgetKind.PER_TIME:
        return many.units >= few.units
    rates = (many.rate(shards), few.rate(shards))
    ticks = range(math.lcm(*(rate.denominator for rate in rates)))
    begun = [[math.floor((tick + 1) * rate) - math.floor(tick * rate) for tick in ticks] for rate in rates]
    return all(one >= other for one, other in zip(*begun, strict=True))
