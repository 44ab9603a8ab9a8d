#!/bin/sh
# Looks for known vulnerabilities in the locked dependencies: pip-audit over requirements.lock, hashes and all, nothing
# installed. A package that nobody could look up fails it. Its tools live in a folder of their own, as those of lock.sh
# do. Needs the vulnerability service of PyPI or, with AUDIT="-s osv", that of OSV.
set -eu
cd "$(dirname "$0")/.."
tools=build/audit-tools
[ -x "$tools/bin/pip-audit" ] || { python3 -m venv "$tools" && "$tools/bin/pip" install -q pip-audit; }
exec "$tools/bin/pip-audit" --requirement requirements.lock --disable-pip --require-hashes --strict "$@"
