#!/bin/sh
# The site layer follows N histories from SEED on, and as many harder ones, on both engines, and once more with commands whose
# writes are captured; with seeds up to 1000 also the named scenarios, and each planted bug (src/site/plant.h) has to be found.
#
#   tests/site/replay.sh build/tests/site/replay SEED N
set -eu
replay=$1 seed=$2 n=$3
here=$(dirname "$0")
trace=$(mktemp)
trap 'rm -f "$trace"' EXIT
"$here/model.py" --trace "$seed" "$n" > "$trace"
"$here/stress.py" "$((n / 3))" "$seed" --trace >> "$trace"
[ "$seed" -gt 1000 ] || "$here/model.py" --trace-scenarios >> "$trace"
"$replay" memory < "$trace"
"$replay" rocksdb < "$trace"
"$replay" captured-memory < "$trace"
"$replay" captured-rocksdb < "$trace"
[ "$seed" -le 1000 ] || exit 0
bug=1
for name in $(sed -n 's/^    \(PLANT_[A-Z_]*\) = .*/\1/p' "$here/../../src/site/plant.h"); do
    if "$replay" memory $bug < "$trace" > /dev/null 2>&1 &&
        "$replay" captured-memory $bug < "$trace" > /dev/null 2>&1; then
        echo "  $name: NOT FOUND"
        exit 1
    fi
    echo "  $name: found"
    bug=$((bug * 2))
done
