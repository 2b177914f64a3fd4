#!/usr/bin/env bash
# Removes what the last installation out of a build folder put in place, and the folders of zonal's
# own that are empty then.
#
#   scripts/uninstall.sh [build folder]         DESTDIR as for the installation
set -euo pipefail

manifest=${1:-build}/install_manifest.txt
if [[ ! -f $manifest ]]; then
    echo "uninstall: $manifest does not exist: nothing was installed from there" >&2
    exit 1
fi
removed=0 folders=()
while IFS= read -r file || [[ -n $file ]]; do
    file=${DESTDIR:-}$file
    if [[ -e $file || -L $file ]]; then
        rm "$file"
        removed=$((removed + 1))
    fi
    case $(dirname "$file") in
        */zonal) folders+=("$(dirname "$file")") ;;
        */zonal/bench) folders+=("$(dirname "$file")" "$(dirname "$(dirname "$file")")") ;;
    esac
done <"$manifest"
# The deepest first. One that holds something else stays.
printf '%s\n' "${folders[@]}" | sort -ur | while IFS= read -r folder; do
    if [[ -d $folder ]]; then rmdir --ignore-fail-on-non-empty "$folder"; fi
done
echo "uninstall: $removed files removed"
