"""The data of the experiments of [tls IV] and a run of one policy over it, judged against an exact run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from penstock.arrays import Records
from penstock.shedding.accuracy import PeriodRows, coalesce, compare
from penstock.shedding.contract import Shedding
from penstock.shedding.hashing import VALUES, all_salted
from penstock.shedding.policies import POLICIES
from penstock.shedding.shedder import ArrivingTuples, Shedder

#: Values of a line of time, and the most ticks of a tuple.
DISTINCT, LONGEST = 20, 10


@dataclass(frozen=True)
class Experiment:
    """One point of a figure.

    Args:
        policy: its name.
        ratio: budget by window, r of the paper.
        continues: coalescing probability p: the next tuple of a line has the same value.
        least: θ of LENGTH >= θ, 0 for none.
        lines: of time, at once; each has values of its own.
        window: W, in tuples.
        windows: how many the stream is long; one is the paper's, more slide.
        looks: times the answer is judged, per window.
    """

    policy: str
    ratio: float
    continues: float
    least: int = 0
    lines: int = 1
    window: int = 1000
    windows: int = 1
    looks: int = 8


def stream(experiment: Experiment, seed: int) -> ArrivingTuples:
    """Return the tuples of a run: on each line one behind the other, without a gap."""
    draw = np.random.default_rng(seed)
    lines, count = experiment.lines, experiment.window * experiment.windows
    each = -(-count // lines)
    lengths = draw.integers(1, LONGEST + 1, (lines, each))
    ends = np.cumsum(lengths, axis=1)
    steps = draw.integers(1, DISTINCT, (lines, each)) * (draw.random((lines, each)) >= experiment.continues)
    values = np.cumsum(steps, axis=1) % DISTINCT + DISTINCT * np.arange(lines)[:, None]
    begins = (ends - lengths).ravel()
    order = np.argsort(begins, kind="stable")[:count]
    slots, begins, ends = values.ravel()[order], begins[order], ends.ravel()[order]
    number = np.arange(count, dtype=np.int64)
    ranks = all_salted(slots, VALUES, seed)
    clocks, expires = number, number + experiment.window
    return ArrivingTuples(slots, ranks, begins, ends, begins, clocks, expires, np.ones(count, np.int64))


def answer(rows: Records, least: int) -> PeriodRows:
    """Return the stretches of entries that pass LENGTH >= least."""
    return coalesce(PeriodRows(rows["slot"], rows["begin"], rows["end"])).at_least(least)


@dataclass(frozen=True)
class Judged:
    """What a run gave: the mean over its looks, and CPU nanoseconds per tuple."""

    accuracy: float
    coverage: float
    nanoseconds: float


def run(experiment: Experiment, seed: int) -> Judged:
    """Run one policy and an exact machine over the same tuples; judge the answers at every look."""
    arriving = stream(experiment, seed)
    made = Shedding(POLICIES[experiment.policy], experiment.least, ordered=True, compact=False, seed=seed)
    budget = round(experiment.ratio * experiment.window)
    machine, exact = Shedder(made, budget), Shedder(made, experiment.window)
    step = experiment.window // experiment.looks if experiment.windows > 1 else experiment.window
    accuracies, coverages, seconds = [], [], 0.0
    for start in range(0, len(arriving), step):
        part = arriving.part(start, start + step)
        began = time.process_time()
        machine.arrive(part)
        seconds += time.process_time() - began
        if len(exact.arrive(part).drops):
            raise AssertionError("the exact run has dropped tuples")
        if start + step < experiment.window:
            continue
        truth = answer(exact.rows(), experiment.least)
        check_exact(arriving, start + step, experiment, truth)
        found = compare(truth, answer(machine.rows(), experiment.least))
        accuracies.append(found.accuracy)
        coverages.append(found.coverage)
    return Judged(float(np.mean(accuracies)), float(np.mean(coverages)), 1e9 * seconds / len(arriving))


def check_exact(arriving: ArrivingTuples, reached: int, experiment: Experiment, truth: PeriodRows) -> None:
    """Compare the exact answer with one that is computed of the tuples of the window. Raises AssertionError."""
    live = arriving.part(max(0, reached - experiment.window), reached)
    expected = coalesce(PeriodRows(live.slots, live.begins, live.ends)).at_least(experiment.least)
    columns = (("values", "begins", "ends"), (truth, expected))
    if not all(np.array_equal(*(getattr(one, name) for one in columns[1])) for name in columns[0]):
        raise AssertionError(f"the exact run is wrong: {experiment}")


def mean(experiment: Experiment, seeds: int) -> float:
    """Return the mean accuracy over runs with different seeds."""
    return float(np.mean([run(experiment, seed).accuracy for seed in range(seeds)]))


def curve(experiment: Experiment, name: str, values: Sequence[float], seeds: int) -> list[float]:
    """Return mean accuracies over values of one parameter of an experiment."""
    return [mean(replace(experiment, **{name: value}), seeds) for value in values]


def nanoseconds(policy: str, window: int, ratio: float = 0.2) -> float:
    """Return CPU nanoseconds per arrival where every one pushes another out."""
    experiment = Experiment(policy, ratio, 0.5, window=window, windows=2, looks=1)
    run(replace(experiment, window=1000), 0)
    return run(experiment, 0).nanoseconds
