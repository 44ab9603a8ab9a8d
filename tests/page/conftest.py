"""A browser, and servers whose page it opens."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.running import Running
from tests.server.test_live_service import ended, started
from tests.servers.debian import install

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make setup")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium without a window. It ends with its file: other tests need a loop of events of their own."""
    program = shutil.which("chromium")
    if program is None:
        install("chromium")
        program = shutil.which("chromium")
    if program is None:
        pytest.skip("no Chromium; on Debian or Ubuntu: apt-get install chromium")
    # Its sandbox does not work for root.
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_api.sync_playwright() as running:
        made = running.chromium.launch(executable_path=program, args=options)
        yield made
        made.close()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[str], Running]]:
    """Start a server with a script; it ends with the test."""
    running: list[Running] = []

    def start(script: str) -> Running:
        running.append(started(tmp_path, script))
        return running[-1]

    yield start
    for one in running:
        ended(one)


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page whose scripts must not fail, whatever it shows."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    opened = context.new_page()
    opened.set_default_timeout(60_000)
    failures: list[str] = []
    opened.on("pageerror", lambda error: failures.append(str(error)))
    opened.on("console", lambda told: failures.append(told.text) if "Content Security Policy" in told.text else None)
    yield opened
    context.close()
    assert not failures
