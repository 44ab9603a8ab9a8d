"""Measure how fluently the page draws a plan of many operators, and what it costs while nothing happens.

`python scripts/page_frames.py [operators]` starts a server in this process with so many operators in its plan (1,000
unless said otherwise) and opens the room of the plan in a headless Chromium. It prints the frames a second while the
picture is dragged, also while the figures of all nodes change twice a second, and the CPU time of the page at rest.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from penstock.client import connect
from penstock.server.roles import AccessRole
from tests.server.test_live_service import ended, started

STREAM = "CREATE STREAM readings (at TIMESTAMP, room STRING, celsius DOUBLE) FROM HTTP () TIMESTAMP BY at;"
QUERY = (
    "CREATE QUERY q{n} AS SELECT room, MAX(celsius) AS celsius FROM readings [RANGE {n} MINUTES]"
    " WHERE celsius > {n} GROUP BY room;"
)
#: Calls an action in each frame for some seconds; returns the frames a second, and the longest frame in milliseconds.
FRAMES = """(kind) => new Promise((resolve) => {
  const plan = document.querySelector('.plan'), svg = plan.querySelector('svg');
  const texts = [...svg.querySelectorAll('text.figure')];
  const where = (x) => ({ clientX: x, clientY: 300, buttons: 1, bubbles: true });
  const at = (name, x) => svg.dispatchEvent(new PointerEvent(name, where(x)));
  let frames = 0, longest = 0, last = performance.now(), written = 0;
  at('pointerdown', 400);
  const begin = last;
  const next = (now) => {
    longest = Math.max(longest, now - last);
    last = now;
    frames += 1;
    if (now - begin > 5000) { at('pointerup', 400); resolve([frames / ((now - begin) / 1000), longest]); return; }
    if (kind !== 'nothing') at('pointermove', 400 + 4 * (frames % 50));
    if (kind === 'figures too' && now - written > 500) {
      written = now;
      for (const text of texts) text.textContent = `${frames} rows`;
    }
    requestAnimationFrame(next);
  };
  requestAnimationFrame(next);
})"""


def main(operators: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        running = started(Path(folder), STREAM)
        try:
            with connect(running.url, running.texts[AccessRole.ADMIN]) as client:
                per_query = 6
                client.execute("".join(QUERY.format(n=n) for n in range(1, operators // per_query + 2)))
                client.insert("readings", [{"at": "2024-03-01 09:00:00", "room": "hall", "celsius": 500.0}])
                sql = "SELECT COUNT(*) AS n FROM penstock.operators"
                print("operators:", client.select(sql).table.to_pylist()[0]["n"])
            measure(running.url, running.texts[AccessRole.ADMIN])
        finally:
            ended(running)


def measure(url: str, token: str) -> None:
    with sync_playwright() as playwright:
        options: dict[str, Any] = {"executable_path": shutil.which("chromium"), "args": ["--no-sandbox"]}
        browser = playwright.chromium.launch(**options)
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.set_default_timeout(120_000)
        page.goto(f"{url}/#/plan")
        page.get_by_label("token").fill(token)
        began = time.monotonic()
        page.get_by_role("button", name="Sign in").click()
        page.locator(".plan svg text.figure").first.wait_for(state="attached")
        print(f"until it is drawn: {time.monotonic() - began:.1f} s")
        for kind in ("nothing", "drag", "figures too"):
            frames, longest = page.evaluate(FRAMES, kind)
            print(f"{kind}: {frames:.1f} frames a second, the longest {longest:.0f} ms")
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable")
        before = task_seconds(session)
        time.sleep(10)
        print(f"at rest: {(task_seconds(session) - before) / 10:.1%} of a core")
        browser.close()


def task_seconds(session: Any) -> float:
    """Return the seconds that the page has worked."""
    metrics = session.send("Performance.getMetrics")["metrics"]
    return float(next(one["value"] for one in metrics if one["name"] == "TaskDuration"))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000)
