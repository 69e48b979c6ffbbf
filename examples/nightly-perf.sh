#!/bin/sh
# A performance test for every night that judges itself: 60000 records of 200 bytes, 1000 a second,
# compared with the nights before.  nightly-perf.crontab has the line for cron.
#
#     sh examples/nightly-perf.sh RUNS.jsonl      RUNS.jsonl: where the runs are kept
#
# Ends with 3, and says on standard error what is slower than it was, when the latency that 99 % of
# the records do not exceed is half as long again as the median of the last five nights, or when the
# rate was not kept up; such a night does not become the measure of the next.  All is quiet on
# standard error otherwise, so that cron writes no mail.
set -eu

runs=${1:?say where the runs are kept}
topic=${TOPIC:-nightly-perf}

# The records of one night expire before the next.
k topics --create --if-not-exists --topic "$topic" --partitions 1 --config retention.ms=3600000

exec k perf-test producer --topic "$topic" --record-size 200 --command-property acks=all \
    --num-records "${RECORDS:-60000}" --throughput "${RATE:-1000}" \
    --warmup-records "${WARMUP:-5000}" \
    --history "$runs" --baseline "$runs" \
    --fail-if "${FAIL_IF:-p99>+50%,records_per_s<-5%}"
