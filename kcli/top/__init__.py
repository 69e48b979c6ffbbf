"""`k top`: what a cluster does now, look by look.

snapshot   one look at a cluster: what every broker tells
rates      looks in, rows out: how fast and which way everything goes
tables     rows as the lines that a person reads
screen     where they are shown: on a terminal, as plain text, as rows of -o
"""
