#!/usr/bin/env bash
# Lays out the C, header and CUDA files by .clang-format; with --check only looks, and exits 1 where
# a file would change. Versions of clang-format disagree with each other: this project uses 14.
set -euo pipefail
cd "$(dirname "$0")/.."

if command -v clang-format-14 >/dev/null; then
    tool=clang-format-14
elif command -v clang-format >/dev/null && clang-format --version | grep -q 'version 14\.'; then
    tool=clang-format
else
    echo "format: clang-format 14 is not installed: apt-get install clang-format-14" >&2
    exit 1
fi

patterns=('*.c' '*.h' '*.cu' '*.cuh')
if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
    mapfile -t files < <(git ls-files --cached --others --exclude-standard "${patterns[@]}" | sort -u)
else # an unpacked archive
    mapfile -t files < <(find include src tests bench examples -name '*.[ch]' -o -name '*.cu' \
        -o -name '*.cuh' | sort)
fi
if [[ ${1:-} == --check ]]; then
    "$tool" --dry-run -Werror "${files[@]}"
else
    "$tool" -i "${files[@]}"
fi
