#!/bin/sh
# Write an access log to a data lake, and its requests per minute to a topic.  The script starts a
# broker, sends lines to it, runs two Spark jobs as cron would, sends more lines, runs the jobs again,
# and audits the result, before and after a file is removed.  It prints each command before it runs.
#
#     sh examples/access-log/run.sh
#
# Requires Java 17.  No files are written outside this directory and a temporary one.
set -eu
cd "$(dirname "$0")/../.."

if [ ! -x .venv/bin/spark-submit ]; then
    [ -x .venv/bin/k ] || python3 -m venv .venv
    .venv/bin/pip install --quiet --disable-pip-version-check '.[spark]'
fi
PATH=$PWD/.venv/bin:$PATH
here=$PWD/examples/access-log

dir=$(mktemp -d)
broker=
cleanup() {
    [ -z "$broker" ] || { kill "$broker" 2>/dev/null && wait "$broker" || true; }
    rm -rf "$dir"
}
trap cleanup EXIT
trap 'exit 130' INT TERM
cd "$dir"
ln -s "$here/lines.py" "$here/counts.sql" .

: >broker.log
k server-start --override log.dirs=data --override listeners=PLAINTEXT://127.0.0.1:0 >broker.log 2>&1 &
broker=$!
# The broker logs its address when it is ready.
until address=$(sed -n 's/.*listening on PLAINTEXT:\/\/\([^ ]*\).*/\1/p' broker.log) && [ -n "$address" ]; do
    kill -0 "$broker" 2>/dev/null || { cat broker.log >&2; exit 1; }
    sleep 0.02
done
export K_BOOTSTRAP_SERVER="$address"

# Print a command as it would be typed, and run it.
say() {
    printf '$ %s\n' "$1"
    eval "$1"
}
fields="--value json --schema 'at timestamp, host string, path string, status int'"
land="k spark-submit land --topics access --format delta --partition-by hour --path lake/access \\
    $fields \\
    --event-time at --late-path lake/late --dlq access-dead --checkpoint checkpoints/land"
etl="k spark-submit etl --topics access --watermark at:1m --sql @counts.sql \\
    $fields \\
    --to topic:per-minute --exactly-once --dlq counts-dead --checkpoint checkpoints/etl"
watch="k console-consumer --topic per-minute --isolation-level read_committed \\
    --from-beginning --exit-at-end 2>/dev/null | sort"
audit="k spark-submit audit --topics access --format delta --path lake/access --path lake/late \\
    --dlq access-dead --fail-on-gap"

# Run the same command again.
again() {
    printf '$ %s ...\n' "${1%% --*}"
    eval "$1"
}

# The lines have old timestamps: without retention.ms=-1 the broker would delete them.
say "k topics --create --topic access --partitions 2 --config retention.ms=-1"
say "python lines.py 05:58 06:03 |
    k console-producer --topic access --reader-property parse.timestamp=true"
say "$land"
say "$etl"
say "$watch"
say "python lines.py 07:00 07:02 --late 05:59 |
    k console-producer --topic access --reader-property parse.timestamp=true"
again "$land"
again "$etl"
say "$watch"
say "$audit"
say "rm lake/access/date=2025-09-25/hour=07/*.parquet"
again "$audit" || printf '$ echo $?\n%s\n' "$?"
