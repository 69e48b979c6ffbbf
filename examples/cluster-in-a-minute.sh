#!/bin/sh
# A cluster in a minute: three brokers on this machine, a topic with three replicas, and a kill -9
# of the broker that leads it while records are being sent.  Nothing that was acknowledged is lost,
# and the broker comes back.  No Java, nothing outside a temporary directory.
#
#     sh examples/cluster-in-a-minute.sh      needs the command k
set -eu

dir=$(mktemp -d)
cluster=
cleanup() {
    [ -z "$cluster" ] || { kill "$cluster" 2>/dev/null && wait "$cluster" || true; }
    rm -rf "$dir"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# Each event is one line on standard output: wait for the line that says "ready".
: >"$dir/told"
k cluster-start --brokers 3 --port 0 --restart >"$dir/told" 2>"$dir/log" &
cluster=$!
until servers=$(sed -n 's/^cluster ready: //p' "$dir/told") && [ -n "$servers" ]; do
    kill -0 "$cluster" 2>/dev/null || { cat "$dir/log" >&2; exit 1; }
    sleep 0.02
done
cat "$dir/told"
export K_BOOTSTRAP_SERVER="$servers"

k topics --create --topic orders --partitions 1 --config min.insync.replicas=2
k topics --describe --topic orders | tail -1

leader=$(k topics --describe --topic orders -o template='{leader}')
pid=$(sed -n "s/^broker $leader ready .* pid //p" "$dir/told")
# The leader is killed with half of the lines sent, and the rest behind them.
{
    seq 1 5000
    kill -9 "$pid"
    seq 5001 10000
} | k console-producer --topic orders
until grep died "$dir/told"; do
    sleep 0.02
done

k console-consumer --topic orders --from-beginning --exit-at-end 2>/dev/null >"$dir/back"
seq 1 10000 | cmp - "$dir/back"
echo "10000 lines are there, each once and in order"

until [ "$(grep -c "^broker $leader ready" "$dir/told")" = 2 ] &&
    [ -z "$(k topics --describe --under-replicated-partitions)" ]; do
    sleep 0.1
done
tail -1 "$dir/told"
k topics --describe --topic orders | tail -1
