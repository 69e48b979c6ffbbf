"""The group of a consumer.

group                    a membership, and commits
membership, member       member of a classic group: requests; states and errors
consumer_group,          member of a group by KIP-848: requests; states and errors
  consumer_member
assignors, sticky        client-side assignment of partitions to members
group_protocol           subscriptions and assignments as bytes
commits                  OffsetCommit and OffsetFetch
group_coordinator        the broker that coordinates the group
group_metadata           a consumer's identity in its group
group_descriptions       types of results about groups
"""
