#!/bin/sh
# Rewrites requirements.lock from pyproject.toml: exact versions and hashes, for every Python and platform we support.
# docs/decisions/set-up.md says when. The resolver lives in a folder of its own, not among the project's dependencies.
set -eu
cd "$(dirname "$0")/.."
tools=build/lock-tools
[ -x "$tools/bin/uv" ] || { python3 -m venv "$tools" && "$tools/bin/pip" install -q uv; }
"$tools/bin/uv" pip compile pyproject.toml --extra dev --universal --python-version 3.11 --generate-hashes \
    --no-emit-index-url --no-emit-find-links --no-header --no-annotate --quiet "$@" -o requirements.lock
