"""The command `penstock`, also `python -m penstock`.

Ctrl-C while its modules are still being loaded ends it at once, without a traceback.
"""

from __future__ import annotations

import os
import signal
from types import FrameType


def main() -> None:
    handler = signal.signal(signal.SIGINT, _end)
    from penstock.cli.main import main as run_command

    signal.signal(signal.SIGINT, handler)
    try:
        run_command()
    except KeyboardInterrupt:
        # Before a command began, which handles it from then on.
        os._exit(128 + signal.SIGINT)


def _end(number: int, _frame: FrameType | None) -> None:
    os._exit(128 + number)


if __name__ == "__main__":
    main()
