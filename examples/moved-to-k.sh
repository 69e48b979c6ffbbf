#!/bin/sh
# A cron job, first with Kafka's scripts and then with k: create a topic if it does not exist, check
# that every partition is healthy, and print the number of records in the topic.
#
#     sh examples/moved-to-k.sh [before|after] TOPIC      before requires Kafka's scripts on the PATH
#
# The options and the output are the same, so most of the move is
#
#     sed -E 's/kafka-([a-z-]+)\.sh/k \1/g'
#
# With k, each command saves the second or two that a JVM needs to start, $K_BOOTSTRAP_SERVER replaces
# --bootstrap-server, and the exit status of --check replaces a test of the output.
set -eu

sum='{ records += $3 } END { print topic " holds " records " records in " NR " partitions" }'

before() {
    kafka-topics.sh --bootstrap-server "$K_BOOTSTRAP_SERVER" \
        --create --if-not-exists --topic "$1" --partitions 3 >/dev/null

    sick=$(kafka-topics.sh --bootstrap-server "$K_BOOTSTRAP_SERVER" \
        --describe --under-replicated-partitions)
    if [ -n "$sick" ]; then
        echo "$sick" >&2
        exit 3
    fi

    kafka-get-offsets.sh --bootstrap-server "$K_BOOTSTRAP_SERVER" --topic "$1" |
        awk -F: -v topic="$1" "$sum"
}

after() {
    k topics --create --if-not-exists --topic "$1" --partitions 3 >/dev/null
    k topics --describe --check >&2 # status 3: unhealthy; 1 or 124: check failed
    k get-offsets --topic "$1" | awk -F: -v topic="$1" "$sum"
}

[ $# -eq 2 ] || set -- after "$@"
: "${K_BOOTSTRAP_SERVER:=127.0.0.1:9092}" "${2:?name a topic}"
export K_BOOTSTRAP_SERVER
"$1" "$2"
