"""The join of Orders and Fulfilments under promises: what it holds, what it costs, and whether its answer is right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.constraints.data import IN_ORDER, Disorder, Flags, Ints, Traffic, answered, traffic
from benchmarks.constraints.watching import Moment, Watch, check
from benchmarks.local_harness import Measured, measure
from benchmarks.paired import Pairs
from penstock.language.scripts import bind_script
from penstock.testing.oracle import run_oracle

#: The longest rounds, in ms: about 7,000 rows each. Short runs have at least so many rounds.
STEP = 100_000
_ROUNDS = 40
_UNIQUE = "UNIQUE (id, item)"
_REFERENCE = "FOREIGN KEY (id, item) REFERENCES O WITHIN {k} ROWS"
_CLUSTERED = "CLUSTERED BY (id) WITHIN {k} ROWS"
_ORDERED = "ORDERED BY (id) WITHIN {k} ROWS"


@dataclass(frozen=True)
class Kind:
    """A choice of promises.

    Args:
        orders, fulfilments: the promises of O and F, with {k}.
        disorder: how far rows are out of order; its `apart` and `behind` are k where they are not 0.
        waiting: share of the open orders of a run.
    """

    title: str
    orders: str = ""
    fulfilments: str = ""
    disorder: Disorder = IN_ORDER
    waiting: float = 1.0

    def rows(self, count: int, waiting: int, k: int, late: float = 0.0, seed: int = 1) -> Traffic:
        """Return rows that keep the promises, but for a share of late ones: orders where the promise is a reference,
        else fulfilments."""
        apart, behind = (k if there else 0 for there in (self.disorder.apart, self.disorder.behind))
        disorder = replace(self.disorder, apart=apart, behind=behind)
        disorder = replace(disorder, late_orders=late) if self.disorder.behind else replace(disorder, late=late)
        return traffic(count, max(1, round(waiting * self.waiting)), disorder, seed)

    def script(self, k: int, windows: tuple[str, str] = ("", "")) -> str:
        """Return the join over both streams; windows: of O and F."""
        streams = (("O", self.orders), ("F", self.fulfilments))
        declared = (
            f"CREATE STREAM {name} (t BIGINT, id BIGINT, item BIGINT) FROM MEMORY () "
            f"TIMESTAMP BY t UNIT MILLISECOND {promises.format(k=k)};"
            for name, promises in streams
        )
        text = (
            f"SELECT O.id, O.item, F.t AS at FROM O {windows[0]}, F {windows[1]} WHERE O.id = F.id AND O.item = F.item"
        )
        return "\n".join([*declared, f"CREATE QUERY q AS {f'ISTREAM({text})' if any(windows) else text};"])

    def answered(self, rows: Traffic, k: int) -> tuple[Ints, Flags]:
        """Return by fulfilment the instant of its answer, and whether it is answered, by definition."""
        given = {
            "clustered": k if _CLUSTERED in self.fulfilments else None,
            "ordered": k if _ORDERED in self.fulfilments else None,
            "reference": k if _REFERENCE in self.fulfilments else None,
        }
        return answered(rows, **given)


#: Each promise alone ends the rows of one side; `mixed` has those of the paper's example.
KINDS: Mapping[str, Kind] = {
    "none": Kind("no promise", disorder=Disorder(apart=1)),
    "unique": Kind("UNIQUE of O", _UNIQUE, disorder=Disorder(apart=1)),
    "reference": Kind("UNIQUE of O, FOREIGN KEY of F WITHIN k", _UNIQUE, _REFERENCE, Disorder(behind=1), 0.02),
    "clustered": Kind("CLUSTERED of F WITHIN k", "", _CLUSTERED, Disorder(apart=1)),
    "ordered": Kind("ORDERED of F WITHIN k", "", _ORDERED, Disorder(apart=1, in_turn=True)),
    "mixed": Kind(
        "UNIQUE, FOREIGN KEY and CLUSTERED WITHIN k",
        _UNIQUE,
        f"{_REFERENCE} {_CLUSTERED}",
        Disorder(apart=1, behind=1),
    ),
}


@dataclass(frozen=True)
class Outcome:
    """A run.

    Args:
        moments: rounds from the filling of the state until the last order.
        open_orders, open_rows: at these moments, how many orders were open, and how many rows they have.
        complete: share of the answer without promises that was emitted.
    """

    measured: Measured
    moments: Sequence[Moment]
    open_orders: Ints
    open_rows: Ints
    complete: float

    def mean(self, name: str) -> float:
        return float(np.mean([getattr(moment, name) for moment in self.moments]))

    @property
    def worst(self) -> float:
        """Return the greatest ratio of rows held, of all kinds, to the rows of open orders."""
        return float(max(m.rows / max(1, rows) for m, rows in zip(self.moments, self.open_rows, strict=True)))


def step_of(last: int, longest: int = STEP) -> int:
    """Return the length of the rounds of a run, in ms. last: the last order."""
    return max(1, min(longest, last // _ROUNDS))


def run(kind: Kind, rows: Traffic, k: int, warm: float = 0.25, longest: int = STEP) -> Outcome:
    """Run the join.

    Args:
        warm: the part of the time after which it is measured.
        longest: rounds, in ms, at most.

    Raises:
        AssertionError: the answer is not that of the definition.
    """
    last = int(rows.orders.t[-1])
    watch = Watch(last)
    found = measure(kind.script(k), rows.inputs(), step=step_of(last, longest), warm=int(warm * last), each=watch)
    instants, there = kind.answered(rows, k)
    check(found, rows.of_answer(there), instants[there])
    ends = np.array([moment.at - 1 for moment in watch.moments], np.int64)
    return Outcome(found, watch.moments, *rows.open_at(ends), float(there.mean()))


def check_by_oracle(kind: Kind, rows: Traffic, k: int) -> None:
    """Compare what is used here as definition with the oracle."""
    (query,) = bind_script(kind.script(k)).queries
    instants, there = kind.answered(rows, k)
    f = rows.fulfilments
    ours = sorted(zip(*(values[there].tolist() for values in (instants, f.id, f.item, f.t)), strict=True))
    theirs = sorted((ts, *row) for ts, _, row in run_oracle(query, rows.inputs()).events)
    if ours != theirs:
        raise AssertionError(f"{kind.title}, k = {k}: {len(ours)} rows by definition, {len(theirs)} by the oracle")


@dataclass(frozen=True)
class Compared:
    """A promise beside a window. pairs: CPU microseconds a row, the window first; rows, bytes: of both."""

    pairs: Pairs
    rows: tuple[float, float]
    bytes: tuple[float, float]


def beside_a_window(rows: Traffic, k: int, repetitions: int, both: bool, longest: int = STEP) -> Compared:
    """Measure the promised join and the same in a window that holds as many rows, in turn.

    Args:
        both: half of the window's rows are those of F; else F is NOW, and all are those of O.
        longest: rounds, in ms, at most.
    """
    kind = KINDS["mixed"]
    last = int(rows.orders.t[-1])
    promised = run(kind, rows, k, longest=longest)
    width = int(promised.mean("orders") / (len(rows.orders) / last))
    windows = (f"[RANGE {width // 2} MILLISECONDS]",) * 2 if both else (f"[RANGE {width} MILLISECONDS]", "[NOW]")
    age = rows.fulfilments.t - rows.orders.t[rows.parents]
    there = np.abs(age) < width // 2 if both else (age >= 0) & (age < width)
    instants = np.maximum(rows.orders.t[rows.parents], rows.fulfilments.t)
    text = KINDS["none"].script(k, (windows[0], windows[1]))
    sides: tuple[list[float], list[float]] = ([], [])
    watch = Watch(last)
    for number in range(repetitions):
        watch = Watch(last)

        def windowed(watch: Watch = watch) -> float:
            found = measure(text, rows.inputs(), step=step_of(last, longest), warm=last // 4, each=watch)
            check(found, rows.of_answer(there), instants[there])
            return found.micros

        def promising() -> float:
            return run(kind, rows, k, longest=longest).measured.micros

        if number % 2:
            sides[1].append(promising())
            sides[0].append(windowed())
        else:
            sides[0].append(windowed())
            sides[1].append(promising())
    window = Outcome(promised.measured, watch.moments, promised.open_orders, promised.open_rows, 1.0)
    return Compared(
        Pairs(*sides), (window.mean("rows"), promised.mean("rows")), (window.mean("bytes"), promised.mean("bytes"))
    )
