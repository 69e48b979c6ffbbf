// kafkajs as a member: the options and events of members/events.py.
import kafkajs from "kafkajs";
import { parseArgs } from "node:util";

const { AssignerProtocol, Kafka, logLevel } = kafkajs;
const { values: given } = parseArgs({
  options: Object.fromEntries(
    [
      "bootstrap-server",
      "topic",
      "group-id",
      "group-instance-id",
      "assignment-strategy",
      "session-timeout",
      "group-protocol",
    ].map((name) => [name, { type: "string" }]),
  ),
});

const tell = (name, fields = {}) =>
  process.stdout.write(JSON.stringify({ name, ...fields }) + "\n");

// kafkajs brings none that other libraries know.
const range = ({ cluster }) => ({
  name: "range",
  version: 0,
  protocol: ({ topics }) => ({
    name: "range",
    metadata: AssignerProtocol.MemberMetadata.encode({ version: 0, topics }),
  }),
  assign: async ({ members, topics }) => {
    const ids = members.map(({ memberId }) => memberId).sort();
    const assigned = Object.fromEntries(ids.map((id) => [id, {}]));
    for (const topic of topics) {
      const count = cluster.findTopicPartitionMetadata(topic).length;
      const [each, left] = [Math.floor(count / ids.length), count % ids.length];
      let next = 0;
      ids.forEach((id, index) => {
        const size = each + (index < left ? 1 : 0);
        assigned[id][topic] = Array.from({ length: size }, (_, at) => next + at);
        next += size;
      });
    }
    return ids.map((memberId) => ({
      memberId,
      memberAssignment: AssignerProtocol.MemberAssignment.encode({
        version: 0,
        assignment: assigned[memberId],
      }),
    }));
  },
});

const sessionTimeout = Number(given["session-timeout"] ?? 30000);
const kafka = new Kafka({
  brokers: [given["bootstrap-server"]],
  logLevel: logLevel.NOTHING,
  retry: { initialRetryTime: 50, maxRetryTime: 1000, retries: 50 },
});
const consumer = kafka.consumer({
  groupId: given["group-id"],
  sessionTimeout,
  heartbeatInterval: Math.min(sessionTimeout / 3, 500),
  maxWaitTimeInMs: 50,
  partitionAssigners: [range],
});
let owned = [];
const give = () => {
  if (owned.length) tell("partitions_revoked", { partitions: owned });
  owned = [];
};
consumer.on(consumer.events.REBALANCING, give);
consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
  give();
  owned = Object.entries(payload.memberAssignment).flatMap(([topic, partitions]) =>
    partitions.map((partition) => ({ topic, partition })),
  );
  tell("partitions_assigned", { partitions: owned });
});
process.on("SIGTERM", async () => {
  await consumer.disconnect();
  tell("shutdown_complete");
  process.exit(0);
});
await consumer.connect();
await consumer.subscribe({ topic: given.topic, fromBeginning: true });
await consumer.run({
  autoCommitThreshold: 1,
  eachMessage: async ({ topic, partition, message }) =>
    tell("record_data", {
      topic,
      partition,
      offset: Number(message.offset),
      value: message.value.toString(),
    }),
});
