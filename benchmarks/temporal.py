"""`python -m benchmarks.temporal`: the experiments of [tls IV], figures 1 to 5, and what they leave out.

    python -m benchmarks.temporal [--seeds 20] [--quick] [--write]

One line of time, 20 values, lengths 1 to 10; the next tuple continues the last one with the coalescing probability p;
budgets are parts r of a window of 1,000 tuples, and count tuples. Accuracy is judged at the end of the window against
an exact run, as a mean over seeds. The paper's sentences are judged as thresholds; where one fails the table says so.
`--write` puts tables and pictures into `benchmarks/results/temporal.md`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from benchmarks.local_harness import markdown, write_table
from benchmarks.temporal_runs import Experiment, curve, nanoseconds

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "benchmarks" / "results" / "temporal.md"
PICTURES = ROOT / "docs" / "pictures"

RATIOS = (0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
CONTINUES = (0.1, 0.3, 0.5, 0.7, 0.9, 0.98)
LEAST = (0, 2, 5, 10, 20, 40)
#: (figure, title) -> line -> accuracies
Curves = dict[str, list[float]]


@dataclass(frozen=True)
class FigureOfPaper:
    """A figure: what is varied, along which values, for which lines (name, experiment)."""

    title: str
    along: str
    values: Sequence[float]
    lines: Sequence[tuple[str, Experiment]]


def _of(policies: Sequence[str], **given: float) -> list[tuple[str, Experiment]]:
    base = Experiment("cals", given.get("ratio", 0.5), given.get("continues", 0.5), int(given.get("least", 0)))
    return [(policy, replace(base, policy=policy)) for policy in policies]


def _named(lines: Sequence[tuple[str, Experiment]], text: str) -> list[tuple[str, Experiment]]:
    return [(f"{name}, {text}", one) for name, one in lines]


def figures() -> list[FigureOfPaper]:
    """Return figures 1 to 5 of the paper."""
    both = ("cals", "random")
    return [
        FigureOfPaper(
            "Figure 1: accuracy against the memory ratio r",
            "ratio",
            RATIOS,
            [*_named(_of(both, continues=0.5), "p .5"), *_named(_of(both, continues=0.9), "p .9")],
        ),
        FigureOfPaper(
            "Figure 2: accuracy against the coalescing probability p",
            "continues",
            CONTINUES,
            [*_named(_of(both, ratio=0.2), "r .2"), *_named(_of(both, ratio=0.5), "r .5")],
        ),
        FigureOfPaper(
            "Figure 3: accuracy against θ of LENGTH >= θ",
            "least",
            LEAST,
            [
                *_named(_of((*both, "cals_q"), continues=0.5), "p .5"),
                *_named(_of((*both, "cals_q"), continues=0.8), "p .8"),
            ],
        ),
        FigureOfPaper(
            "Figure 4: the two objectives against r, p = .5",
            "ratio",
            RATIOS,
            _of(("cals_v", "cals_i", "cals", "random"), continues=0.5),
        ),
        FigureOfPaper(
            "Figure 5: the two objectives against p, r = .5",
            "continues",
            CONTINUES,
            _of(("cals_v", "cals_i", "cals", "random"), ratio=0.5),
        ),
    ]


def _text(value: float) -> str:
    return f"{value:.3f}"


def table_of(figure: FigureOfPaper, found: Curves) -> str:
    """Return the table of a figure."""
    header = [{"ratio": "r", "continues": "p", "least": "θ"}[figure.along], *(f"{value:g}" for value in figure.values)]
    return markdown(header, [[name, *map(_text, values)] for name, values in found.items()])


def judged(found: Mapping[str, Curves]) -> list[list[str]]:
    """Return the paper's sentences, the thresholds they are judged by, what was measured, and whether they hold."""
    names = list(found)
    one, two, three, four, five = (found[name] for name in names[:5])
    gains = [
        [c / r for c, r in zip(lines[f"cals, {t}"], lines[f"random, {t}"], strict=True)]
        for lines, t in ((one, "p .9"), (two, "r .5"))
    ]
    best = max(map(max, gains))
    ordered = all(
        c >= max(v, i) - 0.01 and min(v, i) >= r - 0.01
        for lines in (four, five)
        for c, v, i, r in zip(lines["cals"], lines["cals_v"], lines["cals_i"], lines["random"], strict=True)
    )
    apart = max(abs(v - i) for v, i in zip(four["cals_v"], four["cals_i"], strict=True))
    changes = max(five["cals_v"]) - min(five["cals_v"])
    half = CONTINUES.index(0.5)
    degrades = five["cals_i"][half] - five["cals_i"][-1]
    relative = [c / r for c, r in zip(three["cals, p .8"], three["random, p .8"], strict=True)]
    steady = max(relative) / max(1e-9, min(relative))
    below = [relative[k] / relative[0] for k in range(LEAST.index(10) + 1)]
    return [
        [
            "figures 1, 2: the gain approaches ten as p grows and memory shrinks",
            "largest gain ≥ 8",
            f"{best:.1f}",
            _verdict(best >= 8),
        ],
        [
            "figure 3: the relative difference does not change much with θ",
            "largest by least gain ≤ 1.5, all θ",
            f"{steady:.1f}",
            _verdict(steady <= 1.5),
        ],
        [
            "the same, θ up to 10",
            "gain within 0.7 and 1.4 of that without θ",
            f"{min(below):.2f} to {max(below):.2f}",
            _verdict(min(below) >= 0.7 and max(below) <= 1.4),
        ],
        ["figure 4: V and I are very close whatever r", "apart by ≤ 0.05", _text(apart), _verdict(apart <= 0.05)],
        ["figure 5: V changes little with p", "by ≤ 0.2", _text(changes), _verdict(changes <= 0.2)],
        ["figure 5: I degrades beyond p = .5", "falls by ≥ 0.2", _text(degrades), _verdict(degrades >= 0.2)],
        ["all: CALS highest, random lowest, V and I between", "within 0.01", "", _verdict(ordered)],
    ]


def _verdict(holds: bool) -> str:
    return "holds" if holds else "**fails**"


ALL = ("random", "newest", "value", "cals_v", "cals_i", "cals", "cals_q")


def beyond(seeds: int, continues: Sequence[float]) -> dict[str, tuple[list[str], Curves]]:
    """Return what the paper leaves out: all policies in one window, sliding, and many lines at once."""
    cases = {
        "All policies in one window, r = .2": Experiment("cals", 0.2, 0.5),
        "All policies sliding (6 windows, 8 looks each), r = .2": Experiment("cals", 0.2, 0.5, windows=6),
        "20 lines at once, sliding, r = .2": Experiment("cals", 0.2, 0.5, lines=20, windows=6),
        "100 lines at once, sliding, r = .2": Experiment("cals", 0.2, 0.5, lines=100, windows=6),
        "20 lines at once, sliding, r = .2, LENGTH >= 10": Experiment("cals", 0.2, 0.5, 10, 20, windows=6),
        "100 lines at once, sliding, r = .2, LENGTH >= 10": Experiment("cals", 0.2, 0.5, 10, 100, windows=6),
    }
    made = {}
    for title, base in cases.items():
        lines = {policy: curve(replace(base, policy=policy), "continues", continues, seeds) for policy in ALL}
        made[title] = (["p", *(f"{p:g}" for p in continues)], lines)
    return made


def costs(windows: Sequence[int]) -> str:
    """Return CPU per arrival where each pushes another out, by the window."""
    rows = [[policy, *(f"{nanoseconds(policy, window):,.0f}" for window in windows)] for policy in ALL]
    return markdown(["CPU ns per arrival, W", *(f"{window:,}" for window in windows)], rows)


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--quick", action="store_true", help="figures alone, with two values each")
    parser.add_argument("--write", action="store_true", help=f"put tables and pictures into {PAGE.name}")
    chosen = parser.parse_args(given)
    pa.set_cpu_count(1)
    found: dict[str, Curves] = {}
    for figure in figures():
        if chosen.quick:
            figure = replace(figure, values=figure.values[:2])
        found[figure.title] = {
            name: curve(one, figure.along, figure.values, chosen.seeds) for name, one in figure.lines
        }
        _show(figure.title, table_of(figure, found[figure.title]), chosen.write)
    if chosen.quick:
        return 0
    sentences = markdown(["the paper says", "judged as", "measured", ""], judged(found))
    _show("The paper's sentences", sentences, chosen.write)
    for title, (header, lines) in beyond(chosen.seeds, CONTINUES).items():
        found[title] = lines
        _show(title, markdown(header, [[n, *map(_text, values)] for n, values in lines.items()]), chosen.write)
    _show("Cost of an arrival", costs((1_000, 10_000, 100_000)), chosen.write)
    if chosen.write:
        from benchmarks import pictures

        for number, figure in enumerate(figures(), 1):
            pictures.accuracies(found[figure.title], figure.values, figure.along, PICTURES / f"temporal-{number}.svg")
    return 0


def _show(heading: str, made: str, write: bool) -> None:
    print(f"{heading}\n\n{made}\n", flush=True)
    if write:
        write_table(PAGE, f"### {heading}", made)


if __name__ == "__main__":
    sys.exit(main())
