"""Start of the Spark session while the main thread still reads the script.

Contract: needs the standard library until the session's own thread runs; the thread loads pyspark.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from penstock.runtime.spark.startup.jvm import await_session


def start_session_ahead(master: str | None, settings: Mapping[str, str]) -> None:
    """Start the session in a thread of its own, while this one, the main one, imports and does something else."""
    future = await_session(master, settings)

    def start() -> None:
        try:
            from penstock.runtime.spark.startup.session import start_now

            future.set_result(start_now(master, None, settings))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=start, name="penstock-spark", daemon=True).start()
