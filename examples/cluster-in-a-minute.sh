#!/bin/sh
# A cluster in a minute: start three brokers on this machine, create a topic with three replicas,
# and kill its leader with kill -9 while records are being sent.  No acknowledged record is lost, and
# the broker is restarted.  No Java, and no files outside a temporary directory.
#
#     sh examples/cluster-in-a-minute.sh      requires the command k
set -eu

dir=$(mktemp -d)
cluster=
cleanup() {
    [ -z "$cluster" ] || { kill "$cluster" 2>/dev/null && wait "$cluster" || true; }
    rm -rf "$dir"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# k cluster-start prints a line for each event: wait for "cluster ready".
: >"$dir/events"
k cluster-start --brokers 3 --port 0 --restart >"$dir/events" 2>"$dir/log" &
cluster=$!
until servers=$(sed -n 's/^cluster ready: //p' "$dir/events") && [ -n "$servers" ]; do
    kill -0 "$cluster" 2>/dev/null || { cat "$dir/log" >&2; exit 1; }
    sleep 0.02
done
cat "$dir/events"
export K_BOOTSTRAP_SERVER="$servers"

k topics --create --topic orders --partitions 1 --config min.insync.replicas=2
k topics --describe --topic orders | tail -1

leader=$(k topics --describe --topic orders -o template='{leader}')
pid=$(sed -n "s/^broker $leader ready .* pid //p" "$dir/events")
# Kill the leader after half of the lines, then send the rest.
{
    seq 1 5000
    kill -9 "$pid"
    seq 5001 10000
} | k console-producer --topic orders
until grep died "$dir/events"; do
    sleep 0.02
done

k console-consumer --topic orders --from-beginning --exit-at-end 2>/dev/null >"$dir/back"
seq 1 10000 | cmp - "$dir/back"
echo "10000 lines read back, each once and in order"

until [ "$(grep -c "^broker $leader ready" "$dir/events")" = 2 ] &&
    [ -z "$(k topics --describe --under-replicated-partitions)" ]; do
    sleep 0.1
done
tail -1 "$dir/events"
k topics --describe --topic orders | tail -1
