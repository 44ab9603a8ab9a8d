"""Draw the pictures of docs/architecture-in-ten-minutes.md: `python scripts/architecture_pictures.py`.

What they show is taken from the project where it can be: layers are those of the architecture test, phases and what
leads from one to another those of the transition table, and the plan is drawn by `penstock.explain`. The same project
gives the same bytes; tests/test_architecture_pictures.py compares them with the files.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from penstock.control.life.transitions import Becomes, Event, verdict
from penstock.control.phases import OF_ANSWER, Beside, Phase
from penstock.explain import RenderNode, to_svg
from penstock.language.scripts import bind_script
from penstock.physical.execution.render import render_plan
from penstock.physical.planning.planner import plan_queries
from tests.test_architecture import LAYERS

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "pictures"

#: Pixels: of a box, of a letter of a path, and of a line.
WIDTH, HEIGHT, LETTER, LINE = 262, 58, 6.3, 15
#: Pixels between the left edges of neighbours in a row, and between rows.
ACROSS, DOWN, MARGIN = 318, 92, 20

LOOKS = """<style>
.back{fill:#ffffff}.box{fill:#f0f4f8;stroke:#7b8794}.other{fill:#e6f0e6;stroke:#5f8a5f}.frame{fill:none;stroke:#7b8794;
stroke-dasharray:5 4}.line{fill:none;stroke:#52606d;stroke-width:1.3}.tip{fill:#52606d}text{fill:#1f2933;font:13px
system-ui,"Segoe UI",Helvetica,Arial,sans-serif}.title{font-weight:600}.path{font:10.5px ui-monospace,Menlo,Consolas,
monospace;fill:#3e5c76}.small{font-size:11.5px;fill:#3e4c59}
@media (prefers-color-scheme:dark){.back{fill:#0d1117}.box{fill:#1c2733;stroke:#8b98a5}.other{fill:#1a2b20;stroke:
#6fa06f}.frame{stroke:#8b98a5}.line{stroke:#aab4be}.tip{fill:#aab4be}text{fill:#e6edf3}.path{fill:#9cc3e6}.small{fill:#c3ccd5}}
</style>"""


@dataclass(frozen=True)
class Box:
    """A box of a grid. column, row: its place; title: what happens; paths: below `src/penstock/`; other: outside of the
    project's own processes."""

    column: int
    row: float
    title: str
    paths: tuple[str, ...] = ()
    other: bool = False

    @property
    def x(self) -> float:
        return MARGIN + self.column * ACROSS

    @property
    def y(self) -> float:
        return MARGIN + 26 + self.row * DOWN

    def drawn(self) -> Iterator[str]:
        assert all(len(path) * LETTER <= WIDTH - 16 for path in self.paths), self.paths
        yield f'<rect class="{"other" if self.other else "box"}" x="{self.x:g}" y="{self.y:g}" width="{WIDTH}" '
        yield f'height="{HEIGHT}" rx="6"/>\n'
        first = self.y + HEIGHT / 2 + 5 - LINE * len(self.paths) / 2
        yield text(self.x + WIDTH / 2, first, self.title, "title")
        for number, path in enumerate(self.paths, 1):
            yield text(self.x + WIDTH / 2, first + LINE * number, path, "path")


def text(x: float, y: float, words: str, kind: str, anchor: str = "middle") -> str:
    """Return a line of text."""
    return f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(words)}</text>\n'


def arrow(points: Sequence[tuple[float, float]], both: bool = False) -> str:
    """Return a line through points with an arrow at its end. both: at its beginning too."""
    path = "M" + " L".join(f"{x:g} {y:g}" for x, y in points)
    tips = tip(points[-2], points[-1]) + (tip(points[1], points[0]) if both else "")
    return f'<path class="line" d="{path}"/>\n{tips}'


def tip(before: tuple[float, float], at: tuple[float, float]) -> str:
    """Return the tip of an arrow that comes from `before`, along an axis."""
    (x, y), back = at, -7 if before[0] + before[1] < at[0] + at[1] else 7
    is_level = before[1] == y
    sides = ((x + back, y - 4), (x + back, y + 4)) if is_level else ((x - 4, y + back), (x + 4, y + back))
    corners = " ".join(f"{a:g},{b:g}" for a, b in (at, *sides))
    return f'<polygon class="tip" points="{corners}"/>\n'


def between(one: Box, other: Box, both: bool = False) -> str:
    """Return the arrow from a box to its neighbour, beside or below it."""
    if one.row == other.row:
        right = one.column < other.column
        start, end = (one.x + WIDTH, other.x) if right else (one.x, other.x + WIDTH)
        return arrow([(start, one.y + HEIGHT / 2), (end, one.y + HEIGHT / 2)], both)
    middle = one.x + WIDTH / 2
    return arrow([(middle, one.y + HEIGHT), (middle, other.y)], both)


def document(title: str, width: float, height: float, parts: Sequence[str]) -> str:
    """Return a picture."""
    size = f'width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">\n<title>{escape(title)}</title>\n{LOOKS}\n'
    return f'{head}<rect class="back" width="{width:g}" height="{height:g}"/>\n{"".join(parts)}</svg>\n'


def grid(title: str, heads: Mapping[int, str], boxes: Sequence[Box], arrows: Sequence[str]) -> str:
    """Return a picture of boxes. heads: by column, what stands above it."""
    parts = [text(MARGIN + column * ACROSS + WIDTH / 2, MARGIN + 10, head, "small") for column, head in heads.items()]
    for box in boxes:
        parts += box.drawn()
    width = max(box.x for box in boxes) + WIDTH + MARGIN
    return document(title, width, max(box.y for box in boxes) + HEIGHT + MARGIN, [*parts, *arrows])


# --- layers

#: What a layer is for; small ones stand beside each other.
KNOWS = {
    "cli": "at a terminal: check, explain, run, query, shell, serve",
    "client": "a client of a server, which knows nothing of the engine",
    "server": "doors: HTTP, the page; tokens and limits",
    "pgwire": "the door of PostgreSQL's protocol; its catalogs",
    "engines": "run the queries of a control: in this process, on Spark",
    "control": "commands to a live system: declarations, log, phases of queries",
    "results": "readers of results: cursors, snapshots, one-time queries",
    "session": "for people who write Python",
    "handles": "what a session returns: queries, sources, runs",
    "runtime": "drives executors: local/, live/, spark/; state in files",
    "physical": "plans, operators over batches, their state; no Spark",
    "language": "text to algebra: statements, grammar, binder",
    "connectors": "sources and sinks, with the tables of their options",
    "algebra": "what a query means: operators, properties, rules",
    "expressions": "typed expressions, functions, aggregates",
}
BANDS = (
    ("doors", ("cli", "client", "pgwire", "server")),
    ("queries that come and go", ("engines", "control", "results")),
    ("one run", ("session", "handles", "runtime")),
    ("how a plan runs", ("physical",)),
    ("what a query means", ("language", "connectors", "algebra", "expressions")),
    ("below all", ()),
)


def layers() -> str:
    """Return the layers of folders: a module imports its own layer and those below it."""
    order = LAYERS[::-1]
    singles = [names[0] for names in order if names[0] in KNOWS]
    assert singles == [name for _, names in BANDS for name in names], "a layer has no place in the picture"
    base = [name for names in order for name in names if name not in KNOWS]
    parts, y, left, width = [], MARGIN + 6.0, MARGIN + 170, 690
    for band, names in BANDS:
        top = y
        for name in names:
            parts.append(f'<rect class="box" x="{left}" y="{y:g}" width="{width}" height="26" rx="4"/>\n')
            parts.append(text(left + 12, y + 18, name, "title", "start"))
            parts.append(text(left + 125, y + 18, KNOWS[name], "small", "start"))
            y += 31
        if not names:
            rows = [base[i : i + 8] for i in range(0, len(base), 8)]
            height = 12 + 18 * len(rows)
            parts.append(f'<rect class="box" x="{left}" y="{y:g}" width="{width}" height="{height}" rx="4"/>\n')
            for number, row in enumerate(rows):
                parts.append(text(left + 12, y + 20 + 18 * number, ",  ".join(row), "small", "start"))
            y += height + 5
        parts.append(text(left - 14, (top + y) / 2, band, "small", "end"))
        y += 9
    parts.append(arrow([(left + width + 24, MARGIN + 6), (left + width + 24, y - 14)]))
    parts.append(text(left + width + 36, MARGIN + 24, "imports", "small", "start"))
    parts.append(text(left + width + 36, MARGIN + 40, "point down", "small", "start"))
    return document("The layers of folders", left + width + 120, y + MARGIN - 10, parts)


# --- a row's way


def row_way() -> str:
    """Return the way of a row on Spark, from a source to a committed result."""
    source = Box(0, 0, "source: files, topic, table", ("connectors/sources/",), True)
    planned = Box(1, 0, "plan a round, write it down", ("runtime/spark/input/input_planner.py",))
    parsed = Box(2, 0, "read and parse", ("connectors/formats/", "runtime/spark/worker/ingest.py"))
    stamped = Box(2, 1, "stamp, find late rows", ("physical/execution/ingest.py",))
    letters = Box(3, 1, "dead letters, with the reason", ("connectors/deadletters.py",), True)
    first = Box(2, 2, "stage 0: select, window, add up", ("physical/execution/executor.py",))
    sent = Box(2, 3, "to the shard of its key", ("physical/execution/exchange.py", "runtime/spark/worker/packets.py"))
    keyed = Box(2, 4, "keyed stage: operators", ("runtime/spark/worker/stage.py", "physical/operators/"))
    state = Box(3, 4, "state of the shard, in files", ("physical/synopses/", "runtime/state/chunk_files.py"))
    answers = Box(2, 5, "answers that time has passed", ("runtime/spark/worker/answer_writer.py",))
    joined = Box(1, 5, "all shards, in order of time", ("runtime/spark/output/delivery.py",))
    sink = Box(0, 5, "sink: one commit a batch", ("connectors/sinks/",), True)
    noted = Box(1, 4, "the batch is delivered", ("runtime/spark/output/result_parts.py",))
    boxes = [source, planned, parsed, stamped, letters, first, sent, keyed, state, answers, joined, sink, noted]
    steps = [source, planned, parsed, stamped, first, sent, keyed, answers, joined, sink]
    arrows = [between(one, other) for one, other in pairwise(steps)]
    arrows += [between(stamped, letters), between(keyed, state, both=True)]
    up = noted.x + WIDTH / 2
    arrows += [
        arrow(
            [(sink.x + WIDTH / 2, sink.y), (sink.x + WIDTH / 2, noted.y + HEIGHT / 2), (noted.x, noted.y + HEIGHT / 2)]
        ),
        arrow([(up, noted.y), (up, planned.y + HEIGHT)]),
        text(up + 8, (noted.y + planned.y + HEIGHT) / 2, "then the next round", "small", "start"),
        arrow(
            [
                (parsed.x + WIDTH, parsed.y + HEIGHT / 2),
                (letters.x + WIDTH / 2, parsed.y + HEIGHT / 2),
                (letters.x + WIDTH / 2, letters.y),
            ]
        ),
        text(letters.x + WIDTH / 2 + 8, parsed.y + HEIGHT / 2 + 24, "malformed", "small", "start"),
        text((stamped.x + WIDTH + letters.x) / 2, stamped.y + HEIGHT / 2 - 6, "late", "small"),
    ]
    heads = {0: "outside", 1: "driver", 2: "workers", 3: "files"}
    return grid("A row's way, from a source to a committed result, on Spark", heads, boxes, arrows)


# --- a query's way


def query_way() -> str:
    """Return the way of CREATE QUERY at a server, from its text to its answers."""
    door = Box(0, 0, "text, at a door", ("server/http/", "pgwire/"))
    parsed = Box(1, 0, "parsed once: a script", ("server/statements/parsing.py", "language/scripts/parse.py"))
    bound = Box(2, 0, "bound: names, types, algebra", ("language/scripts/script_binder.py", "language/binder/"))
    drafted = Box(2, 1, "drafted: an event a statement", ("control/drafting/script_drafting.py",))
    reduced = Box(1, 1, "the table gives the next phase", ("control/life/changes.py", "control/life/transitions.py"))
    logged = Box(0, 1, "accepted: written to the log", ("control/transactions/accepting.py", "control/command_log.py"))
    applied = Box(0, 2, "the next version", ("control/transactions/applying.py", "control/drafting/versions.py"))
    differing = Box(1, 2, "its difference to what runs", ("control/life/reconcile.py",))
    engine = Box(2, 2, "the engine begins and ends", ("engines/in_process.py", "engines/spark.py"))
    planned = Box(
        2, 3, "optimized, planned, shared", ("algebra/optimizer/optimizer.py", "physical/planning/planner.py")
    )
    rounds = Box(1, 3, "rounds: rows in, answers out", ("runtime/live/", "runtime/spark/"))
    read = Box(0, 3, "results, at a door", ("results/reader.py",))
    boxes = [door, parsed, bound, drafted, reduced, logged, applied, differing, engine, planned, rounds, read]
    arrows = [between(one, other) for one, other in pairwise(boxes)]
    return grid("A query's way, from its text to its answers, at a server", {}, boxes, arrows)


# --- the phases of a query

#: What stands at an arrow.
WORDS = {
    Event.PAUSE: "PAUSE",
    Event.PAUSE_WITH_STATE: "PAUSE WITH STATE",
    Event.RESUME: "RESUME",
    Event.REPLACE: "AS",
    Event.REPLACE_WAIT: "AS .. WARM WAIT",
    Event.MOVE: "INTO",
    Event.ROWS_CAME: "the rows have come",
    Event.FAILED: "it fails",
    Event.CANNOT_GO_ON: "it cannot be bound, or go on",
    Event.DROP: "DROP QUERY",
}
BEGUN = frozenset({Phase.WAITING_FOR_ROWS, Phase.ANSWERING})
Edges = dict[tuple[frozenset[Phase], frozenset[Phase]], list[Event]]


def edges() -> Edges:
    """Return the events that lead from phases to phases, where nothing is computed beside the query.

    A query that begins waits for rows or answers, which is one place here; from there to there it begins anew.
    """
    found: dict[tuple[Event, frozenset[Phase]], set[Phase]] = {}
    for event in Event:
        for phase in OF_ANSWER:
            result = verdict(event, phase, Beside.NOTHING)
            if isinstance(result, Becomes) and result.phases != {phase}:
                found.setdefault((event, result.phases), set()).add(phase)
    merged: Edges = {}
    for (event, after), before in found.items():
        begun = [BEGUN] if before >= BEGUN else [{phase} for phase in before & BEGUN if not {phase} < after]
        parts = [set(OF_ANSWER)] if before | after >= set(OF_ANSWER) else [*begun, *({p} for p in before - BEGUN)]
        for part in parts:
            merged.setdefault((frozenset(part), after), []).append(event)
    return dict(sorted(merged.items(), key=lambda edge: [sorted(p.name for p in place) for place in edge[0]]))


def phases() -> str:
    """Return the phases of a query and what leads from one to another, by the transition table."""
    left, middle, right, top, low = 60.0, 410.0, 800.0, 110.0, 370.0
    width, height = 190, 50
    waiting, answering, silent, paused, failed, attention = OF_ANSWER
    places = {
        waiting: (left, top),
        answering: (middle, top),
        silent: (right, top),
        attention: (left, low),
        failed: (middle, low),
        paused: (right, low),
    }
    edge, frame_low, beyond = middle + width + 20.0, top + height + 44.0, low + height + 50.0

    def one(phase: Phase) -> frozenset[Phase]:
        return frozenset({phase})

    def up(x: float, start: float, end: float) -> Sequence[tuple[float, float]]:
        return [(x, start), (x, end)]

    every, nowhere = frozenset(OF_ANSWER), frozenset[Phase]()
    between_frames = (low + frame_low) / 2
    #: By edge, its points, and where its words stand: x, y, anchor.
    routes: dict[tuple[frozenset[Phase], frozenset[Phase]], tuple[Sequence[tuple[float, float]], float, float, str]] = {
        (one(waiting), one(answering)): (
            [(left + width, top + 25), (middle, top + 25)],
            (left + width + middle) / 2,
            top + 14,
            "middle",
        ),
        (one(answering), one(silent)): (
            [(middle + width, top + 12), (right, top + 12)],
            (edge + right) / 2,
            top + 2,
            "middle",
        ),
        (one(silent), one(answering)): (
            [(right, top + 38), (middle + width, top + 38)],
            (edge + right) / 2,
            top + 28,
            "middle",
        ),
        (one(silent), one(paused)): (up(right + 80, top + height, low), right + 90, between_frames, "start"),
        (BEGUN, one(paused)): (
            [(edge, frame_low - 14), (right + 40, frame_low - 14), (right + 40, low)],
            (edge + right) / 2,
            frame_low - 24,
            "middle",
        ),
        (one(paused), BEGUN): (
            [(right, low + 25), (edge - 14, low + 25), (edge - 14, frame_low)],
            (edge + right) / 2,
            low + 15,
            "middle",
        ),
        (one(failed), BEGUN): (up(middle + 70, low, frame_low), middle + 62, between_frames, "end"),
        (one(attention), BEGUN): (up(left + 95, low, frame_low), left + 105, between_frames, "start"),
        (every, one(failed)): (up(middle + 95, beyond, low + height), middle + 105, beyond - 22, "start"),
        (every, one(attention)): (up(left + 95, beyond, low + height), left + 105, beyond - 22, "start"),
        (every, nowhere): (up(right + 95, beyond, beyond + 44), right + 105, beyond + 24, "start"),
    }
    outer, inner = right + width - left + 80, edge - left + 20
    parts = [
        f'<rect class="frame" x="{left - 20:g}" y="{top - 52:g}" width="{inner:g}" height="{frame_low - top + 52:g}" '
        'rx="8"/>\n',
        f'<rect class="frame" x="{left - 40:g}" y="{top - 78:g}" width="{outer:g}" height="{beyond - top + 78:g}" '
        'rx="8"/>\n',
        text(right + width + 30, beyond - 10, "from every phase", "small", "end"),
    ]
    for key, events in edges().items():
        words = [WORDS[event] for event in events]
        if key == (BEGUN, BEGUN):
            again = f"{', '.join(words)}: it begins anew, with the rows that have come or when they have"
            parts.append(text(left - 8, top - 30, again, "small", "start"))
            continue
        points, x, y, anchor = routes.pop(key)
        parts.append(arrow(points))
        for number, line in enumerate(words):
            parts.append(text(x, y + 4 + LINE * (number - (len(words) - 1) / 2), line, "small", anchor))
    assert not routes, "the table has no such edge any more"
    for phase, (x, y) in places.items():
        parts.append(f'<rect class="box" x="{x:g}" y="{y:g}" width="{width}" height="{height}" rx="24"/>\n')
        parts.append(text(x + width / 2, y + 30, phase.value, "title"))
    parts.append(text(right + 95, beyond + 62, "gone", "title"))
    return document("The phases of a query", right + width + 60, beyond + 82, parts)


# --- a plan that two queries share

SCRIPT = """
CREATE STREAM readings (room STRING, celsius DOUBLE, at TIMESTAMP) FROM MEMORY () TIMESTAMP BY at;
CREATE VIEW hours AS SELECT room, COUNT(*) AS n, MAX(celsius) AS high
  FROM readings [RANGE 1 HOUR] WHERE celsius > 0 GROUP BY room;
CREATE QUERY hourly AS SELECT * FROM hours;
CREATE QUERY hot AS SELECT room, high FROM hours WHERE high > 30;
"""


def shared_plan() -> str:
    """Return the plan of two queries that share steps, drawn as `penstock explain` draws plans."""
    plan = plan_queries(bind_script(SCRIPT).queries)
    outputs = tuple(render_plan(plan, query) for query in ("hourly", "hot"))
    return to_svg([("two queries, one plan", RenderNode("two answers", (), (), outputs, "both"))])


DRAWN = {
    "architecture-layers.svg": layers,
    "architecture-row.svg": row_way,
    "architecture-query.svg": query_way,
    "architecture-phases.svg": phases,
    "architecture-shared-plan.svg": shared_plan,
}


def main() -> None:
    for name, draw in DRAWN.items():
        (PICTURES / name).write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
