#!/usr/bin/env python3
"""Apache Kafka from Maven Central: its broker and its tools, for comparison.

Apache's release archive is not on Maven Central, but everything in it that
runs is: the jars.  This script resolves the same set with Maven, and then
starts the classes that the archive's bin/*.sh scripts start, with the JVM
flags that bin/kafka-run-class.sh gives them.  Needs java (17 or newer for
Kafka 4.x, 11 for 3.x), mvn, and Python 3.8; nothing else.

    apache-kafka install VERSION
        Fetch Kafka VERSION (2.8 or newer) unless it is there; print its
        directory.  Two at once are safe: the second waits for the first.
        Remove the directory to fetch again.  Kafka Streams is not included,
        nor trogdor, which is not on Maven Central.

    apache-kafka tool VERSION kafka-topics.sh ARGS...
        Run what bin/kafka-topics.sh runs.  The java process replaces this
        one, so stdin, stdout, signals and the exit status are the tool's own.
        `apache-kafka tools VERSION` lists the scripts and their classes;
        kafka-run-class.sh CLASS ARGS... runs any class.

    apache-kafka zookeeper VERSION --data DIR --port N
        A ZooKeeper server in the foreground (Kafka 3.x only).

    apache-kafka server VERSION --data DIR --port N [--mode zookeeper|kraft]
                 [--broker-id N] [--zookeeper HOST:PORT/chroot]
                 [--quorum ID@HOST:PORT,...] [--cluster-id ID]
                 [--override KEY=VALUE]... [--prepare]
        A broker in the foreground; SIGTERM stops it in a controlled way.
        --mode is kraft unless --zookeeper is given.  In KRaft mode the node
        is broker and controller; --quorum names all the controllers (this
        node's own entry gives its controller port) and is, unless given, this
        node alone with its controller on port N+1.  The storage is formatted
        on first use; --prepare does only that, and exits.

        The broker runs on Kafka's built-in defaults, except that the internal
        topics have one replica (as in the archive's config/server.properties;
        raise with --override for a cluster).  Note that the archive's file
        also sets group.initial.rebalance.delay.ms=0 where the built-in
        default, used here, is 3000.

DIR gets server.properties (or zookeeper.properties), data/, and logs/ with
server.log, controller.log and the GC log.  The broker logs to stdout as well.

Environment
    APACHE_KAFKA_CACHE   directory that holds the installations, one directory
                         per version; default $XDG_CACHE_HOME/apache-kafka,
                         else ~/.cache/apache-kafka
    JAVA_HOME            the java to use; else the one on the PATH
    KAFKA_HEAP_OPTS, KAFKA_JVM_PERFORMANCE_OPTS, KAFKA_GC_LOG_OPTS,
    KAFKA_JMX_OPTS, JMX_PORT, KAFKA_LOG4J_OPTS, KAFKA_OPTS, CLASSPATH
                         as in Kafka's own scripts
"""

import argparse
import fcntl
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

SLF4J_RELOAD4J = "1.7.36"
LOG4J2 = "2.25.3"
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"

# Script -> class.  A bare name is looked up in PACKAGES (classes moved between
# releases, under the same name); one with a dot is the full name.
PACKAGES = ("org.apache.kafka.tools.", "kafka.tools.", "kafka.admin.")
CLASSES = {
    "connect-distributed": "org.apache.kafka.connect.cli.ConnectDistributed",
    "connect-mirror-maker": "org.apache.kafka.connect.mirror.MirrorMaker",
    "connect-plugin-path": "ConnectPluginPath",
    "connect-standalone": "org.apache.kafka.connect.cli.ConnectStandalone",
    "kafka-acls": "AclCommand",
    "kafka-broker-api-versions": "BrokerApiVersionsCommand",
    "kafka-client-metrics": "ClientMetricsCommand",
    "kafka-cluster": "ClusterTool",
    "kafka-configs": "ConfigCommand",
    "kafka-console-consumer": "ConsoleConsumer",
    "kafka-console-producer": "ConsoleProducer",
    "kafka-console-share-consumer": "ConsoleShareConsumer",
    "kafka-consumer-groups": "ConsumerGroupCommand",
    "kafka-consumer-perf-test": "ConsumerPerformance",
    "kafka-delegation-tokens": "DelegationTokenCommand",
    "kafka-delete-records": "DeleteRecordsCommand",
    "kafka-dump-log": "DumpLogSegments",
    "kafka-e2e-latency": "EndToEndLatency",
    "kafka-features": "FeatureCommand",
    "kafka-get-offsets": "GetOffsetShell",
    "kafka-groups": "GroupsCommand",
    "kafka-jmx": "JmxTool",
    "kafka-leader-election": "LeaderElectionCommand",
    "kafka-log-dirs": "LogDirsCommand",
    "kafka-metadata-quorum": "MetadataQuorumCommand",
    "kafka-metadata-shell": "org.apache.kafka.shell.MetadataShell",
    "kafka-mirror-maker": "kafka.tools.MirrorMaker",
    "kafka-preferred-replica-election": "PreferredReplicaLeaderElectionCommand",  # until 2.8
    "kafka-producer-perf-test": "ProducerPerformance",
    "kafka-reassign-partitions": "ReassignPartitionsCommand",
    "kafka-replica-verification": "ReplicaVerificationTool",
    "kafka-server-start": "kafka.Kafka",
    "kafka-share-consumer-perf-test": "ShareConsumerPerformance",
    "kafka-share-groups": "ShareGroupCommand",
    "kafka-storage": "StorageTool",
    "kafka-streams-application-reset": "StreamsResetter",
    "kafka-streams-groups": "StreamsGroupCommand",
    "kafka-topics": "TopicCommand",
    "kafka-transactions": "TransactionsCommand",
    "kafka-verifiable-consumer": "VerifiableConsumer",
    "kafka-verifiable-producer": "VerifiableProducer",
    "kafka-verifiable-share-consumer": "VerifiableShareConsumer",
    "zookeeper-security-migration": "kafka.admin.ZkSecurityMigrator",
    "zookeeper-server-start": "org.apache.zookeeper.server.quorum.QuorumPeerMain",
    "zookeeper-shell": "org.apache.zookeeper.ZooKeeperMainWithTlsSupportForKafka",
}
HEAP = {  # KAFKA_HEAP_OPTS where the script sets it; kafka-run-class.sh: -Xmx256M
    **dict.fromkeys(
        (
            "kafka-console-consumer",
            "kafka-console-producer",
            "kafka-console-share-consumer",
            "kafka-consumer-perf-test",
            "kafka-producer-perf-test",
            "kafka-share-consumer-perf-test",
            "kafka-streams-application-reset",
            "kafka-verifiable-consumer",
            "kafka-verifiable-producer",
            "kafka-verifiable-share-consumer",
        ),
        "-Xmx512M",
    ),
    **dict.fromkeys(
        ("connect-distributed", "connect-mirror-maker", "connect-standalone"), "-Xms256M -Xmx2G"
    ),
    "kafka-server-start": "-Xmx1G -Xms1G",
    "zookeeper-server-start": "-Xmx512M -Xms512M",
}
FIRST = {"zookeeper-shell": ["-server"]}  # arguments that the script itself puts first
SERVERS = (
    "connect-distributed",
    "connect-mirror-maker",
    "connect-standalone",
    "kafka-server-start",
    "zookeeper-server-start",
)  # these log at INFO; the other scripts at WARN to stderr
PERFORMANCE = (
    "-server -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -XX:InitiatingHeapOccupancyPercent=35 "
    "-XX:+ExplicitGCInvokesConcurrent -Djava.awt.headless=true"
)

# The logging configurations, reduced from those of the archive's config/.
RELOAD4J_SERVER = """\
log4j.rootLogger=INFO, stdout, server
log4j.logger.kafka.controller=TRACE, controller
log4j.additivity.kafka.controller=false
log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.PatternLayout
log4j.appender.stdout.layout.ConversionPattern=[%d] %p %m (%c)%n
log4j.appender.server=org.apache.log4j.FileAppender
log4j.appender.server.File=${kafka.logs.dir}/server.log
log4j.appender.server.layout=org.apache.log4j.PatternLayout
log4j.appender.server.layout.ConversionPattern=[%d] %p %m (%c)%n
log4j.appender.controller=org.apache.log4j.FileAppender
log4j.appender.controller.File=${kafka.logs.dir}/controller.log
log4j.appender.controller.layout=org.apache.log4j.PatternLayout
log4j.appender.controller.layout.ConversionPattern=[%d] %p %m (%c)%n
"""
RELOAD4J_TOOLS = """\
log4j.rootLogger=WARN, stderr
log4j.appender.stderr=org.apache.log4j.ConsoleAppender
log4j.appender.stderr.Target=System.err
log4j.appender.stderr.layout=org.apache.log4j.PatternLayout
log4j.appender.stderr.layout.ConversionPattern=[%d] %p %m (%c)%n
"""
LOG4J2_SERVER = """\
<Configuration>
  <Appenders>
    <Console name="stdout"><PatternLayout pattern="[%d] %p %m (%c)%n"/></Console>
    <File name="server" fileName="${sys:kafka.logs.dir}/server.log">
      <PatternLayout pattern="[%d] %p %m (%c)%n"/>
    </File>
    <File name="controller" fileName="${sys:kafka.logs.dir}/controller.log">
      <PatternLayout pattern="[%d] %p %m (%c)%n"/>
    </File>
  </Appenders>
  <Loggers>
    <Root level="INFO"><AppenderRef ref="stdout"/><AppenderRef ref="server"/></Root>
    <Logger name="org.apache.kafka.controller" level="INFO" additivity="false">
      <AppenderRef ref="controller"/>
    </Logger>
  </Loggers>
</Configuration>
"""
LOG4J2_TOOLS = """\
<Configuration>
  <Appenders>
    <Console name="stderr" target="SYSTEM_ERR">
      <PatternLayout pattern="[%d] %p %m (%c)%n"/>
    </Console>
  </Appenders>
  <Loggers><Root level="WARN"><AppenderRef ref="stderr"/></Root></Loggers>
</Configuration>
"""


def major(version):
    return int(version.split(".")[0])


def install_dir(version):
    if not re.fullmatch(r"\d+\.\d+\.\d+(-\w+)?", version):
        sys.exit(f"apache-kafka: {version!r} is not a Kafka version such as 3.9.2")
    return Path(os.environ.get("APACHE_KAFKA_CACHE") or caches() / "apache-kafka") / version


def caches():
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def artifacts(version):
    for name in (
        "kafka_2.13",
        "kafka-tools",
        "kafka-shell",
        "connect-file",
        "connect-mirror",
        "connect-mirror-client",
        "connect-runtime",
        "connect-transforms",
    ):
        yield "org.apache.kafka", name, version
    if major(version) < 4:
        yield "org.slf4j", "slf4j-reload4j", SLF4J_RELOAD4J
    else:
        for name in ("log4j-slf4j-impl", "log4j-core", "log4j-1.2-api"):
            yield "org.apache.logging.log4j", name, LOG4J2


def install(version):
    """Resolve version into its directory unless it exists; return the directory."""

    def fill(temp):
        try:
            copy_jars(temp / "libs", f"apache-kafka-{version}", artifacts(version))
        except RuntimeError as error:
            sys.exit(
                f"{error}\napache-kafka: mvn could not fetch all of Kafka {version}; "
                "a new release can be on Maven Central in part only"
            )
        config = temp / "config"
        config.mkdir()
        if major(version) < 4:
            (config / "server-logging.properties").write_text(RELOAD4J_SERVER)
            (config / "tools-logging.properties").write_text(RELOAD4J_TOOLS)
        else:
            (config / "server-logging.xml").write_text(LOG4J2_SERVER)
            (config / "tools-logging.xml").write_text(LOG4J2_TOOLS)
        (temp / "tools.json").write_text(json.dumps(find_classes(temp / "libs"), indent=1))

    return made_once(install_dir(version), "tools.json", fill)


def made_once(home, last, fill):
    """Return the directory `home`, filled by `fill(directory)` unless it contains the file `last`.

    Concurrent calls are safe: the second waits for the first.
    """
    if (home / last).exists():
        return home
    home.parent.mkdir(parents=True, exist_ok=True)
    with open(home.parent / f".{home.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (home / last).exists():
            return home
        temp = Path(tempfile.mkdtemp(prefix=f".{home.name}.", dir=home.parent))
        try:
            fill(temp)
            shutil.rmtree(home, ignore_errors=True)
            temp.chmod(0o755)
            temp.rename(home)
        finally:
            shutil.rmtree(temp, ignore_errors=True)
    return home


def copy_jars(libs, name, found, alone=False):
    """Fetch these artifacts into `libs`, with their dependencies unless `alone`.

    Raises RuntimeError with the first line of Maven's error.
    """
    nothing_else = (
        "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"
        "</exclusions>"
        if alone
        else ""
    )
    dependencies = "".join(
        f"<dependency><groupId>{g}</groupId><artifactId>{a}</artifactId>"
        f"<version>{v}</version>{nothing_else}</dependency>\n"
        for g, a, v in found
    )
    pom = libs.parent / "pom.xml"
    pom.write_text(
        "<project><modelVersion>4.0.0</modelVersion>\n"
        f"<groupId>local</groupId><artifactId>{name}</artifactId><version>1</version>\n"
        f"<dependencies>\n{dependencies}</dependencies></project>\n"
    )
    words = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={libs}"]
    mvn = subprocess.run(
        ["mvn", "-B", "-q", "-U", "-f", str(pom), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if mvn.returncode:
        errors = [line for line in mvn.stdout.splitlines() if "ERROR]" in line]
        raise RuntimeError("\n".join((errors or mvn.stdout.splitlines())[:1]))


def find_classes(libs):
    """Return the scripts of this release, each with the full name of its class."""
    present = set()
    for jar in libs.glob("*.jar"):
        if jar.name.startswith(("kafka", "connect", "zookeeper")):
            with zipfile.ZipFile(jar) as z:
                present.update(
                    n[:-6].replace("/", ".")
                    for n in z.namelist()
                    if n.endswith(".class") and "$" not in n
                )
    found = {}
    for script, name in CLASSES.items():
        if "." in name:
            matches = [name] if name in present else []
        else:
            matches = [
                c
                for p in PACKAGES
                for c in sorted(present)
                if c.startswith(p) and c.endswith("." + name)
            ]
        if matches:
            found[script] = matches[0]
    return found


def java(version, script, cls, args, logs=None):
    """Return the command line and environment with which `script` of this release starts `cls`."""
    home = install(version)
    env = os.environ
    libs = sorted(str(j) for j in (home / "libs").glob("*.jar"))
    classpath = ":".join(([env["CLASSPATH"]] if env.get("CLASSPATH") else []) + libs)
    options = (env.get("KAFKA_HEAP_OPTS") or HEAP.get(script, "-Xmx256M")).split()
    options += shlex.split(env.get("KAFKA_JVM_PERFORMANCE_OPTS") or PERFORMANCE)
    if logs:
        logs.mkdir(parents=True, exist_ok=True)
        name = "zookeeper" if script.startswith("zookeeper") else "kafkaServer"
        options += shlex.split(
            env.get("KAFKA_GC_LOG_OPTS")
            or f"-Xlog:gc*:file={logs}/{name}-gc.log:time,tags:filecount=10,filesize=100M"
        )
    jmx = (
        "-Dcom.sun.management.jmxremote=true -Dcom.sun.management.jmxremote.authenticate=false "
        "-Dcom.sun.management.jmxremote.ssl=false"
    )
    options += shlex.split(env.get("KAFKA_JMX_OPTS") or jmx)
    if env.get("JMX_PORT"):
        options += [f"-Dcom.sun.management.jmxremote.port={env['JMX_PORT']}"]
    options += [f"-Dkafka.logs.dir={logs or os.getcwd()}"]
    kind = "server" if logs else "tools"
    suffix, key = (
        ("properties", "log4j.configuration")
        if major(version) < 4
        else ("xml", "log4j2.configurationFile")
    )
    options += shlex.split(
        env.get("KAFKA_LOG4J_OPTS") or f"-D{key}=file:{home}/config/{kind}-logging.{suffix}"
    )
    options += ["-cp", classpath, *shlex.split(env.get("KAFKA_OPTS", ""))]
    binary = str(Path(env["JAVA_HOME"], "bin/java")) if env.get("JAVA_HOME") else "java"
    return [binary, *options, cls, *args]


def become(command):
    try:
        os.execvp(command[0], command)
    except FileNotFoundError:
        sys.exit(f"apache-kafka: {command[0]} is not installed")


def run_tool(version, script, args):
    script = re.sub(r"\.sh$", "", script)
    known = json.loads((install(version) / "tools.json").read_text())
    if script == "kafka-run-class":
        if not args:
            sys.exit("apache-kafka: kafka-run-class.sh needs the name of a class")
        cls, *args = args
    elif script in known:
        cls = known[script]
    else:
        sys.exit(f"apache-kafka: Kafka {version} has no {script}.sh")
    become(
        java(
            version,
            script,
            cls,
            FIRST.get(script, []) + args,
            logs=Path.cwd() / "logs" if script in SERVERS else None,
        )
    )


def properties(path, values):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{k}={v}\n" for k, v in values.items()))
    return str(path)


def zookeeper(o):
    if major(o.version) >= 4:
        sys.exit("apache-kafka: Kafka 4 has no ZooKeeper")
    data = Path(o.data).resolve()
    config = properties(
        data / "zookeeper.properties",
        {
            "dataDir": data / "data",
            "clientPort": o.port,
            "clientPortAddress": o.host,
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
        },
    )
    script = "zookeeper-server-start"
    become(java(o.version, script, CLASSES[script], [config], logs=data / "logs"))


def server(o):
    mode = o.mode or ("zookeeper" if o.zookeeper else "kraft")
    data = Path(o.data).resolve()
    values = {
        "log.dirs": data / "data",
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
    }
    listener = f"PLAINTEXT://{o.host}:{o.port}"
    if mode == "zookeeper":
        if major(o.version) >= 4 or not o.zookeeper:
            sys.exit("apache-kafka: ZooKeeper mode needs --zookeeper HOST:PORT and Kafka 3")
        values.update(
            {"broker.id": o.broker_id, "zookeeper.connect": o.zookeeper, "listeners": listener}
        )
    else:
        quorum = o.quorum or f"{o.broker_id}@{o.host}:{o.port + 1}"
        controllers = dict(voter.split("@") for voter in quorum.split(","))
        if str(o.broker_id) not in controllers:
            sys.exit(f"apache-kafka: --quorum does not name node {o.broker_id}")
        values.update(
            {
                "process.roles": "broker,controller",
                "node.id": o.broker_id,
                "controller.quorum.voters": quorum,
                "listeners": f"{listener},CONTROLLER://{controllers[str(o.broker_id)]}",
                "advertised.listeners": listener,
                "controller.listener.names": "CONTROLLER",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            }
        )
        if major(o.version) >= 4:
            values.update(
                {
                    "share.coordinator.state.topic.replication.factor": 1,
                    "share.coordinator.state.topic.min.isr": 1,
                }
            )
    values.update(pair.split("=", 1) for pair in o.override)
    config = properties(data / "server.properties", values)
    if (
        mode == "kraft"
        and not (Path(str(values["log.dirs"]).split(",")[0]) / "meta.properties").exists()
    ):
        cls = json.loads((install(o.version) / "tools.json").read_text())["kafka-storage"]
        subprocess.run(
            java(o.version, "kafka-storage", cls, ["format", "-t", o.cluster_id, "-c", config]),
            check=True,
            stdout=sys.stderr,
        )
    if not o.prepare:
        script = "kafka-server-start"
        become(java(o.version, script, CLASSES[script], [config], logs=data / "logs"))


def main():
    if len(sys.argv) > 3 and sys.argv[1] == "tool":  # the tool parses the rest
        run_tool(sys.argv[2], sys.argv[3], sys.argv[4:])
    parser = argparse.ArgumentParser(
        prog="apache-kafka",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="install|tool|tools|server|zookeeper"
    )
    for name in ("install", "tool", "tools", "server", "zookeeper"):
        command = commands.add_parser(name)
        command.add_argument("version", metavar="VERSION")
        if name == "tool":
            command.add_argument("script", metavar="SCRIPT")
        if name in ("server", "zookeeper"):
            command.add_argument("--data", required=True, metavar="DIR")
            command.add_argument("--port", required=True, type=int, metavar="N")
            command.add_argument(
                "--host", default="127.0.0.1", help="address to listen on [127.0.0.1]"
            )
        if name == "server":
            command.add_argument("--mode", choices=("zookeeper", "kraft"))
            command.add_argument("--broker-id", type=int, default=1, metavar="N")
            command.add_argument("--zookeeper", metavar="HOST:PORT[/CHROOT]")
            command.add_argument("--quorum", metavar="ID@HOST:PORT,...")
            command.add_argument("--cluster-id", default=CLUSTER_ID, metavar="ID")
            command.add_argument("--override", action="append", default=[], metavar="KEY=VALUE")
            command.add_argument("--prepare", action="store_true")
    o = parser.parse_args()
    if o.command == "install":
        print(install(o.version))
    elif o.command == "tools":
        for script, cls in json.loads((install(o.version) / "tools.json").read_text()).items():
            print(f"{script}.sh\t{cls}")
    elif o.command == "server":
        server(o)
    elif o.command == "zookeeper":
        zookeeper(o)


if __name__ == "__main__":
    main()
