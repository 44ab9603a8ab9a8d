"""docs/client.md is true: its examples are executed, in order, against a server, and print what stands below them."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

from penstock.client import RowSubscription, ServerClient
from penstock.server.roles import AccessRole
from tests.server.test_live_service import ended, started

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "client.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
SCRIPT = """CREATE STREAM readings (at TIMESTAMP, room STRING, celsius DOUBLE) FROM HTTP () TIMESTAMP BY at;
CREATE RELATION rooms (room STRING, level INT) FROM MEMORY ();
INSERT INTO rooms VALUES ('hall', 0), ('attic', 2);
"""


def test_the_examples(tmp_path: Path) -> None:
    running = started(tmp_path, SCRIPT)
    names: dict[str, object] = {"token": running.texts[AccessRole.ADMIN]}
    executed = 0
    try:
        for place, (kind, text) in enumerate(BLOCKS):
            if kind != "python":
                continue
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(text.replace("http://127.0.0.1:8265", running.url), "docs/client.md", "exec"), names)
            if BLOCKS[place + 1][0] == "result":
                assert out.getvalue() == BLOCKS[place + 1][1], text
            executed += 1
    finally:
        ended(running)
    assert executed == 9


def test_every_method_is_on_the_page() -> None:
    public = [name for kind in (ServerClient, RowSubscription) for name in vars(kind) if not name.startswith("_")]
    assert [name for name in public if f"{name}(" not in PAGE and f"`{name}`" not in PAGE] == []
