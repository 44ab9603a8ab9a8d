"""What a later version of the program cannot bind: what else is told of it, and how it is mended."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from control_kit import STREAM, server

from penstock.errors import ScriptErrors
from penstock.expressions import user


def doubled(values: pa.Array) -> pa.Array:
    return pc.multiply(values, 2)


def test_what_depends_on_what_cannot_be_bound_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = user.make(user.UserFunction, doubled, "INT", "doubled", ["INT"])
    monkeypatch.setitem(user.REGISTERED, made.key, made)
    with server(tmp_path) as system:
        system.done(STREAM + "CREATE VIEW w AS SELECT doubled(v) AS d FROM S; CREATE QUERY q AS SELECT d FROM w;")
    monkeypatch.delitem(user.REGISTERED, made.key)
    with server(tmp_path) as system:
        assert system.control.query("q")[1].message == "w cannot be bound: unknown function DOUBLED"
        for script in ("ALTER QUERY q RESUME;", "DESCRIBE q;", "ALTER QUERY q AS SELECT v FROM S;", "EXPLAIN QUERY q;"):
            with pytest.raises(ScriptErrors, match="q cannot be bound: w cannot be bound: unknown function DOUBLED"):
                system.run(script)
        with pytest.raises(ScriptErrors, match="w cannot be bound: unknown function DOUBLED"):
            system.run("CREATE QUERY other AS SELECT d FROM w;")
        system.done("DROP QUERY q; DROP VIEW w;")
        with pytest.raises(ScriptErrors, match="unknown stream, relation or view w"):
            system.run("CREATE QUERY other AS SELECT d FROM w;")
        system.done("CREATE VIEW w AS SELECT v AS d FROM S; CREATE QUERY q AS SELECT d FROM w;")
        assert system.status("q") == "RUNNING"
