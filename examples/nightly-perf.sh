#!/bin/sh
# A nightly performance test: send 60000 records of 200 bytes, 1000 per second, and compare the result
# with the previous nights.  nightly-perf.crontab has the line for cron.
#
#     sh examples/nightly-perf.sh RUNS.jsonl      RUNS.jsonl: the file that stores the runs
#
# Ends with status 3, and prints the regressions on standard error, if the p99 latency is more than
# 50 % above the median of the last five nights, or if the rate was not reached.  Such a night is not
# used as a baseline.  Otherwise standard error stays empty, so that cron sends no mail.
set -eu

runs=${1:?name a file for the runs}
topic=${TOPIC:-nightly-perf}

# The records of one night expire before the next night.
k topics --create --if-not-exists --topic "$topic" --partitions 1 --config retention.ms=3600000

exec k perf-test producer --topic "$topic" --record-size 200 --command-property acks=all \
    --num-records "${RECORDS:-60000}" --throughput "${RATE:-1000}" \
    --warmup-records "${WARMUP:-5000}" \
    --history "$runs" --baseline "$runs" \
    --fail-if "${FAIL_IF:-p99>+50%,records_per_s<-5%}"
