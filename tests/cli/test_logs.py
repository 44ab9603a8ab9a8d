"""The log of a process: text or JSON on standard error, without secrets."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator

import pytest

from penstock.cli.logs import LogFormat, LogLevel, configure
from penstock.events import log_event, logger_of


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    root = logging.getLogger("penstock")
    before = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = before


def test_text(capsys: pytest.CaptureFixture[str]) -> None:
    configure(LogFormat.TEXT, LogLevel.INFO)
    log_event(logger_of("runtime"), logging.INFO, "batch", "batch 3 took 0.5 s", batch=3)
    log_event(logger_of("runtime"), logging.DEBUG, "detail", "too fine")
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z INFO penstock.runtime batch: batch 3 took 0.5 s\n", err)


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    configure(LogFormat.JSON, LogLevel.WARNING)
    configure(LogFormat.JSON, LogLevel.WARNING)
    log_event(logger_of("runtime"), logging.INFO, "batch", "not told")
    log_event(logger_of("runtime"), logging.WARNING, "late", "5 of 10 rows of S came late", source="S", late=5)
    try:
        raise ValueError("with 'quotes'")
    except ValueError:
        logger_of("session").exception("broken")
    out, err = capsys.readouterr()
    assert out == ""
    first, second = (json.loads(line) for line in err.splitlines())
    assert {k: v for k, v in first.items() if k != "time"} == {
        "level": "warning",
        "logger": "penstock.runtime",
        "event": "late",
        "message": "5 of 10 rows of S came late",
        "source": "S",
        "late": 5,
    }
    assert (second["logger"], second["message"], second["event"]) == ("penstock.session", "broken", None)
    assert "ValueError" in second["trace"]


def test_no_secret_gets_into_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    for form in LogFormat:
        configure(form, LogLevel.INFO)
        log_event(
            logger_of("connectors"),
            logging.INFO,
            "connected",
            "to postgresql://u:hunter2@h/db",
            password="hunter2",
            options={"token": "hunter2", "places": ["http://a:hunter2@b"]},
            text="token 'hunter2'",
        )
    out, err = capsys.readouterr()
    assert "connected" in err
    assert "hunter2" not in err + out
