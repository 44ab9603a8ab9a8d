"""Plans as SVG: well-formed, every node and edge once, texts of any kind, without scripts, fast for large plans."""

from __future__ import annotations

import json
import re
import time
import xml.etree.ElementTree as ET
from collections import Counter
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import PenstockError
from penstock.explain import RenderNode, to_json, to_svg
from penstock.session import Session

SVG = "{http://www.w3.org/2000/svg}"
Box = tuple[float, float, float, float]


def parsed(text: str) -> ET.Element:
    root = ET.fromstring(text)
    assert root.tag == f"{SVG}svg"
    return root


def nodes(root: ET.Element, plan: int = 0) -> list[str]:
    found = [one.get("data-node", "") for one in root.iter(f"{SVG}g") if one.get("data-node")]
    return [one.partition(":")[2] for one in found if one.startswith(f"{plan}:")]


def edges(root: ET.Element, plan: int = 0) -> Counter[tuple[str, str]]:
    found = ((one.get("data-from"), one.get("data-to")) for one in root.iter(f"{SVG}path"))
    pairs = ((a.partition(":")[2], b.partition(":")[2]) for a, b in found if a and b and a.startswith(f"{plan}:"))
    return Counter(pairs)


def expected(tree: RenderNode) -> tuple[set[str], Counter[tuple[str, str]]]:
    """Return the nodes and edges that JSON has of a plan, with the result above it."""
    plan = json.loads(to_json(tree))
    counted = Counter((entry["node"], node["id"]) for node in plan["nodes"] for entry in node["inputs"])
    return {node["id"] for node in plan["nodes"]} | {"result"}, counted + Counter({(plan["root"], "result"): 1})


def check(tree: RenderNode) -> ET.Element:
    root = parsed(to_svg([("plan", tree)]))
    ids, counted = expected(tree)
    drawn = nodes(root)
    assert len(drawn) == len(ids) and set(drawn) == ids
    assert edges(root) == counted
    found = boxes(root)
    for one, other in combinations(found, 2):
        assert apart(one, other), (one, other)
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    assert all(x >= 0 and y >= 0 and x + w <= width and y + h <= height for x, y, w, h in found)
    return root


def boxes(root: ET.Element) -> list[Box]:
    """Return left, top, width and height of each node, in the plan's own place."""
    rects = (one.find(f"{SVG}rect") for one in root.iter(f"{SVG}g") if one.get("data-node"))
    return [
        (float(r.get("x", 0)), float(r.get("y", 0)), float(r.get("width", 0)), float(r.get("height", 0)))
        for r in rects
        if r is not None
    ]


def apart(one: Box, other: Box) -> bool:
    return (
        one[0] + one[2] <= other[0]
        or other[0] + other[2] <= one[0]
        or one[1] + one[3] <= other[1]
        or other[1] + other[3] <= one[1]
    )


def node(id_: str, *children: RenderNode, label: str = "Step", **parameters: str) -> RenderNode:
    return RenderNode(label, tuple(parameters.items()), (("pattern", "WKS"), ("key", "-")), children, id_)


def test_a_shared_node_is_drawn_once_with_all_its_edges() -> None:
    scan = node("2", source="conn")
    window = node("1", scan, window="RANGE 10 SECOND")
    root = check(node("0", window, window, on="a < b"))
    assert edges(root)["1", "0"] == 2, "a join with itself has two inputs"
    check(node("0", window, node("3", window), scan))


def test_data_flows_upward() -> None:
    tree = node("0", node("1", node("2")), node("3"))
    tops = {}
    for group in parsed(to_svg([("plan", tree)])).iter(f"{SVG}g"):
        rect = group.find(f"{SVG}rect")
        if group.get("data-node") and rect is not None:
            tops[group.get("data-node", "").partition(":")[2]] = float(rect.get("y", 0))
    assert tops["result"] < tops["0"] < tops["1"] < tops["2"] and tops["1"] == tops["3"]


@pytest.mark.parametrize(
    "text",
    ["a < b & \"c\" > 'd'", "</text><script>alert(1)</script>", "]]><!-- ", "&lt;&#0;", "\x00\x1b\ud800\ufffe",
     "日本" * 200, "e\u0301" * 300, "\u202e right", "a" * 100_000, "x\ny\tz", ""],
)  # fmt: skip
def test_texts_of_any_kind(text: str) -> None:
    edge = (("pattern", text), ("key", "-"))
    tree = RenderNode(text, (("on", text), (text, "b")), edge, (node("1", label=text, source=text),), "0", ((text, 5),))
    svg = to_svg([(text, tree)])
    root = parsed(svg)
    assert not list(root.iter(f"{SVG}script"))
    assert len(nodes(root)) == 3
    width = max((box[2] for box in boxes(root)), default=0)
    assert width < 1_000, "long texts are cut"
    whole = [one.text or "" for one in root.iter(f"{SVG}title")]
    legal = re.sub("[\x00\x1b\ud800\ufffe]", "\ufffd", text)
    assert any(f"source: {legal}" in one for one in whole) or not text, "all of it stands in the title"


def test_it_needs_nothing_from_elsewhere() -> None:
    svg = to_svg([("plan", node("0", node("1")))])
    assert re.findall(r"(?:href|src|url|style|class|on\w+)\s*[=(]", svg) == []
    assert re.findall(r"https?://[^\"]*", svg) == ["http://www.w3.org/2000/svg"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 1_000), max_size=4), min_size=1, max_size=25))
def test_random_plans(links: list[list[int]]) -> None:
    """Each node reads some of those after it; the first reads all that nobody reads."""
    made: dict[int, RenderNode] = {}
    last = len(links) - 1
    for i in range(last, -1, -1):
        read = [i + 1 + link % (last - i) for link in links[i]] if i < last else []
        made[i] = node(str(i), *(made[j] for j in read), on="x" * (links[i][0] if links[i] else 0))
    unread = set(range(1, last + 1)) - {int(c.id) for one in made.values() for c in one.children}
    first = made[0]
    tree = RenderNode(first.label, first.parameters, first.edge, (*first.children, *(made[j] for j in unread)), "0")
    check(tree)


@pytest.mark.parametrize("shape", ["chain", "fan", "all read the scan"])
def test_a_plan_of_300_nodes_is_drawn_fast(shape: str) -> None:
    scan = node("scan")
    tree = scan
    if shape == "fan":
        tree = node("top", *(node(str(i), scan, on="x" * 60) for i in range(298)))
    else:
        for i in range(299):
            tree = node(str(i), tree, scan) if shape != "chain" else node(str(i), tree)
    began = time.process_time()
    svg = to_svg([("plan", tree)])
    assert time.process_time() - began < 2
    assert len(svg) < 1_000_000
    root = parsed(svg)
    assert len(nodes(root)) == 301
    assert edges(root) == expected(tree)[1]


SCRIPT = """
CREATE STREAM `s<&"'` (ts INT, `a<b` INT, k INT) FROM MEMORY () TIMESTAMP BY ts;
CREATE QUERY q AS SELECT x.`a<b`, COUNT(*) AS `n"&` FROM `s<&"'` [RANGE 5 SECONDS] AS x, `s<&"'` [RANGE 9 SECONDS] AS y
  WHERE x.k = y.k AND x.`a<b` > 3 GROUP BY x.`a<b`;
"""


def test_the_plans_of_a_query() -> None:
    session = Session()
    session.execute(SCRIPT)
    plans = json.loads(session.explain("q", "json"))
    root = parsed(session.explain("q", "drawn"))
    for number, kind in enumerate(("logical", "physical")):
        assert set(nodes(root, number)) == {one["id"] for one in plans[kind]["nodes"]} | {"result"}
        count = sum(len(one["inputs"]) for one in plans[kind]["nodes"])
        assert sum(edges(root, number).values()) == count + 1
    with pytest.raises(PenstockError) as caught:
        session.explain("q", "drawing")
    assert caught.value.code == "P0104" and "drawn" in (caught.value.hint or "")


def test_what_an_edge_says_is_not_cut_off() -> None:
    session = Session()
    session.execute("""CREATE STREAM S (at TIMESTAMP, shop STRING, v INT) FROM MEMORY () TIMESTAMP BY at;
      CREATE QUERY q INTO MEMORY () AS SELECT shop, SUM(v) AS v FROM S [RANGE 5 MINUTES] GROUP BY shop;""")
    root = parsed(session.explain("q", "drawn"))
    edge = next(one for one in root.iter(f"{SVG}text") if "shuffle by (shop)" in "".join(one.itertext()))
    plan = next(one for one in root.iter(f"{SVG}g") if edge in list(one.iter()) and one.get("transform"))
    moved = float(re.findall(r"[0-9.]+", plan.get("transform", ""))[0])
    text = [*edge.itertext()][-1]
    assert moved + float(edge.get("x", "")) + 6.6 * len(text) < float(root.get("width", ""))
