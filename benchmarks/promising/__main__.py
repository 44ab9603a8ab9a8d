"""Promising tuples: figures 9 to 16 of `[pt 5]`, and what the summaries cost.

python -m benchmarks.promising [--seconds 300] [--seeds 3] [--quick] [--write]

Data are `promising.data.retail`; budgets are units in event time (`BUDGET n PER SECOND`), so figures 11 to 16 are the
same on every machine. They are counted by a compiled simulation of the queue (`promising.queue`) over the engine's own
summaries, as the runs make more pairs than there is time to write down; first the engine itself answers smaller ones,
and must emit what is counted. Figures 9 and 10 are CPU times.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from benchmarks.promising import engine, figures
from benchmarks.promising.costs import summaries
from benchmarks.promising.figures import Panel
from benchmarks.promising.structures import Cost

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "benchmarks" / "results" / "promising.md"
PICTURE = ROOT / "docs" / "pictures" / "promising.svg"
BEGIN, END = "<!-- figures -->", "<!-- end of figures -->"

Panels = Mapping[str, Panel]


def compared(panel: Panel, better: str, worse: str, sign: int = 1) -> str:
    """Return at which x one line is above another (sign 1), or below it (-1)."""
    ours, theirs = panel.lines[better], panel.lines[worse]
    held = [x for x, a, b in zip(panel.xs, ours, theirs, strict=True) if sign * (a - b) > 0]
    if len(held) == len(panel.xs):
        return "everywhere"
    return "nowhere" if not held else "at " + ", ".join(f"{x:g}" for x in held)


def _falling(panel: Panel, line: str) -> str:
    values = panel.lines[line]
    held = sum(b <= a for a, b in pairwise(values))
    return f"{held} of {len(values) - 1} steps"


def _gain(panel: Panel, better: str, worse: str) -> str:
    gains = [a - b for a, b in zip(panel.lines[better], panel.lines[worse], strict=True)]
    most = max(range(len(gains)), key=gains.__getitem__)
    return f"most {gains[most]:+.1f} points, at {panel.xs[most]:g}"


SHJ, LATER = "SIMPLE-SHJ", "arrival order, deferred"
CLAIMS: Sequence[tuple[str, Callable[[Panels], str], Callable[[Panels], str]]] = (
    ("11: more output than SIMPLE-SHJ, everywhere", lambda p: compared(p["11"], "PT DESC", SHJ),
     lambda p: compared(p["11"], "PT DESC", LATER)),
    ("12a: more output over the whole stream", lambda p: compared(p["12a"], "PT DESC", SHJ),
     lambda p: compared(p["12a"], "PT DESC", LATER)),
    ("12b: fresher, fade 0.8", lambda p: f"{compared(p['12b'], 'PT DESC', SHJ, -1)}; than oldest first: "
     f"{compared(p['12b'], 'PT DESC', 'SIMPLE-SHJ, oldest first', -1)}; than without fading: "
     f"{compared(p['12b'], 'PT DESC', 'PT DESC without fading', -1)}",
     lambda p: compared(p["12b"], "PT DESC", LATER, -1)),
    ("13a: more output, WEIGHTED", lambda p: compared(p["13a"], "PT WEIGHTED", SHJ),
     lambda p: compared(p["13a"], "PT WEIGHTED", LATER)),
    ("13b: smaller Hist-MSE, WEIGHTED", lambda p: compared(p["13b"], "PT WEIGHTED", SHJ, -1),
     lambda p: f"{compared(p['13b'], 'PT WEIGHTED', LATER, -1)}; drifting: "
     f"{compared(p['13b drift'], 'PT WEIGHTED', LATER, -1)}"),
    ("14a: fewer results, ASC", lambda p: compared(p["14a"], "PT ASC", SHJ, -1),
     lambda p: compared(p["14a"], "PT ASC", LATER, -1)),
    ("14b: more outliers in the output", lambda p: compared(p["14b"], "PT ASC", SHJ),
     lambda p: compared(p["14b"], "PT ASC", LATER)),
    ("(14c: more of the outliers found)", lambda p: compared(p["14c"], "PT ASC", SHJ),
     lambda p: compared(p["14c"], "PT ASC", LATER)),
    ("15a: up to 33 points more, at 100 ms", lambda p: _gain(p["15a"], "PT-Selection", "SIMPLE-Selection"),
     lambda p: _gain(p["15a"], "PT-Selection", LATER)),
    ("15b: more above 80 queries, SIMPLE below", lambda p: compared(p["15b"], "PT-Selection", "SIMPLE-Selection"),
     lambda p: compared(p["15b"], "PT-Selection", LATER)),
    ("16a: lower MSE of AVG", lambda p: compared(p["16a"], "PT WEIGHTED", "SIMPLE", -1),
     lambda p: compared(p["16a"], "PT WEIGHTED", LATER, -1)),
    ("16b: lower MSE of SUM", lambda p: compared(p["16b"], "PT DESC", "SIMPLE", -1),
     lambda p: compared(p["16b"], "PT DESC", LATER, -1)),
    ("16: MSE falls with the interarrival time (AVG; SUM)", lambda p: f"{_falling(p['16a'], 'PT WEIGHTED')}; "
     f"{_falling(p['16b'], 'PT DESC')}", lambda p: ""),
)  # fmt: skip


def claims(panels: Panels) -> Iterator[str]:
    yield "| claim of `[pt 5]` | against the paper's peer | against arrival order, deferred |"
    yield "|---|---|---|"
    for claim, judge, stronger in CLAIMS:
        yield f"| {claim} | {judge(panels)} | {stronger(panels)} |"


def costs(found: Mapping[str, Cost]) -> Iterator[str]:
    yield "| 9 a, b | t_ins, ns | t_hit, ns | tuples walked for a hit | better than T1 from, ns |"
    yield "|---|---|---|---|---|"
    first = found["T1"]
    for name, cost in found.items():
        even = "-"
        if cost.hit < first.hit and cost is not first:
            even = f"{(cost.insert * first.hit - first.insert * cost.hit) / (first.hit - cost.hit):,.0f}"
        yield f"| {name} | {cost.insert:,.0f} | {cost.hit:.1f} | {cost.walked:.1f} | {even} |"


def table(panel: Panel) -> Iterator[str]:
    yield f"**{panel.name}: {panel.title}**\n"
    yield f"| {panel.across} | " + " | ".join(f"{x:g}" for x in panel.xs) + " |"
    yield "|---|" + "---|" * len(panel.xs)
    for name, values in panel.lines.items():
        yield f"| {name} | " + " | ".join(_cell(value) for value in values) + " |"
    yield ""


def _cell(value: float) -> str:
    if value != value:
        return "none"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="few points, one seed")
    parser.add_argument("--write", action="store_true", help=f"put tables and the picture into {PAGE.name}")
    given = parser.parse_args()
    setting = figures.Setting(given.seconds, tuple(range(1, given.seeds + 1)))
    if given.quick:
        setting = replace(figures.quick(setting), seconds=min(given.seconds, 90))
    compared = engine.check(*((12, 100.0, 6, 40) if given.quick else ()))
    same = "The engine emits the pairs that are counted: " + ", ".join(
        f"{n:,} by {name}" for name, n in compared.items()
    )
    chosen = engine.check_selections(*((20,) if given.quick else ()))
    same += ". It selects the same rows at the same instants: " + ", ".join(
        f"{n:,} by {name}" for name, n in chosen.items()
    )
    first, found = figures.structural(setting)
    shown = [*first, *figures.joins(setting), *figures.selecting(setting)]
    panels = {panel.name: panel for panel in shown}
    rows = [row for panel in shown for row in table(panel)]
    budget = (
        f"Budget: {figures.budget(setting.seconds):,} units a second; {setting.seconds} s, {len(setting.seeds)} seeds."
    )
    text = "\n".join(
        [budget, f"{same}.", "", *claims(panels), "", *costs(found), "", *summaries(given.quick), "", *rows]
    )
    print(text)
    if given.write:
        from benchmarks import pictures

        pictures.panels([panel for panel in shown if panel.name not in ("13a", "14a")], PICTURE)
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        _, _, after = rest.partition(END)
        PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
