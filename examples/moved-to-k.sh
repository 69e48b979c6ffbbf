#!/bin/sh
# A cron job of an operator, first with Kafka's scripts and then with k: create a topic if it
# does not exist, check that every partition is healthy, and print how many records the topic holds.
#
#     sh examples/moved-to-k.sh [before|after] TOPIC      before needs Kafka's scripts on the PATH
#
# The options and the text are the same, so most of a move is
#
#     sed -E 's/kafka-([a-z-]+)\.sh/k \1/g'
#
# Three things can go then: the JVM's second or two for each command, --bootstrap-server, which
# $K_BOOTSTRAP_SERVER stands in for, and the guessing from text whether a command found something.
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
    k topics --describe --check >&2 # 3 if a partition is unhealthy, 1 or 124 if it cannot be checked
    k get-offsets --topic "$1" | awk -F: -v topic="$1" "$sum"
}

[ $# -eq 2 ] || set -- after "$@"
: "${K_BOOTSTRAP_SERVER:=127.0.0.1:9092}" "${2:?say which topic}"
export K_BOOTSTRAP_SERVER
"$1" "$2"
