#!/usr/bin/env bash
# Which names the libraries put into the world.
#
#   scripts/check_symbols.sh [build folder]         a plain build; the sanitizers add names
#
# 1. Every global symbol defined in libzonal.a and libzonal_training.a begins with zonal_.
# 2. libzonal.so exports exactly the functions that include/zonal declares with ZONAL_API, none of
#    them internal (zonal__).
# 3. A folder's objects use symbols of the folders below it only. What a backend hands out to all
#    (zonal__backend_cpu, zonal__training_cpu) counts as src/backend's and src/backend/training's.
#
# Prints what is wrong and exits 1 if anything is.
set -euo pipefail
build=${1:-build}
root=${ZONAL_SOURCE_DIR:-$(dirname "$0")/..}
for library in libzonal.a libzonal.so libzonal_training.a; do
    if [[ ! -f $build/$library ]]; then
        echo "check_symbols: $build/$library does not exist: build it first" >&2
        exit 2
    fi
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
faults=0
fault() {
    echo "check_symbols: $*"
    faults=$((faults + 1))
}

# nm as "name type"; names of versioned symbols lose their version.
defined() { nm -g --defined-only "$@" 2>/dev/null | awk 'NF == 3 { sub(/@.*/, "", $3); print $3, $2 }'; }

# ---- 1. the prefix. Weak C++ names come with nvcc's objects and out of the toolkit's headers. ----
while read -r name type; do
    [[ $name == zonal_* || ($type == [WVu] && $name =~ ^(_Z|DW\.ref\.)) ]] ||
        fault "a library defines $name, which does not begin with zonal_: make it static"
done < <(defined "$build/libzonal.a" "$build/libzonal_training.a" | sort -u)

# ---- 2. what is exported, against what the headers promise ----
cat "$root"/include/zonal/*.h | awk '
    { text = text $0 "\n" }
    END {
        gsub(/#[^\n]*\\\n([^\n]*\\\n)*[^\n]*\n/, "\n", text)      # macros over several lines
        gsub(/\n[ \t]*#[^\n]*/, "\n", text)
        while (match(text, /\/\*/)) {
            rest = substr(text, RSTART + 2)
            end = index(rest, "*/")
            text = substr(text, 1, RSTART - 1) " " (end ? substr(rest, end + 2) : "")
        }
        n = split(text, part, /[;{}]/)
        for (i = 1; i <= n; i++) {
            if (part[i] !~ /(^|[^A-Za-z0-9_])ZONAL_API([^A-Za-z0-9_]|$)/) continue
            if (match(part[i], /zonal_[A-Za-z0-9_]+[ \t\n]*\(/)) {   # a function
                name = substr(part[i], RSTART, RLENGTH - 1)
            } else {                                                # a variable: the last name
                name = part[i]
                sub(/[ \t\n]*(\[.*)?$/, "", name)
                sub(/^.*[^A-Za-z0-9_]/, "", name)
            }
            gsub(/[ \t\n]/, "", name)
            print name
        }
    }' | sort -u >"$work/declared"
nm -D --defined-only "$build/libzonal.so" | awk '{ sub(/@.*/, "", $NF); print $NF }' | sort -u \
    >"$work/exported"
while read -r name; do
    if [[ $name == zonal__* ]]; then
        fault "libzonal.so exports $name, an internal name"
    else
        fault "libzonal.so exports $name, which include/zonal does not declare with ZONAL_API"
    fi
done < <(comm -13 "$work/declared" "$work/exported")
while read -r name; do
    fault "include/zonal declares $name, which libzonal.so does not export"
done < <(comm -23 "$work/declared" "$work/exported")

# ---- 3. the arrows, as the linker sees them ----
layers=(core math backend backend/ref backend/cpu backend/cuda loss uniformity backend/training
    backend/ref/training backend/cpu/training backend/cuda/training data nn eval train report
    reproduce)
knows() {
    case $1 in
        core) echo ;;
        math) echo core ;;
        backend) echo core math ;;
        backend/training) echo core math backend ;;
        backend/*/training) echo core math backend "${1%/training}" backend/training ;;
        backend/*) echo core math backend ;;
        loss) echo core math backend ;;
        uniformity) echo core math backend loss ;;
        data | nn) echo core math backend backend/training ;;
        eval) echo core math backend backend/training loss uniformity data nn ;;
        train) echo core math backend backend/training loss uniformity data nn eval ;;
        report) echo core math backend backend/training loss uniformity data nn eval train ;;
        reproduce) echo core math backend backend/training loss uniformity data nn eval train report ;;
    esac
}
target() { # the name of a folder's target: zonal_core, zonal_backend_training, zonal_cpu_training
    local name=${1#backend/}
    if [[ $name == training ]]; then name=$1; fi
    echo "zonal_${name//\//_}"
}
objects() { find "$build/src/$1" -maxdepth 3 -path "*/CMakeFiles/$(target "$1").dir/*.o" 2>/dev/null; }
key() { echo "$work/${1//\//_}"; }
checked=0
for layer in "${layers[@]}"; do
    mapfile -t files < <(objects "$layer")
    : >"$(key "$layer").has"
    : >"$(key "$layer").wants"
    ((${#files[@]})) || continue
    checked=$((checked + 1))
    defined "${files[@]}" | cut -d ' ' -f 1 | sort -u >"$(key "$layer").has"
    nm -u "${files[@]}" | awk '$1 == "U" && $2 ~ /^zonal_/ { print $2 }' | sort -u \
        >"$(key "$layer").wants"
done
if ((checked == 0)); then
    fault "$build holds no objects of src/"
fi
for layer in backend/ref backend/cpu backend/cuda; do
    grep -E '^zonal__backend_' "$(key "$layer").has" >>"$(key backend).has" || true
    grep -E '^zonal__training_' "$(key "$layer/training").has" >>"$(key backend/training).has" || true
done
for layer in "${layers[@]}"; do
    allowed=("$(key "$layer").has")
    for lower in $(knows "$layer"); do
        allowed+=("$(key "$lower").has")
    done
    while read -r name; do
        for owner in "${layers[@]}"; do
            if grep -qx "$name" "$(key "$owner").has"; then
                fault "src/$layer uses $name, which belongs to src/$owner"
            fi
        done
    done < <(comm -23 "$(key "$layer").wants" <(sort -u "${allowed[@]}"))
done

if ((faults)); then
    echo "check_symbols: $faults faults"
    exit 1
fi
echo "check_symbols: $(wc -l <"$work/exported") exported names, as declared"
