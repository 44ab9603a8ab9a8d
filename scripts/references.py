"""Replace references to documents outside the repository by citations of its own pages.

`python scripts/references.py` rewrites the files; `scripts/structure.py` counts what is left. Running it again changes
nothing.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("src", "tests", "benchmarks", "examples", "docs")
SUFFIXES = (".py", ".md", ".cqltest", ".txt", ".sh")
#: The names of the documents are put together, so that this file does not refer to them itself.
PAGE, PLAN = "LANG" + "UAGE", "DES" + "IGN"
SECTION = r"\d(?:\.\d)?"
SECTIONS = rf"(?:{SECTION})(?:(?:, (?:and )?| and | or | to )(?:{SECTION}))*(?![\d.]*\d)"
#: Section of the design -> the section of a page of `docs/`.
PLAN_SECTIONS = {"1": "[semantics 2]", "3": "docs/architecture.md, Runtimes"}


def rewrite(text: str) -> str:
    """Return `text` with its references replaced."""
    text = re.sub(rf"\({PAGE} ({SECTIONS})\)", r"[semantics \1]", text)
    text = re.sub(rf"\b{PAGE} ({SECTIONS})", r"[semantics \1]", text)
    text = re.sub(rf"\b{PAGE}(?:\.md)?(?=[ ,.;:)])", "docs/semantics.md", text)
    text = re.sub(rf"\({PLAN} 1\)", PLAN_SECTIONS["1"], text)
    return re.sub(rf"\b{PLAN} ([13])\b", lambda match: PLAN_SECTIONS[match[1]], text)


def main() -> None:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix not in SUFFIXES:
                continue
            before = path.read_text(encoding="utf-8")
            after = rewrite(before)
            if after != before:
                path.write_text(after, encoding="utf-8")
                print(path.relative_to(ROOT))
                for line in after.splitlines():
                    if len(line) > 120 and "[semantics" in line and path.suffix == ".py":
                        print(f"    longer than 120 characters: {line.strip()}")


if __name__ == "__main__":
    main()
