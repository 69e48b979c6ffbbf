"""The work of `k consumer-groups` and `k groups`: descriptions of groups, plans for new offsets,
and watching the lag. Times and files have the syntax of kafka-consumer-groups.sh.
"""
