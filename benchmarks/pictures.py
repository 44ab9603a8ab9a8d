"""The pictures of `csql.py`, by matplotlib. The same figures make the same file: no date, no random names in it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

_STYLE = {"svg.hashsalt": "penstock", "svg.fonttype": "none", "font.size": 9, "axes.grid": True, "grid.alpha": 0.3}
_MARKS = "osD^v*"


def ratios(found: Mapping[str, Mapping[tuple[int, int], float]], path: Path) -> None:
    """Figures 3 and 4: one panel each, one line for each length of window."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(9.5, 4.0), layout="constrained")
        for axes, (kind, values) in zip(figure.subplots(1, len(found), sharey=True), found.items(), strict=True):
            _lines(axes, values, lambda percent: f"W = {percent} % of F")
            axes.axhline(1.0, color="black", linewidth=1.0, linestyle="--", label="equal (the paper:\nalways below)")
            axes.set(title=kind, xlabel="frequency F (tuples)")
        highest = max(max(values.values()) for values in found.values())
        figure.axes[0].set_ylim(0.0, 1.1 * max(1.0, highest))
        figure.axes[0].set_ylabel("time of frequency operator / window identifiers")
        figure.axes[-1].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
        _save(figure, path)


def mixed(by_tuples: Mapping[tuple[int, int], float], by_time: Mapping[tuple[int, int], float], path: Path) -> None:
    """Figure 5, and its converse."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(9.5, 4.0), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True)
        _lines(left, by_tuples, lambda seconds: f"window {seconds} s")
        left.set(title="window in time", xlabel="frequency (tuples)", ylabel="CPU time by answer (ms)", yscale="log")
        _lines(right, by_time, lambda tuples: f"window {tuples:,} tuples")
        right.set(title="window in tuples", xlabel="frequency (ms; one tuple a ms)")
        for axes in (left, right):
            axes.legend(frameon=False)
        _save(figure, path)


def frequent(found: Mapping[bool, Mapping[tuple[int, int], Any]], titles: Any, path: Path) -> None:
    """Figure 6.3 of `[golab]`: one panel for each part; dashed lines are the thesis' bound."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(10.5, 6.0), layout="constrained")
        for axes, (name, title) in zip(figure.subplots(2, 3).flat, titles, strict=True):
            for thesis, cells in found.items():
                for number, block in enumerate(sorted({b for _, b in cells})):
                    across = sorted(k for k, b in cells if b == block)
                    label = f"b = {block}, {'thesis' if thesis else 'sharper'}"
                    style = {"linestyle": "--" if thesis else "-", "color": f"C{number}", "marker": _MARKS[number]}
                    values = [getattr(cells[k, block], name) for k in across]
                    axes.plot(across, values, markersize=3, label=label, **style)
            axes.set(title=title, xlabel="k")
        figure.axes[0].legend(frameon=False, fontsize=7)
        _save(figure, path)


def _lines(axes: Any, values: Mapping[tuple[int, int], float], name: Any) -> None:
    for number, other in enumerate(sorted({key[1] for key in values})):
        across = sorted(key[0] for key in values if key[1] == other)
        mark = _MARKS[number % len(_MARKS)]
        axes.plot(across, [values[one, other] for one in across], marker=mark, markersize=4, label=name(other))
    ticks = sorted({key[0] for key in values})
    axes.set_xscale("log")
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks], minor=False)
    axes.minorticks_off()


def _save(figure: Figure, path: Path) -> None:
    figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
    text = path.read_text(encoding="utf-8")
    path.write_text("\n".join(line.rstrip() for line in text.splitlines()) + "\n", encoding="utf-8")


def accuracies(found: Mapping[str, Any], values: Any, along: str, path: Path) -> None:
    """A figure of `temporal.py`: one line for each policy."""
    labels = {
        "ratio": "memory ratio r",
        "continues": "coalescing probability p",
        "least": "θ of LENGTH >= θ (ticks)",
    }
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(6.0, 4.0), layout="constrained")
        axes = figure.subplots()
        for number, (name, heights) in enumerate(found.items()):
            axes.plot(values, heights, marker=_MARKS[number % len(_MARKS)], markersize=4, label=name)
        axes.set(xlabel=labels[along], ylabel="accuracy", ylim=(0.0, 1.02))
        axes.legend(frameon=False, fontsize=8)
        _save(figure, path)


def panels(shown: Any, path: Path) -> None:
    """The figures of `promising` and `constraints`: one panel each, in rows of three."""
    rows = -(-len(shown) // 3)
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(12.0, 3.2 * rows), layout="constrained")
        places = list(figure.subplots(rows, 3, squeeze=False).flat)
        for axes, panel in zip(places, shown, strict=False):
            for number, (name, heights) in enumerate(panel.lines.items()):
                axes.plot(panel.xs, heights, marker=_MARKS[number % len(_MARKS)], markersize=3, label=name)
            axes.set(title=f"{panel.name}: {panel.title}", xlabel=panel.across)
            if panel.logarithmic:
                axes.set_yscale("symlog", linthresh=1.0)
            axes.title.set_fontsize(8)
            axes.legend(frameon=False, fontsize=6)
        for axes in places[len(shown) :]:
            axes.remove()
        _save(figure, path)
