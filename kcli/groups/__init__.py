"""Groups, as `k consumer-groups` and `k groups` print and change them: what is told of each, plans
for new offsets, lag as it changes.  Times and files in the words of kafka-consumer-groups.sh."""
