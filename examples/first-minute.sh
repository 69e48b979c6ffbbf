#!/bin/sh
# The first minute of k: install it into ./.venv, start a broker, send a log file to a topic, read
# it back, print the times, and stop.  No Java, no other process, and no files outside this directory
# and a temporary one.
#
#     sh examples/first-minute.sh [FILE]      FILE: any text file; default: a log of this machine
set -eu
cd "$(dirname "$0")/.."

if [ ! -x .venv/bin/k ]; then
    python3 -m venv .venv || {
        echo 'python3 cannot create a virtual environment; on Debian: apt-get install python3-venv' >&2
        exit 1
    }
    .venv/bin/pip install --quiet --disable-pip-version-check .
fi
PATH=$PWD/.venv/bin:$PATH

dir=$(mktemp -d)
broker=
cleanup() {
    [ -z "$broker" ] || { kill "$broker" 2>/dev/null && wait "$broker" || true; }
    rm -rf "$dir"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

file=${1:-}
if [ -z "$file" ]; then
    for file in /var/log/dpkg.log /var/log/syslog /var/log/messages LICENSE; do
        [ -s "$file" ] && [ -r "$file" ] && break
    done
fi
seconds() { date +%s.%N; }
since() { awk -v a="$1" -v b="$(seconds)" 'BEGIN { printf "%.2f", b - a }'; }

began=$(seconds)
: >"$dir/broker.log"
k server-start --override "log.dirs=$dir/data" --override "listeners=PLAINTEXT://127.0.0.1:0" \
    >"$dir/broker.log" 2>&1 &
broker=$!
# The broker logs its address when it is ready.
until address=$(sed -n 's/.*listening on PLAINTEXT:\/\/\([^ ]*\).*/\1/p' "$dir/broker.log") && [ -n "$address" ]; do
    kill -0 "$broker" 2>/dev/null || { cat "$dir/broker.log" >&2; exit 1; }
    sleep 0.02
done
export K_BOOTSTRAP_SERVER="$address"
echo "broker      ready on $address after $(since "$began") s"

k topics --create --topic log --partitions 1

began=$(seconds)
k console-producer --topic log <"$file"
echo "piped in    $file: $(wc -l <"$file") lines, $(wc -c <"$file") bytes, $(since "$began") s"

# One record per line; a last line without a newline is a record too.
records=$(awk 'END { print NR }' "$file")
began=$(seconds)
k console-consumer --topic log --from-beginning --max-messages "$records" >"$dir/back" 2>/dev/null
echo "read back   $(wc -l <"$dir/back") lines, $(since "$began") s"

awk '{ print }' "$file" | cmp - "$dir/back"
echo "compared    all lines match, in order"

kill "$broker" && wait "$broker" || true
broker=
echo "stopped     all data was in $dir, which was removed"
