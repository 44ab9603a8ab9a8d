#!/bin/sh
# Makes .venv ready: Python 3.11+, the locked dependencies, this package (editable), and a Java for Spark.
# Quick when nothing changed: the stamp names the lock, the project file and the Python they were installed for.
set -eu
cd "$(dirname "$0")/.."
venv=.venv
stamp=$venv/.penstock-setup

say() { printf '%s\n' "$*"; }
fail() { printf 'set-up: %s\n' "$*" >&2; exit 1; }

can_apt() { [ "$(id -u)" = 0 ] && [ -e /etc/debian_version ] && command -v apt-get >/dev/null 2>&1; }

apt_install() {
    say "set-up: installing $1 with apt"
    export DEBIAN_FRONTEND=noninteractive
    apt-get install -y -q --no-install-recommends "$1" </dev/null >"$log" 2>&1 && return 0
    apt-get update -q </dev/null >"$log" 2>&1 || true
    apt-get install -y -q --no-install-recommends "$1" </dev/null >"$log" 2>&1 && return 0
    tail -n 5 "$log" >&2
    return 1
}

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() {
    for candidate in ${PYTHON:-} python3.11 python3.12 python3.13 python3.14 python3; do
        if new_enough "$candidate"; then
            command -v "$candidate"
            return 0
        fi
    done
    return 1
}

make_venv() {
    python=$(find_python) || fail "Python 3.11 or newer is needed and none was found; on Debian or Ubuntu: apt-get install python3 python3-venv (or set PYTHON to one)"
    if ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
        package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
        { can_apt && apt_install "$package"; } || fail "$python cannot make virtual environments; on Debian or Ubuntu: apt-get install $package"
    fi
    say "set-up: virtual environment in $venv ($("$python" --version))"
    rm -rf "$venv"
    "$python" -m venv "$venv"
}

fingerprint() {
    "$venv/bin/python" - <<'PY'
import hashlib, pathlib, sys
parts = [pathlib.Path(p).read_bytes() for p in ("requirements.lock", "pyproject.toml")]
print(hashlib.sha256(b"\0".join([*parts, sys.version.encode(), str(pathlib.Path.cwd()).encode()])).hexdigest())
PY
}

# Says what pip does, of which a fresh clone waits for over a minute: on a terminal in one line that is written over.
progress() {
    count=0
    while read -r word name _; do
        case $word in
        Collecting)
            count=$((count + 1))
            note "package $count of about $1: ${name%%[=<>~!;[]*}"
            ;;
        Installing)
            shown=-1
            note "unpacking $count packages, which takes as long as fetching them"
            ;;
        esac
    done
    [ ! -t 1 ] || printf '\r%-78s\r' ''
}

shown=0
note() {
    if [ -t 1 ]; then
        printf '\rset-up: %-68s' "$1"
    elif [ "$shown" -lt 0 ] || [ $((count % 20)) = 0 ]; then
        say "set-up: $1"
    fi
}

find_java() { PYTHONPATH=src "$venv/bin/python" -m penstock.runtime.java; }

log=$(mktemp)
trap 'rm -f "$log"' EXIT

[ -x "$venv/bin/python" ] && new_enough "$venv/bin/python" && "$venv/bin/python" -m pip --version >/dev/null 2>&1 || make_venv
wanted=$(fingerprint)
if [ "$(cat "$stamp" 2>/dev/null || true)" != "$wanted" ]; then
    say "set-up: installing the locked dependencies (the first time takes a minute or two)"
    : >"$log"
    {
        PYTHONUNBUFFERED=1 "$venv/bin/python" -m pip install --disable-pip-version-check --no-input --require-hashes \
            --progress-bar off -r requirements.lock || echo failed >"$log"
    } | progress "$(grep -c '^[a-z0-9].*==' requirements.lock)"
    [ ! -s "$log" ] || fail "the dependencies could not be installed; the lines above say why"
    say "set-up: installing penstock itself"
    "$venv/bin/python" -m pip install -q --disable-pip-version-check --no-input --no-deps --no-build-isolation -e . ||
        fail "the package itself could not be installed; the lines above say why"
    # An editable install compiles nothing, and the first run would in two processes at once.
    "$venv/bin/python" -m compileall -q src
    printf '%s\n' "$wanted" >"$stamp"
fi
if ! java=$(find_java 2>&1); then
    { can_apt && apt_install openjdk-17-jre-headless; } || fail "$java"
    java=$(find_java 2>&1) || fail "$java"
fi
