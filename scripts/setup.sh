#!/bin/sh
# Make the virtual environment $VENV and install flymono into it, editable, with exact versions.
# Environment: VENV (default .venv), PYTHON (default: the first usable one), TORCH_ARGS (more pip options for torch).
set -eu
cd "$(dirname "$0")/.."
VENV="${VENV:-.venv}"

say() { printf '%s\n' "$*" >&2; }
die() { say "error: $1"; shift; for line in "$@"; do say "    $line"; done; exit 2; }

# ---- a Python that can make a venv and build an extension
usable() {
    "$1" - <<'PY' >/dev/null 2>&1
import ensurepip, os, sys, sysconfig, venv
ok = sys.version_info >= (3, 11) and os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))
sys.exit(0 if ok else 1)
PY
}
if [ -n "${PYTHON:-}" ]; then
    usable "$PYTHON" || die "PYTHON=$PYTHON is not usable" \
        "it must be Python 3.11 or newer, with the venv module and the development headers (Python.h)"
else
    # 3.11 first: it is the version that constraints.txt and CI are made with
    for candidate in python3.11 python3 python3.12 python3.13 python3.14 python /usr/bin/python3; do
        if usable "$candidate"; then PYTHON="$candidate"; break; fi
    done
    [ -n "${PYTHON:-}" ] || die "no Python 3.11 or newer with venv and headers was found" \
        "Debian, Ubuntu:  apt-get install python3 python3-venv python3-dev" \
        "Fedora, RHEL:    dnf install python3 python3-devel" \
        "conda:           conda create -n flymono python=3.11, then make PYTHON=\$CONDA_PREFIX/bin/python" \
        "or name one:     make PYTHON=/path/to/python3.11"
fi

# ---- a C++20 compiler for the emulator core
compiler=""
probe=$(mktemp -d)
trap 'rm -rf "$probe"' EXIT
printf '#include <bit>\n#include <concepts>\n#include <span>\nint main() { return std::popcount(0u); }\n' >"$probe/t.cpp"
for candidate in ${CXX:-} c++ g++ clang++ g++-14 g++-13 g++-12 clang++-19 clang++-18 clang++-17; do
    if command -v "$candidate" >/dev/null 2>&1 && "$candidate" -std=c++20 -o "$probe/t" "$probe/t.cpp" 2>/dev/null; then
        compiler="$candidate"
        break
    fi
done
[ -n "$compiler" ] || die "no C++20 compiler was found (the emulator core is C++)" \
    "Debian, Ubuntu:  apt-get install g++" \
    "Fedora, RHEL:    dnf install gcc-c++" \
    "conda:           conda install -c conda-forge cxx-compiler" \
    "or name one:     CXX=/path/to/g++ make setup"
export CXX="$compiler"

# ---- the environment
say "== $("$PYTHON" -V) with $compiler into $VENV"
[ -x "$VENV/bin/python" ] || "$PYTHON" -m venv "$VENV"
pip() { "$VENV/bin/python" -m pip --disable-pip-version-check "$@"; }
say "== pip (a fresh venv's is too old for dependency groups)"
pip install -q -c constraints.txt --upgrade pip
say "== torch, pinned and first: a later version brings gigabytes of GPU libraries that nothing here uses"
# shellcheck disable=SC2086
pip install -c constraints.txt ${TORCH_ARGS:-} torch
say "== flymono and everything else; compiles the emulator core"
pip install -c constraints.txt --build-constraint constraints.txt --group dev -e ".[all]"
say "== done: $VENV/bin/flymono doctor tells what works here"
