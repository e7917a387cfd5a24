#!/bin/sh
# Phases of measure.py, and "nm24": experiments/nm24.toml on the card, its archive in OUT. Each has a time limit of
# its own, so that one that hangs costs no other; what they say on stderr is in OUT/errors.log.
#   benchmarks/gpu/all.sh OUT [PHASE...]      MINUTES: budget of the nm24 run (4)
set -u
out=${1:?usage: all.sh OUT [PHASE...]}
shift
[ $# -gt 0 ] || set -- nm24 faults throughput noise redteam tolerance vendors confirm seeds tools
mkdir -p "$out" || exit 1
minutes=${MINUTES:-4}
failed=0
for phase in "$@"; do
    echo "== $phase, $(date -u +%H:%M:%S)" | tee -a "$out/errors.log"
    if [ "$phase" = nm24 ]; then
        set -- timeout --kill-after=5 "$(awk "BEGIN { print int($minutes * 60 + 75) }")" python3 -m evo.run \
            experiments/nm24.toml --no-llm -q --set device.kind=cuda --set "budget.minutes=$minutes" \
            --archive "$out/nm24.db"
    else
        set -- timeout --kill-after=5 180 python3 -m benchmarks.gpu.measure "$out" "$phase"
    fi
    "$@" 2>>"$out/errors.log" || {
        failed=1
        echo "$phase failed; the end of $out/errors.log:"
        tail -n 8 "$out/errors.log"
    }
done
exit $failed
