#!/bin/sh
# Builds the C++ core in place (emulator/_core.*.so), for work on it without a new installation.
# PYTHON names an interpreter that has nanobind; cmake and ninja may come from its wheels. Extra arguments go to cmake.
set -e
cd "$(dirname "$0")/.."
mkdir -p build
PYTHON=${PYTHON:-python3}
PATH=$(dirname "$(command -v "$PYTHON")"):$PATH
cmake -S . -B build/core -G Ninja -DCMAKE_BUILD_TYPE=Release -DPython_EXECUTABLE="$(command -v "$PYTHON")" \
  -Dnanobind_DIR="$("$PYTHON" -m nanobind --cmake_dir)" "$@" >build/core.config.log 2>&1 || { cat build/core.config.log; exit 1; }
cmake --build build/core -j "${JOBS:-1}"
# renamed into place: a process that has the old one mapped goes on with it
for core in build/core/_core.*.so; do
    cp "$core" "emulator/.new.${core##*/}"
    mv -f "emulator/.new.${core##*/}" "emulator/${core##*/}"
done
