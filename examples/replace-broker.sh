#!/bin/sh
# Replace one broker of a running cluster, Apache Kafka's by k or k by Apache Kafka's, on the same
# server.properties and the same directories.  Clients continue to work meanwhile.
#
#     export K_BOOTSTRAP_SERVER=kafka-1:9092,kafka-2:9092,kafka-3:9092
#     sh examples/replace-broker.sh 'systemctl stop kafka' 'systemctl start k'
#
# The first command stops the broker of this machine and returns once it has stopped; the second
# starts the other broker and returns at once.  Run the script on one machine after the other.  Each
# run waits until every replica in the cluster is in sync, both before it stops the broker and after
# it has started the other.  For the requirements see k-replace-brokers(7).
set -eu

[ $# -eq 2 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
: "${K_BOOTSTRAP_SERVER:?name the brokers}" "${PATIENCE_S:=600}"

until_well() {
    waited=0
    until k topics --describe --check >/dev/null 2>&1; do
        if [ "$waited" -ge "$PATIENCE_S" ]; then
            echo "replicas are still out of sync after $PATIENCE_S s:" >&2
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
