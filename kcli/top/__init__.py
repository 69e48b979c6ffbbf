"""`k top`: the present activity of a cluster, snapshot by snapshot.

snapshot   one snapshot of a cluster: the responses of every broker
rates      snapshots in, rows out: rates and trends
tables     rows as lines for a person
screen     output on a terminal, as plain text, or as rows of -o
"""
