"""Performance tests: load is made and measured, told in Kafka's lines, kept, and judged.

histogram      latencies in constant memory, percentiles within 0.1 %
schedule       when each record is due at a fixed rate, and when one was
payloads       the values of records
tally          what was delivered in a time, and Kafka's lines about it
dates          times as Java's SimpleDateFormat writes them
criteria       --fail-if: a metric, a bound, a verdict
history        a line for each run, and the baseline that earlier ones make

producing, consuming, round_trip    the three tests against a cluster
judging                             --history, --baseline and --fail-if of a command
"""
