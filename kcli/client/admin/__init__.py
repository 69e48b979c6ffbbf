"""The admin client.

admin                                 the calls
topics, configs, quotas, scram,       requests about each subject
  log_dirs, elections, quorum,
  reassignments, record_times
groups                                admin.groups: groups and their committed offsets
transaction_admin, features           admin.transactions, admin.features
replica_fetches                       records of one replica, leader or follower
descriptions                          types of arguments and results
"""
