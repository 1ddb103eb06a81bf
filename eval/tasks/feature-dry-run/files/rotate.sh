#!/usr/bin/env bash
# Keeps three older versions of a file: FILE.1 (the newest) to FILE.3.
set -eu

usage() {
    echo "usage: rotate.sh FILE"
    echo "Renames FILE to FILE.1, FILE.1 to FILE.2, FILE.2 to FILE.3; FILE.3 is removed."
}

case ${1-} in
    --help) usage; exit 0 ;;
    -*|"") usage >&2; exit 2 ;;
esac
file=$1
if [ -e "$file.3" ]; then
    rm -- "$file.3"
fi
for number in 2 1; do
    if [ -e "$file.$number" ]; then
        mv -- "$file.$number" "$file.$((number + 1))"
    fi
done
if [ -e "$file" ]; then
    mv -- "$file" "$file.1"
fi
