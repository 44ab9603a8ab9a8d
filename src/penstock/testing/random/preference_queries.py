"""Random queries WITH PREFERENCE: selections, joins of two streams, streams with tables; with summaries and without."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.testing.choices import Choices
from penstock.testing.random.contract import RandomCase

_X = ("0.0", "1.5", "3.0", "2.0", "-1.0", "NULL", "NaN", "inf")
_WINDOWS = (
    "RANGE 6 SECONDS",
    "RANGE 3 SECONDS",
    "RANGE 20 SECONDS",
    "UNBOUNDED",
    "NOW",
    "RANGE 7 SECONDS SLIDE 3 SECONDS",
    "RANGE 1 SECOND SLIDE 2 SECONDS",
)
_METHODS = (
    "USING EXACT",
    "",
    "USING COUNTSKETCH (rows '3', counters '2', buckets '2', error '1')",
    "WITH COLLAPSE (2, 2) AND GRANULARITY 3 SECONDS USING EXACT (maxlength '2 SECONDS')",
    "WITH GRANULARITY 2 SECONDS AND COLLAPSE (2, 3) USING COUNTSKETCH (rows '1', counters '4', buckets '1', error '2')",
    "WITH GRANULARITY 4 SECONDS AND COLLAPSE (3, 1)",
)


@dataclass(frozen=True)
class PreferenceCase:
    """A script with one query in several forms, and its rows.

    Args:
        case: its queries are `q`; `plain`, without the clause; `unlimited`; `ample`, whose budget covers all work; and
            `more`, with a larger budget than `q` of the same kind.
        nested: whether keys do not change while entries wait: then `more` has at every instant what `q` has, where its
            budget is nowhere smaller.
    """

    case: RandomCase
    nested: bool


def random_preference(choices: Choices, several: bool = False) -> PreferenceCase:
    """Return a random query and input. several: of more than two inputs."""
    case = RandomCase()
    slack = choices.pick(("", " ORDER WITHIN 2 SECONDS"))
    clock = f"FROM MEMORY () TIMESTAMP BY at UNIT SECOND{slack}"
    case.statements += [
        f"CREATE STREAM o (at BIGINT, k INT, g INT, x DOUBLE) {clock};",
        f"CREATE STREAM p (at BIGINT, k INT, g INT, y DOUBLE) {clock};",
        "CREATE RELATION r (k INT, z DOUBLE) FROM MEMORY ();",
        "CREATE NON RETROACTIVE RELATION n (at BIGINT, op STRING, k INT, z DOUBLE) FROM MEMORY ()"
        " TIMESTAMP BY at UNIT SECOND OPERATION BY op;",
        f"CREATE SUMMARY so ON o (k) {choices.pick(_METHODS)};",
        f"CREATE SUMMARY sp ON p (k) {choices.pick(_METHODS)};",
    ]
    if several:
        case.statements += [
            f"CREATE STREAM s (at BIGINT, k INT, g INT, v DOUBLE) {clock};",
            f"CREATE SUMMARY ss ON s (k) {choices.pick(_METHODS)};",
        ]
    shape = choices.pick((_joins, _joins, _join_and_table, _tables) if several else _SHAPES)
    text, terms, estimates = shape(choices)
    count = choices.integer(1, 2)
    chosen = [choices.pick((*terms, *estimates)) for _ in range(count)]
    reads = any(term in estimates for term in chosen)
    order = choices.pick(("DESC", "ASC", "WEIGHTED"))
    fade = choices.pick(("", "", "FADE FACTOR 0.5 PER 2 SECONDS", "FADE FACTOR 0.8" if reads else "FADE FACTOR 1"))
    clause = f"{text} WITH PREFERENCE {order} {', '.join(chosen)} {fade}"
    unit = choices.pick(("PER TUPLE", "PER SECOND", "PER 3 SECONDS"))
    units = choices.integer(1, 3)
    case.statements += [
        f"CREATE QUERY q AS {clause} BUDGET {units} {unit};",
        f"CREATE QUERY more AS {clause} BUDGET {units + choices.integer(1, 3)} {unit};",
        f"CREATE QUERY ample AS {clause} BUDGET 1000000 PER TUPLE;",
        f"CREATE QUERY unlimited AS {clause} BUDGET UNLIMITED;",
        f"CREATE QUERY plain AS {text};",
    ]
    case.inputs = {
        "o": _rows(choices),
        "p": _rows(choices),
        "r": [_pair(choices) for _ in range(choices.integer(0, 4))],
        "n": _updates(choices),
    }
    if several:
        case.inputs["s"] = _rows(choices)
    return PreferenceCase(case, not several and fade in ("", "FADE FACTOR 1"))


def random_estimate(choices: Choices) -> RandomCase:
    """Return a random query with estimates over a preference `q`; `ample` and `unlimited`, the same with a budget that
    covers all work; and `sums`, with estimates but no bounds."""
    made = random_preference(choices).case
    case = RandomCase()
    case.inputs, case.statements = made.inputs, [one for one in made.statements if not one.startswith("CREATE QUERY")]
    few = choices.chance(20)
    if not few:
        # Most have a weight, and there are more of them than are done.
        case.inputs |= {name: _weighing(choices) for name in ("o", "p")}
    shape = choices.pick((_selection, _selection, _join, _join, _join, _look_up, _look_up_as_of))
    text, terms, estimates = shape(choices)
    source = text[text.index(" FROM ") :]
    chosen = [choices.pick((*terms, *estimates)) for _ in range(choices.integer(1, 2))]
    reads = any(term in estimates for term in chosen)
    both = shape is not _join or any(term in ("x * y", "o.g * y") for term in chosen)
    fades = ["", "", "FADE FACTOR 0.8" if reads else "FADE FACTOR 1"]
    fade = choices.pick((*fades, "FADE FACTOR 0.5 PER 2 SECONDS") if both else tuple(fades))
    group = choices.pick(("", "", "o.k", "o.g")) if " p " in source or "r" in source or " n" in source else ""
    value = choices.pick(("x", "o.g", "x * 0 + 1"))
    call = choices.pick(("COUNT(*)", f"COUNT({value})", f"SUM({value})", f"AVG({value})"))
    call += choices.pick(("", "", " FILTER (WHERE x > 0)"))
    confidence = choices.pick(("", ", 0.9", ", 0.5"))
    items = [
        f"ESTIMATE({call}) AS e",
        f"LOWER_BOUND(ESTIMATE({call}){confidence}) AS l",
        "COUNT(*) AS n",
        f"UPPER_BOUND(ESTIMATE({call}){confidence}) AS u",
        f"ERROR_BOUND(ESTIMATE({call}){confidence}) AS w",
    ]
    kept = [item for item in items if choices.chance(60)] or items[:1]
    by = f" GROUP BY {group}" if group else ""
    clause = f"SELECT {', '.join(kept)}, ESTIMATE(COUNT(*)) AS all_rows{source}{by} WITH PREFERENCE WEIGHTED"
    clause = f"{clause} {', '.join(chosen)} {fade}"
    unit = choices.pick(("PER TUPLE", "PER SECOND", "PER 2 SECONDS", "PER 3 SECONDS"))
    if shape is _selection and not few:
        unit = choices.pick(("PER 2 SECONDS", "PER 3 SECONDS"))
    if choices.chance(25):
        case.statements.insert(0, f"SET preference_queue = {choices.integer(1, 4)};")
    case.statements += [
        f"CREATE QUERY q AS {clause} BUDGET {choices.pick((1, 1, 2, 3))} {unit};",
        f"CREATE QUERY ample AS {clause} BUDGET 1000000 PER TUPLE;",
        f"CREATE QUERY unlimited AS {clause} BUDGET UNLIMITED;",
    ]
    others = ["COUNT(*) AS n", f"SUM({value}) AS s", "VAR_SAMP(x / 7.0) AS v", "SUM(x) FILTER (WHERE x > 1) AS f"]
    huge = f"ESTIMATE(SUM(CASE WHEN {value} > 1 THEN 1e307 * x WHEN x = 0 THEN 0e0 / 0e0 ELSE -1e300 END)) AS h"
    items = [f"ESTIMATE({call}) AS e", "ESTIMATE(COUNT(*)) AS all_rows", huge, *others]
    kept = [item for item in items if choices.chance(60)] or items[:1]
    shown = f"{group}, " if group else ""
    having = choices.pick(("", "", f" HAVING ESTIMATE({call}) > 1.5")) if group else ""
    clause = f"SELECT {shown}{', '.join(kept)}{source}{by}{having} WITH PREFERENCE WEIGHTED {', '.join(chosen)} {fade}"
    case.statements.append(f"CREATE QUERY sums AS {clause} BUDGET {choices.pick((1, 1, 2, 3))} {unit};")
    return case


def _window(choices: Choices) -> str:
    return choices.pick(_WINDOWS)


def _selection(choices: Choices) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    where = choices.pick(("", " WHERE g > 0", " WHERE k > 0 AND g > 0", " WHERE k = 1 OR k = 2"))
    text = f"SELECT k, g, x FROM o [{_window(choices)}]{where}"
    return text, ("x", "g", "x * g", "1"), ("so.Estimate.Count(k)", "SUMMARY.Estimate.Share(k) * x")


def _join(choices: Choices) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    where = choices.pick(("", " AND o.g > 0", " AND x < y", " AND o.g = p.g", " AND p.g > 0 AND o.g > 0"))
    sources = f"o [{_window(choices)}], p [{_window(choices)}]"
    text = f"SELECT o.k, x, y, o.at AS a, p.at AS b FROM {sources} WHERE o.k = p.k{where}"
    estimates = (
        "so.Estimate.Count(o.k)",
        "sp.Estimate.Count(p.k)",
        "SUMMARY.Estimate.Share(o.k) * x",
        "sp.Estimate.Count(p.k) * y",
    )
    return text, ("x", "y", "x * y", "o.g", "1"), estimates


def _joins(choices: Choices) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Draw a join of three streams: all by one key, or in a row by two, or in another order than they are written."""
    linked = choices.pick(
        (
            "o.k = p.k AND p.k = s.k",
            "o.k = s.k AND p.k = s.k",
            "o.k = p.k AND p.g = s.g",
            "o.k = p.k AND o.k = s.k AND p.g = s.g",
        )
    )
    where = choices.pick(("", " AND s.g > 0", " AND x < v", " AND x < y AND o.g > 0", " AND x < y + v"))
    sources = ", ".join(f"{name} [{_window(choices)}]" for name in ("o", "p", "s"))
    text = f"SELECT o.k, x, y, v, o.at AS a, p.at AS b, s.at AS c FROM {sources} WHERE {linked}{where}"
    estimates = ["so.Estimate.Count(o.k)", "sp.Estimate.Count(p.k)"] if "o.k = p.k" in linked else []
    if "s.k" in linked:
        estimates += ["ss.Estimate.Count(s.k)", "ss.Estimate.Share(s.k)", "ss.Estimate.Count(s.k) * v"]
    return text, ("x", "y", "v", "x * v", "1"), tuple(estimates)


def _join_and_table(choices: Choices) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    sources = f"r, o [{_window(choices)}], p [{_window(choices)}]"
    where = choices.pick(("", " AND x < z", " AND z > 0", " AND o.g = p.g"))
    text = f"SELECT o.k, x, y, z, o.at AS a, p.at AS b FROM {sources} WHERE o.k = p.k AND o.k = r.k{where}"
    return text, ("x", "y", "z", "x * z"), ("so.Estimate.Count(o.k)", "sp.Estimate.Count(p.k)")


def _tables(choices: Choices) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    where = choices.pick(("", " AND r.z < t.z", " AND x < t.z"))
    text = f"SELECT o.k, x, r.z, t.z AS u FROM r, o [{_window(choices)}], r AS t WHERE o.k = r.k AND o.g = t.k{where}"
    return text, ("x", "r.z", "t.z", "x * t.z"), ("so.Estimate.Count(o.k)", "so.Estimate.Count(o.k) * r.z")


def _look_up(choices: Choices) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    return _looked_up(choices, "r", _window(choices), "o.g > 0")


def _look_up_as_of(choices: Choices) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    return _looked_up(choices, "n", choices.pick(_WINDOWS[:5]), "o.k = n.k AND o.g > 0")


def _looked_up(
    choices: Choices, relation: str, window: str, other: str
) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Draw a join with a relation. other: a condition beside those that equate the keys."""
    sources = [f"o [{window}]", relation]
    if choices.chance(50):
        sources.reverse()
    equal = f"o.k = {relation}.k"
    where = choices.pick((equal, f"{equal} AND z > 0", f"{equal} AND x < z", other))
    text = f"SELECT o.k, x, z FROM {', '.join(sources)} WHERE {where}"
    return text, ("x", "z", "o.g"), ("so.Estimate.Count(o.k)", "so.Estimate.Count(o.k) * z")


def _rows(choices: Choices) -> list[list[str]]:
    rows, at = [], choices.pick((0, 1, 7, -5))
    for _ in range(choices.integer(0, 14)):
        at += choices.pick((0, 0, 1, 1, 2, 5))
        late = choices.pick((0, 0, 0, 1))
        rows.append(
            [str(at - late), choices.pick(("1", "2", "1", "3", "NULL")), str(choices.integer(0, 2)), choices.pick(_X)]
        )
    return rows


def _weighing(choices: Choices) -> list[list[str]]:
    rows, at = [], choices.pick((0, 7, -5))
    for _ in range(choices.integer(8, 24)):
        at += choices.pick((0, 0, 0, 1, 1, 2))
        weight = choices.pick(("0.5", "1.5", "3.0", "2.0", "10.0", "7.25", "NULL", "0.0"))
        rows.append([str(at), choices.pick(("1", "2", "1", "3")), str(choices.integer(0, 2)), weight])
    return rows


def _updates(choices: Choices) -> list[list[str]]:
    """Return insertions, and deletions of rows that are there."""
    found: list[list[str]] = []
    at, there = choices.pick((0, 1, -5)), list[list[str]]()
    for _ in range(choices.integer(0, 10)):
        at += choices.pick((0, 0, 1, 3))
        if there and choices.chance(40):
            found.append([str(at), "-", *there.pop(choices.integer(0, len(there) - 1))])
        else:
            there.append(_pair(choices))
            found.append([str(at), "+", *there[-1]])
    return found


def _pair(choices: Choices) -> list[str]:
    return [choices.pick(("1", "2", "NULL")), choices.pick(_X)]


_SHAPES = (_selection, _join, _look_up, _look_up_as_of)
