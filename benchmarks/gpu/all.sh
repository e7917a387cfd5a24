#!/bin/sh
# All phases of measure.py, each under a time limit of its own, so that one that hangs costs no other.
#   benchmarks/gpu/all.sh OUT [PHASE...]
set -u
out=${1:?usage: all.sh OUT [PHASE...]}
shift
[ $# -gt 0 ] || set -- vendors seeds noise redteam faults throughput tolerance tools confirm
mkdir -p "$out" || exit 1
failed=0
for phase in "$@"; do
    timeout --kill-after=5 140 python3 -m benchmarks.gpu.measure "$out" "$phase" 2>"$out/$phase.err" || {
        failed=1
        echo "$phase failed; the end of $out/$phase.err:"
        tail -n 5 "$out/$phase.err"
    }
    [ -s "$out/$phase.err" ] || rm -f "$out/$phase.err"
done
exit $failed
