"""Makes the pictures of the page in docs/pictures/page: `python scripts/screenshots.py`.

A server whose queries run in its own process gets orders of a made-up shop while Chromium, which has to be installed,
looks at its rooms. The rows are the same each time; rates and sizes are those of the machine.
"""

from __future__ import annotations

import math
import os
import random
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from penstock.cli.serve import ServeOptions, start_in_process
from penstock.client import connect
from penstock.server.addresses import Address, HostNames
from penstock.server.http.application.server import HttpServer
from penstock.server.http.door import HttpDoor
from penstock.server.limits import DoorLimits
from penstock.server.policy import ServerPolicy
from penstock.settings import Settings

PLACE = Path(__file__).parent.parent / "docs" / "pictures" / "page"
SCRIPT = """
CREATE STREAM orders (at TIMESTAMP, shop STRING, article STRING, amount DOUBLE) FROM HTTP () TIMESTAMP BY at
  RETAIN 1 HOUR;
CREATE STREAM clicks (at TIMESTAMP, shop STRING, article STRING) FROM HTTP () TIMESTAMP BY at;
CREATE RELATION shops (shop STRING, city STRING, PRIMARY KEY (shop)) FROM MEMORY ();
INSERT INTO shops VALUES ('s1', 'Oslo'), ('s2', 'Lima'), ('s3', 'Pune');
CREATE QUERY revenue AS SELECT shop, SUM(amount) AS revenue, COUNT(*) AS orders FROM orders [RANGE 5 MINUTES]
  GROUP BY shop;
CREATE QUERY large_orders AS SELECT ISTREAM(o.at, o.shop, s.city, o.amount) FROM orders [NOW] AS o, shops AS s
  WHERE o.shop = s.shop AND o.amount > 180;
CREATE QUERY bought_after_click AS SELECT c.shop, c.article, COUNT(*) AS n FROM clicks [RANGE 2 MINUTES] AS c,
  orders [NOW] AS o WHERE c.shop = o.shop AND c.article = o.article GROUP BY c.shop, c.article;
CREATE QUERY largest AS SELECT shop, MAX(amount) AS amount FROM orders [RANGE 10 MINUTES] GROUP BY shop;
CREATE QUERY quiet AS SELECT shop FROM orders [RANGE 1 MINUTE] WHERE amount < 0;
ALTER QUERY quiet PAUSE;
"""
EDITED = "CREATE QUERY per_city AS\nSELECT s.city, AVG(o.amount) AS mean\nFROM orders [RANGE 10 MINUTES] AS o, shops AS s\nWHERE o.shop = s.shop\nGROUP BY s.city"  # noqa: E501


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """A server without tokens, on a free port."""
    options = ServeOptions(folder / "checkpoint", "", script=(SCRIPT, "shop.cql"))
    service = start_in_process(options, ServerPolicy(closed=(folder / "checkpoint",)))
    address = Address("127.0.0.1", 0)
    running = HttpServer(HttpDoor(service, None, HostNames.of(address), DoorLimits.of(Settings())), address)
    try:
        yield running.url
    finally:
        running.close()
        service.close()


def rows(second: int, draws: random.Random) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the orders and clicks of a second."""
    at = f"2026-03-01 09:{second // 60 % 60:02d}:{second % 60:02d}"
    shops = [f"s{draws.randint(1, 3)}" for _ in range(12)]
    waves = {"s1": 100.0, "s2": 80.0, "s3": 60.0}
    orders = [
        {
            "at": at,
            "shop": shop,
            "article": f"a{draws.randint(1, 9)}",
            "amount": round(waves[shop] * (1.4 + math.sin(second / 60 + len(shop) + ord(shop[1]))) * draws.random(), 2),
        }
        for shop in shops[:7]
    ]
    return orders, [{"at": at, "shop": shop, "article": f"a{draws.randint(1, 9)}"} for shop in shops]


def feed(url: str, ended: threading.Event) -> None:
    """Post the rows of thirty seconds at a time."""
    draws = random.Random(7)
    with connect(url) as client:
        for begin in range(0, 3_600, 30):
            both = [rows(second, draws) for second in range(begin, begin + 30)]
            client.insert("orders", [one for orders, _ in both for one in orders])
            client.insert("clicks", [one for _, clicks in both for one in clicks])
            if ended.wait(0.4):
                return


def pictures(page: Any, url: str) -> None:
    """Look at each room."""
    number = 0

    def picture(name: str, room: str | None = None, seconds: float = 2.5) -> None:
        nonlocal number
        number += 1
        if room is not None:
            page.goto(f"{url}/#/{room}")
        time.sleep(seconds)
        page.screenshot(path=PLACE / f"{number:02d}-{name}.png")
        sys.stdout.write(f"{number:02d}-{name}\n")

    page.goto(f"{url}/#/")
    # Until it has rates, and everything is compiled.
    page.get_by_role("heading", name="CPU by query").locator("xpath=..").get_by_text("large_orders").wait_for()
    picture("overview", seconds=12)
    page.goto(f"{url}/#/queries")
    page.get_by_role("link", name="revenue").wait_for()
    picture("queries")
    page.goto(f"{url}/#/query/revenue")
    page.locator(".plan tspan").first.wait_for(state="attached")
    picture("query")
    page.locator(".plan [data-node]").nth(2).click()
    page.get_by_text("rows_in").wait_for()
    picture("operator", seconds=1.5)
    page.locator(".chart canvas").last.scroll_into_view_if_needed()
    picture("results-and-chart", seconds=2)
    page.goto(f"{url}/#/streams")
    page.get_by_role("button", name="orders").click()
    page.get_by_label("retain", exact=True).wait_for()
    picture("streams")
    page.goto(f"{url}/#/editor")
    page.get_by_label("statement").fill(EDITED.replace("s.city, AVG", "s.town, AVG"))
    page.locator(".error").wait_for()
    picture("editor-error", seconds=0.5)
    page.get_by_label("statement").fill(EDITED)
    page.get_by_text("How it can start").wait_for()
    picture("editor-verdict", seconds=0.5)
    page.get_by_label("statement").fill(
        "SELECT o.kind, o.rows_in, o.state_bytes, COUNT(*) AS queries\nFROM penstock.operators AS o, "
        "penstock.query_operators AS q\nWHERE o.id = q.operator GROUP BY o.kind, o.rows_in, o.state_bytes"
    )
    page.get_by_role("button", name="Execute").click()
    page.get_by_role("region", name="answer").wait_for(timeout=60_000)
    picture("editor-answer", seconds=0.5)
    page.get_by_label("statement").fill("SUBSCRIBE TO bought_after_click")
    page.get_by_role("button", name="Execute").click()
    page.get_by_role("region", name="rows of the subscription").wait_for()
    page.get_by_label("statement").press("Enter")
    page.get_by_label("statement").press_sequentially("SELECT r")
    picture("editor-subscription", seconds=1)
    page.keyboard.press("Escape")
    page.goto(f"{url}/#/plan")
    page.locator(".plan tspan").first.wait_for(state="attached")
    picture("plan", seconds=2)
    page.goto(f"{url}/#/settings")
    page.get_by_role("region", name="settings").wait_for()
    picture("settings", seconds=0.5)
    page.goto(f"{url}/#/commands")
    page.get_by_role("region", name="commands").get_by_text("PAUSE").wait_for()
    picture("commands")
    page.emulate_media(color_scheme="dark")
    page.goto(f"{url}/#/query/bought_after_click")
    page.locator(".plan tspan").first.wait_for(state="attached")
    picture("dark")
    page.set_viewport_size({"width": 360, "height": 740})
    page.emulate_media(color_scheme="light")
    page.goto(f"{url}/#/")
    page.get_by_role("heading", name="CPU by query").locator("xpath=..").get_by_text("large_orders").wait_for()
    picture("narrow")
    for name, room in (
        ("queries", "queries"),
        ("query", "query/revenue"),
        ("editor", "editor"),
        ("plan", "plan"),
        ("streams", "streams"),
        ("settings", "settings"),
        ("commands", "commands"),
    ):
        page.goto(f"{url}/#/{room}")
        page.locator("main h1").wait_for()
        picture(f"narrow-{name}")


def main() -> None:
    PLACE.mkdir(parents=True, exist_ok=True)
    ended = threading.Event()
    with tempfile.TemporaryDirectory() as folder, server(Path(folder)) as url, sync_playwright() as running:
        feeding = threading.Thread(target=feed, args=(url, ended))
        feeding.start()
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = running.chromium.launch(executable_path=shutil.which("chromium"), args=sandbox)
        try:
            page = browser.new_page(viewport={"width": 1280, "height": 800})
            page.set_default_timeout(120_000)
            pictures(page, url)
        finally:
            browser.close()
            ended.set()
            feeding.join()


if __name__ == "__main__":
    main()
