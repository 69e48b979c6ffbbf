// kafkajs, driven by steps.py: a call a line on standard input, its answer a line on standard
// output.  It consumes in groups alone, so here it produces and administers.
import kafkajs from "kafkajs";
import snappy from "kafkajs-snappy";
import readline from "node:readline";

const { CompressionCodecs, CompressionTypes, ConfigResourceTypes, Kafka, logLevel, Partitioners } =
  kafkajs;
CompressionCodecs[CompressionTypes.Snappy] = snappy;
const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
};
const TOPIC_ALREADY_EXISTS = 36;
const EARLIEST = -2;
const LATEST = -1;

const bytes = (text) => (text === null ? null : Buffer.from(text, "base64"));

class Refused extends Error {
  constructor(code) {
    super(`error ${code}`);
    this.code = code;
  }
}

class Client {
  producers = new Map();

  constructor(address) {
    this.address = address;
    this.openedAdmin = null;
  }

  kafka(patienceMs) {
    return new Kafka({
      brokers: [this.address],
      logLevel: logLevel.NOTHING,
      retry: { initialRetryTime: 50, maxRetryTime: 1000, retries: patienceMs > 1000 ? 20 : 3 },
    });
  }

  async admin() {
    if (this.openedAdmin === null) {
      this.openedAdmin = this.kafka(1000).admin();
      await this.openedAdmin.connect();
    }
    return this.openedAdmin;
  }

  async producer(call) {
    const key = `${call.idempotent} ${call.patience_ms}`;
    if (!this.producers.has(key)) {
      const producer = this.kafka(call.patience_ms).producer({
        idempotent: call.idempotent,
        maxInFlightRequests: call.idempotent ? 1 : null,
        createPartitioner: Partitioners.DefaultPartitioner,
      });
      await producer.connect();
      this.producers.set(key, producer);
    }
    return this.producers.get(key);
  }

  async produce(call) {
    const producer = await this.producer(call);
    const messages = call.records.map((record) => ({
      key: bytes(record.key),
      value: bytes(record.value),
      partition: record.partition,
      ...(record.timestamp === null ? {} : { timestamp: String(record.timestamp) }),
      headers: headers(record.headers),
    }));
    const compression = CODECS[call.codec];
    const sent = await producer.send({ topic: call.topic, acks: -1, compression, messages });
    const next = new Map(sent.map((one) => [one.partition, Number(one.baseOffset)]));
    return messages.map(({ partition }) => {
      const offset = next.get(partition);
      next.set(partition, offset + 1);
      return offset;
    });
  }

  async offsets(call) {
    const admin = await this.admin();
    const found = [];
    for (const time of call.times) {
      const all =
        time === EARLIEST || time === LATEST
          ? await admin.fetchTopicOffsets(call.topic)
          : await admin.fetchTopicOffsetsByTimestamp(call.topic, time);
      const one = all.find(({ partition }) => partition === call.partition);
      found.push(Number(time === EARLIEST ? one.low : one.offset));
    }
    return found;
  }

  async create(call) {
    const configEntries = Object.entries(call.config).map(([name, value]) => ({ name, value }));
    const topic = { topic: call.topic, numPartitions: call.partitions, configEntries };
    const made = await (await this.admin()).createTopics({ topics: [topic] });
    if (!made) throw new Refused(TOPIC_ALREADY_EXISTS); // kafkajs says no more than false
    return null;
  }

  async topics() {
    return await (await this.admin()).listTopics();
  }

  async partitions(call) {
    const { topics } = await (await this.admin()).fetchTopicMetadata({ topics: [call.topic] });
    return topics[0].partitions.length;
  }

  async grow(call) {
    const topicPartitions = [{ topic: call.topic, count: call.partitions }];
    await (await this.admin()).createPartitions({ topicPartitions });
    return null;
  }

  async config(call) {
    const resources = [{ type: ConfigResourceTypes.TOPIC, name: call.topic }];
    const { resources: told } = await (await this.admin()).describeConfigs({ resources });
    return Object.fromEntries(
      told[0].configEntries.map(({ configName, configValue }) => [configName, configValue]),
    );
  }

  async delete(call) {
    await (await this.admin()).deleteTopics({ topics: [call.topic] });
    return null;
  }

  async close() {
    for (const producer of this.producers.values()) await producer.disconnect();
    if (this.openedAdmin !== null) await this.openedAdmin.disconnect();
    return null;
  }
}

function headers(pairs) {
  const grouped = {};
  for (const [name, value] of pairs) (grouped[name] ??= []).push(bytes(value));
  return grouped;
}

// The protocol's error code, however deep kafkajs has wrapped it.
function code(error) {
  for (const inner of [error, ...(error.errors ?? []), error.cause ?? {}])
    if (typeof inner.code === "number") return inner.code;
  return -1;
}

const clients = new Map();
for await (const line of readline.createInterface({ input: process.stdin })) {
  const call = JSON.parse(line);
  if (!clients.has(call.at)) clients.set(call.at, new Client(call.at));
  let answer;
  try {
    answer = { result: await clients.get(call.at)[call.call](call) };
  } catch (error) {
    answer = { refused: code(error), text: error.stack };
  }
  if (call.call === "close") clients.delete(call.at);
  process.stdout.write(JSON.stringify(answer) + "\n");
}
