"""ZooKeeper's protocol for one machine, over the durable tree of znodes in `world`.

jute is the bytes, requests what they ask of the tree, acl who may, sessions who is alive, watches
who is told; store makes changes durable, connection and server serve them, words answers monitors.
"""
