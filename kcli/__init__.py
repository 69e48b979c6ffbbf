"""The command `k` and the client library beneath it.

Where is ...?

    every command, exit statuses               main.py
    one command: options, words, differences   commands/<name>.py
    parsing of words, --help                   command/command.py
    options that commands share                command/options.py
    the event loop, --timeout, errors          command/command_runner.py
    stdout, stderr, output on a terminal       command/output.py, command/progress.py
    the manual pages                           manual.py
    -o: rows, their shapes and formats         rows/
    lines in, records out; and back            console/
    a broker's files                           segments/
    features of Kafka's releases               release_features.py
    groups: tables, plans, lag                 groups/
    elections, comparisons of replicas         partitions/
    Java's regular expressions                 patterns/
    groups that balance through ZooKeeper      zookeeper_consumer/
    perf tests: histograms, histories          perf/
    completion in a shell                      shell_completion/
    kafka_broker, kafka_cluster for pytest     testing/
    a cluster on this machine                  local_cluster/
    servers: forked, in the background,        servers/
      restarted one by one
    Apache's ZooKeeper, started                apache_zookeeper/
    the data source of Spark                   spark/
    producer, consumer, group, admin           client/, a room for each
"""
