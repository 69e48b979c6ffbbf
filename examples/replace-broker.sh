#!/bin/sh
# One broker of a running cluster gives its place to another program, on the same server.properties
# and the same directories: Apache Kafka's to k, or k's to Apache Kafka's.  Clients go on meanwhile.
#
#     export K_BOOTSTRAP_SERVER=kafka-1:9092,kafka-2:9092,kafka-3:9092
#     sh examples/replace-broker.sh 'systemctl stop kafka' 'systemctl start k'
#
# The first command stops the broker of this machine and returns once it has; the second starts the
# other and returns at once.  Run it on one machine after the other; each run begins when every
# replica in the cluster is in sync, and ends when that is so again.  What it needs: k-replace-brokers(7).
set -eu

[ $# -eq 2 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
: "${K_BOOTSTRAP_SERVER:?say which brokers}" "${PATIENCE_S:=600}"

until_well() {
    waited=0
    until k topics --describe --check >/dev/null 2>&1; do
        if [ "$waited" -ge "$PATIENCE_S" ]; then
            echo "after $PATIENCE_S s there are still replicas out of sync:" >&2
            k topics --describe --under-replicated-partitions >&2
            exit 3
        fi
        sleep 1
        waited=$((waited + 1))
    done
}

until_well
sh -c "$1"
sh -c "$2"
until_well
echo "replaced; every replica is in sync"
