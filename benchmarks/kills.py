"""Kill and restart: python -m benchmarks.kills --kills 10

Runs the demo's script once undisturbed. Then runs it again with a checkpoint, kills the whole process group (the
driver, its JVM and all workers) with SIGKILL at random moments, restarts it, and at the end compares every result file
byte for byte. Exits 1 where anything differs.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--batch", default="256KB", help="max_batch_bytes: small batches give many moments to die at")
    given = parser.parse_args()
    sys.path.insert(0, str(ROOT / "examples"))
    from prepare import prepare

    data = ROOT / "demo-results" / "data"
    prepare(data)
    text = (ROOT / "examples" / "flights.cql").read_text(encoding="utf-8").replace("demo-results/data", str(data))
    with tempfile.TemporaryDirectory(prefix="kills-") as name:
        sys.exit(0 if survive(text, Path(name), given.kills, given.seed, given.batch) else 1)


def survive(text: str, folder: Path, kills: int, seed: int, batch: str) -> bool:
    """Whether the results of a run that is killed `kills` times equal those of a run that is not. The script's
    results must lie in `demo-results`."""
    draw = random.Random(seed)
    calm = _script(text, folder, "calm")
    began = time.monotonic()
    assert _start(calm, folder / "checkpoint-calm", batch, folder / "calm.log").wait() == 0, "the calm run failed"
    length = time.monotonic() - began
    expected = _digest(folder / "calm")
    print(f"undisturbed: {length:.0f} s, {len(expected)} files", flush=True)
    rough = _script(text, folder, "rough")
    done = 0
    while True:
        before = len(list((folder / "rough").rglob("part-*")))
        process = _start(rough, folder / "checkpoint-rough", batch, folder / "rough.log")
        if done < kills and _die(process, draw, folder / "rough", before, length):
            done += 1
            files = len(list((folder / "rough").rglob("part-*")))
            print(f"kill {done}: {files} of {len(expected)} files were there", flush=True)
            continue
        if process.wait() != 0:
            print((folder / "rough.log").read_text()[-2000:])
            return False
        if done >= kills:
            break
        # It came to its end before its time: once more from the start.
        shutil.rmtree(folder / "checkpoint-rough")
        shutil.rmtree(folder / "rough")
    found = _digest(folder / "rough")
    same = found == expected
    print(f"{done} kills: results {'identical' if same else 'DIFFER'}, {len(found)} files")
    return same


def _die(process: subprocess.Popen[bytes], draw: random.Random, out: Path, before: int, length: float) -> bool:
    """Kill the process some time after it has got on; False when it ended first."""
    wait = draw.uniform(0.0, 4.0)
    deadline = time.monotonic() + 4 * length + 60
    moved: float | None = None
    # One kill in five comes before anything new is written: at start-up, or while state is restored.
    early = draw.random() < 0.2
    early_at = time.monotonic() + draw.uniform(2.0, max(3.0, length / 2))
    while process.poll() is None:
        now = time.monotonic()
        if moved is None and len(list(out.rglob("part-*"))) > before:
            moved = now
        if (moved is not None and now - moved >= wait) or (early and now >= early_at) or now >= deadline:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return True
        time.sleep(0.01)
    return False


def _script(text: str, folder: Path, name: str) -> Path:
    """The script with its results below `folder`/`name`."""
    path = folder / f"{name}.cql"
    path.write_text(re.sub(r"'demo-results/", f"'{folder / name}/", text), encoding="utf-8")
    return path


def _start(script: Path, checkpoint: Path, batch: str, log: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "penstock", "run", str(script), "--checkpoint", str(checkpoint)]
    command += ["--set", f"max_batch_bytes={batch}"]
    with log.open("ab") as output:
        return subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, start_new_session=True)


def _digest(folder: Path) -> dict[str, str]:
    """Every result file's content."""
    files = sorted(folder.rglob("part-*"))
    return {str(f.relative_to(folder)): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}


if __name__ == "__main__":
    main()
