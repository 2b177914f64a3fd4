#!/usr/bin/env bash
# Builds the Python package (pyproject.toml) into a folder.
#
#   scripts/python.sh sdist|wheel|all FOLDER [setting=value ...]
#
# Settings are scikit-build-core's: cmake.define.ZONAL_CUDA=OFF. It is taken from the Python on PATH or
# Debian's, or installed by pip into FOLDER/tools. Where it is not to be had, the exit status is 77.
set -euo pipefail

usage="usage: scripts/python.sh sdist|wheel|all FOLDER [setting=value ...]"
what=${1:?$usage}
mkdir -p "${2:?$usage}"
out=$(realpath "$2")
shift 2
cd "$(dirname "$0")/.."

has_backend() { "$1" -c 'import scikit_build_core.build' 2>/dev/null; }

find_python() {
    local candidate
    for candidate in python3 /usr/bin/python3 "$out/tools/bin/python"; do
        if has_backend "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    python3 -m venv "$out/tools" >&2 &&
        "$out/tools/bin/python" -m pip install --quiet --timeout 15 --retries 1 \
            "scikit-build-core>=0.10" >&2 &&
        echo "$out/tools/bin/python"
}

if ! python=$(find_python); then
    echo "python.sh: scikit-build-core is not installed and could not be had:" \
        "pip install scikit-build-core" >&2
    exit 77
fi

"$python" - "$what" "$out" "$@" <<'EOF'
import sys
from scikit_build_core import build

what, out, *settings = sys.argv[1:]
if what not in ("sdist", "wheel", "all"):
    sys.exit(f"python.sh: what to build is sdist, wheel or all, got {what}")
if what != "wheel":
    print(f"{out}/{build.build_sdist(out)}")
if what != "sdist":
    # Kept from one time to the next, so that only what has changed is compiled.
    chosen = {"build-dir": out + "/cmake", **dict(setting.split("=", 1) for setting in settings)}
    print(f"{out}/{build.build_wheel(out, chosen)}")
EOF
