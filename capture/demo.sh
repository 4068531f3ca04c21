#!/bin/sh
# Records without hardware: SOURCE (a .sr file or run folder, two buses on at most 14 channels) is replayed to the real
# sigrok-cli while frames pass between two network namespaces. RUN is the run folder that comes of it.
# usage: demo.sh SOURCE RUN
# Needs sigrok-cli, iproute2 and util-linux; root, or a kernel that lets users have namespaces.
set -eu
[ $# -eq 2 ] || { sed -n 4p "$0" >&2; exit 2; }
for program in sigrok-cli ip unshare nsenter pcicap framegen; do
    command -v "$program" > /dev/null || { echo "demo.sh: $program is not installed" >&2; exit 1; }
done
if [ "${PCICAP_DEMO:-}" != inside ]; then
    [ "$(id -u)" -eq 0 ] && user= || user="--map-root-user"
    # everything below lives in namespaces of its own and ends with them
    PCICAP_DEMO=inside exec unshare $user --net --pid --fork --kill-child --mount-proc "$0" "$@"
fi
source=$(realpath "$1") run=$(realpath -m "$2") work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

unshare --net sh -c 'echo $$; exec sleep 600' > "$work/pid" &
until [ -s "$work/pid" ]; do sleep 0.05; done
peer=$(cat "$work/pid")
ip link set lo up
ip link add left type veth peer name right netns "$peer"
ip link set left up
nsenter --target "$peer" --net ip link set right up

nsenter --target "$peer" --net framegen serve -i right --json --seconds 120 > "$work/serve" &
until [ -s "$work/serve" ]; do sleep 0.05; done
mac=$(sed -n '1s/.*"mac":"\([0-9a-f:]*\)".*/\1/p' "$work/serve")

cat > "$work/plan.toml" <<PLAN
format = 1
title = "Demonstration: a replayed capture beside real frames"

[[analysers]]
name = "analyser"

[analysers.replay]
source = "$source"

[hosts.A]
interface = "left"

[hosts.B]
mac = "$mac"

[link]
rate_mbit_s = 10_000
medium = "veth"

[test]
kind = "request-response"
sizes = [64, 512, 1024, 1500]
count = 200
max_seconds = 20
PLAN
pcicap plan --check "$work/plan.toml"
pcicap record "$work/plan.toml" -o "$run"
