"""ZooKeeper's protocol for one machine, over the durable tree of znodes in `world`.

jute          the protocol's records and their bytes
requests      requests that change the tree, as operations, and their responses
reads         requests that only read, and watches
acl           access control lists
sessions      open sessions and their deadlines
watches       watches of all connections
store         makes changes durable
connection,   serve clients
  server
words         four-letter words for monitors
"""
