"""SET isolation: 'window', which all one-time queries have, is accepted; 'latest', which none has, is refused."""

from __future__ import annotations

import pytest

from penstock.errors import PenstockError, ScriptErrors
from penstock.session import Session
from penstock.settings import Settings

INPUT = "CREATE RELATION r (a INT) FROM MEMORY ();\nINSERT INTO r VALUES (1);\n"


@pytest.mark.parametrize("word", ["window", "WINDOW", " Window "])
def test_window_is_the_default_and_changes_no_answer(word: str) -> None:
    assert Settings()["isolation"] == "window"
    session = Session()
    session.execute(f"{INPUT}SET isolation = '{word}';")
    assert session.settings["isolation"] == "window"
    assert session.select("SELECT a FROM r").to_arrow().to_pylist() == [{"a": 1}]


def test_latest_is_refused_where_it_stands() -> None:
    session = Session()
    with pytest.raises(ScriptErrors) as caught:
        session.execute(f"{INPUT}SET isolation = 'latest';\nSELECT a FROM r;")
    (error,) = caught.value.errors
    assert error.code == "P0901" and "'latest'" in error.message
    assert error.position is not None and (error.position.line, error.position.text[error.position.column - 1 :]) == (
        3,
        "'latest';",
    )
    assert error.hint is not None and "'window'" in error.hint
    assert session.settings["isolation"] == "window", "nothing of the script has been executed"


@pytest.mark.parametrize("word", ["", "snapshot", "latests", "window, latest"])
def test_other_words_are_unknown(word: str) -> None:
    with pytest.raises(PenstockError) as caught:
        Settings().with_value("isolation", word)
    assert caught.value.code == "P0104" and "window" in caught.value.message
