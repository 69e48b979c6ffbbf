"""Performance tests: generate load, measure it, print Kafka's lines, keep the results, compare
them.

    histogram      latencies in constant memory, percentiles within 0.1 %
    schedule       due times of records at a fixed rate
    payloads       the values of records
    tally          records delivered in a time, and Kafka's lines about them
    dates          times in the format of Java's SimpleDateFormat
    criteria       --fail-if: a metric, a bound, a verdict
    history        a line for each run, and the baseline of earlier ones

    producing, consuming, round_trip    the three tests against a cluster
    judging                             --history, --baseline and --fail-if of a command
"""
