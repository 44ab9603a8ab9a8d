"""What the soaks have in common: their options, and what becomes of their folders."""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn


@dataclass(frozen=True)
class SoakOptions:
    """Options of a soak. rate: rows a second; kills_every: seconds between two kills, about; keep: its folder."""

    minutes: float
    rate: int
    seed: int
    kills_every: float
    keep: bool

    @staticmethod
    def parser(
        description: str | None, minutes: float, rate: int, rows: str, kills_every: float
    ) -> argparse.ArgumentParser:
        """Return the parser of the command line; the arguments are the defaults of its options.

        Args:
            rows: what comes at the rate, such as `rows`.
        """
        parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("--minutes", type=float, default=minutes)
        parser.add_argument("--rate", type=int, default=rate, help=f"{rows} a second; {rate}")
        parser.add_argument("--seed", type=int, default=None, help=f"of {rows} and kills; another one every time")
        parser.add_argument(
            "--kills-every", type=float, default=kills_every, help=f"seconds between two kills, about; {kills_every:g}"
        )
        parser.add_argument("--keep", action="store_true", help="leave the folder of the soak, and say where it is")
        return parser

    @staticmethod
    def of(given: argparse.Namespace) -> SoakOptions:
        """Return the options of a parsed command line."""
        seed = random.SystemRandom().randrange(10**6) if given.seed is None else given.seed
        return SoakOptions(given.minutes, given.rate, seed, given.kills_every, given.keep)

    def leave(self, folder: Path, wrong: bool) -> NoReturn:
        """End with the code of the soak. Its folder is removed unless it is to be kept, or something was wrong."""
        if self.keep or wrong:
            print(f"everything of it is in {folder}")
        else:
            shutil.rmtree(folder)
        sys.exit(1 if wrong else 0)


def end_with_what_was_started() -> None:
    """Have SIGTERM end a soak as an exit does, so that what it has started ends with it."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
