"""How a render tree is drawn: text, JSON and Mermaid, with awkward texts, long lines and shared nodes."""

from __future__ import annotations

import json

from penstock.explain import WIDTH, RenderNode, to_json, to_mermaid, to_text

SCAN = RenderNode("StreamScan", (("source", "conn"),), (("pattern", "MON"), ("key", "-")), (), "2")
WINDOW = RenderNode("Window", (("window", "RANGE 10 SECOND"),), (("pattern", "WKS"), ("key", "-")), (SCAN,), "1")
JOIN = RenderNode("Join", (("on", 'a < b AND c = "x"'),), (("pattern", "WK"), ("key", "(k)")), (WINDOW, WINDOW), "0")


def test_text() -> None:
    assert to_text(JOIN).splitlines() == [
        "plan                                     pattern  key",
        'Join  on: a < b AND c = "x"              WK       (k)',
        "├─ Window (#1)  window: RANGE 10 SECOND  WKS      -",
        "│  └─ StreamScan  source: conn           MON      -",
        "└─ Window (as #1 above)                  WKS      -",
    ]


def test_json_holds_a_shared_node_once() -> None:
    assert json.loads(to_json(JOIN)) == {
        "format": 1,
        "root": "0",
        "edge": {"pattern": "WK", "key": "(k)"},
        "nodes": [
            {
                "id": "0",
                "label": "Join",
                "parameters": {"on": 'a < b AND c = "x"'},
                "inputs": [
                    {"node": "1", "edge": {"pattern": "WKS", "key": "-"}},
                    {"node": "1", "edge": {"pattern": "WKS", "key": "-"}},
                ],
            },
            {
                "id": "1",
                "label": "Window",
                "parameters": {"window": "RANGE 10 SECOND"},
                "inputs": [{"node": "2", "edge": {"pattern": "MON", "key": "-"}}],
            },
            {"id": "2", "label": "StreamScan", "parameters": {"source": "conn"}, "inputs": []},
        ],
    }


def test_mermaid_holds_a_shared_node_once_and_escapes() -> None:
    assert to_mermaid([("a < b", JOIN)]) == (
        "flowchart BT\n"
        '  subgraph plan0["a #60; b"]\n'
        '  p0n0["<b>Join</b><br/>on: a #60; b AND c = #34;x#34;"]\n'
        '  p0n1["<b>Window</b><br/>window: RANGE 10 SECOND"]\n'
        '  p0n2["<b>StreamScan</b><br/>source: conn"]\n'
        '  p0result(["result"])\n'
        '  p0n1 -->|"WKS"| p0n0\n'
        '  p0n1 -->|"WKS"| p0n0\n'
        '  p0n2 -->|"MON"| p0n1\n'
        '  p0n0 -->|"WK · (k)"| p0result\n'
        "  end\n"
    )


def test_mermaid_escapes_what_would_end_a_text() -> None:
    node = RenderNode("Select", (("predicate", "a LIKE '%;\"]`|#' \n AND {b} & c > 1"),), (), (), "end")
    line = to_mermaid([("plan", node)]).splitlines()[2]
    body = line.removeprefix('  p0n0["<b>Select</b><br/>predicate: ').removesuffix('"]')
    assert not set(body) & set('"<>`|{}&')
    assert "\n" not in body


def test_long_texts_are_wrapped_under_their_node() -> None:
    columns = ", ".join(f"column_{i}" for i in range(40))
    deep: RenderNode = RenderNode("Scan", (("columns", columns),), (("pattern", "MON"),), (), "leaf")
    for depth in range(6):
        deep = RenderNode("Project", (("columns", columns),), (("pattern", "MON"),), (deep,), str(depth))
    lines = to_text(deep).splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert sum("MON" in line for line in lines) == 7
    assert columns.split(", ")[-1] in lines[-1]


def test_a_tree_without_edges_has_no_heading() -> None:
    bare = RenderNode("Scan", (("source", "s"),), (), (), "0")
    assert to_text(bare) == "Scan  source: s\n"
