#!/bin/sh
# Make the environment of `make vllm-test` at $VENV and run its tests: vLLM's Python and what that imports on a
# machine without a GPU (tests/vllm/requirements.txt), torch for CPUs, flymono editable. Never vLLM's own dependencies.
# Environment: VENV (default .venv-vllm), PYTHON (3.11 or 3.12), TORCH_ARGS and VLLM_ARGS (more pip options for these;
# "--find-links DIR" saves the download of a wheel that lies in DIR), SETUP_ONLY=1. Arguments go to pytest.
set -eu
cd "$(dirname "$0")/.."
VENV="${VENV:-.venv-vllm}"
VLLM=0.33.0
TORCH=2.13.0
say() { printf '%s\n' "$*" >&2; }
pip() { "$VENV/bin/python" -m pip --disable-pip-version-check "$@"; }

stamp="$VENV/.flymono-vllm-$(cat pyproject.toml tests/vllm/requirements.txt | cksum | cut -d ' ' -f 1)"
if [ ! -e "$stamp" ]; then
    [ -x "$VENV/bin/python" ] || "${PYTHON:-python3.11}" -m venv "$VENV"
    say "== torch $TORCH, then what vLLM's host code and flymono import (--no-deps: vLLM's own list is 4.6 GB)"
    # shellcheck disable=SC2086
    pip install -q --no-compile --no-deps ${TORCH_ARGS:-} "torch==$TORCH"
    "$VENV/bin/python" -c 'import ctypes, importlib.util as u, pathlib as p
ctypes.CDLL(str(p.Path(u.find_spec("torch").origin).parent / "lib/libtorch_cpu.so"))' 2>/dev/null || {
        say "error: this build of torch needs a GPU's libraries"
        say "    fix: TORCH_ARGS='--index-url https://download.pytorch.org/whl/cpu'"
        exit 2
    }
    pip install -q --no-compile --no-deps -r tests/vllm/requirements.txt
    say "== vLLM $VLLM"
    # shellcheck disable=SC2086
    pip install -q --no-compile --no-deps ${VLLM_ARGS:-} "vllm==$VLLM"
    say "== flymono, in place: names and entry points; its compiled core beside it"
    pip install -q --no-compile --no-deps --no-build-isolation -C wheel.cmake=false -C wheel.py-api=py3 -C editable.mode=inplace -e .
    touch "$stamp"
fi
"$VENV/bin/python" -c 'import flymono.emulator' 2>/dev/null || PYTHON="$VENV/bin/python" sh scripts/build_core.sh
[ -n "${SETUP_ONLY:-}" ] || exec "$VENV/bin/python" tests/vllm/run.py "$@"
