import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Apache's own client, driven by steps.py: a call a line on standard input, its answer a line on
 * standard output.  Clients stay open, by the address they are for. */
public class Client {
    static final ObjectMapper JSON = new ObjectMapper();
    static final Base64.Encoder TO_TEXT = Base64.getEncoder();
    static final Base64.Decoder FROM_TEXT = Base64.getDecoder();

    final String address;
    final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();
    KafkaConsumer<byte[], byte[]> consumer;
    Admin admin;

    Client(String address) {
        this.address = address;
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err);
        Map<String, Client> clients = new HashMap<>();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode call = JSON.readTree(line);
            String at = call.get("at").asText();
            Map<String, Object> answer = new HashMap<>();
            try {
                Client client = clients.computeIfAbsent(at, Client::new);
                answer.put("result", client.answer(call));
                if (call.get("call").asText().equals("close")) clients.remove(at);
            } catch (Exception failure) {
                Throwable cause = failure instanceof ExecutionException ? failure.getCause() : failure;
                // The consumer's own exception is not among the protocol's.
                answer.put("refused", cause instanceof OffsetOutOfRangeException
                    ? Errors.OFFSET_OUT_OF_RANGE.code() : Errors.forException(cause).code());
                answer.put("text", cause.toString());
            }
            out.println(JSON.writeValueAsString(answer));
            out.flush();
        }
    }

    Object answer(JsonNode call) throws Exception {
        String topic = call.path("topic").asText();
        int partitions = call.path("partitions").asInt();
        switch (call.get("call").asText()) {
            case "produce":
                return produce(call, topic);
            case "consume":
                return consume(call, topic);
            case "offsets":
                return offsets(call, new TopicPartition(topic, call.get("partition").asInt()));
            case "create":
                Map<String, String> config = JSON.convertValue(call.get("config"), Map.class);
                NewTopic created = new NewTopic(topic, partitions, (short) 1).configs(config);
                return admin().createTopics(List.of(created)).all().get();
            case "topics":
                return admin().listTopics().names().get();
            case "partitions":
                return admin().describeTopics(List.of(topic)).allTopicNames().get().get(topic)
                    .partitions().size();
            case "grow":
                return admin().createPartitions(Map.of(topic, NewPartitions.increaseTo(partitions)))
                    .all().get();
            case "config":
                return config(new ConfigResource(ConfigResource.Type.TOPIC, topic));
            case "delete":
                return admin().deleteTopics(List.of(topic)).all().get();
            case "close":
                producers.values().forEach(producer -> producer.close(Duration.ofSeconds(5)));
                if (consumer != null) consumer.close();
                if (admin != null) admin.close(Duration.ofSeconds(5));
                return null;
            default:
                throw new IllegalArgumentException(call.toString());
        }
    }

    Map<String, Object> settings(Map<String, Object> own) {
        Map<String, Object> all = new HashMap<>(own);
        all.put("bootstrap.servers", address);
        all.put("reconnect.backoff.max.ms", 200);
        return all;
    }

    Admin admin() {
        if (admin == null) admin = Admin.create(settings(Map.of()));
        return admin;
    }

    List<Long> produce(JsonNode call, String topic) throws Exception {
        String codec = call.get("codec").asText();
        boolean idempotent = call.get("idempotent").asBoolean();
        KafkaProducer<byte[], byte[]> producer = producers.computeIfAbsent(
            codec + idempotent + call.get("patience_ms"),
            key -> new KafkaProducer<>(
                settings(Map.of(
                    "compression.type", codec,
                    "enable.idempotence", idempotent,
                    "linger.ms", call.get("linger_ms").asInt(),
                    "batch.size", call.get("batch_bytes").asInt(),
                    "max.request.size", call.get("max_request_bytes").asInt(),
                    "max.block.ms", call.get("patience_ms").asInt())),
                new ByteArraySerializer(), new ByteArraySerializer()));
        List<Future<RecordMetadata>> sending = new ArrayList<>();
        for (JsonNode one : call.get("records")) {
            JsonNode timestamp = one.get("timestamp");
            ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(
                topic, one.get("partition").asInt(), timestamp.isNull() ? null : timestamp.asLong(),
                bytes(one.get("key")), bytes(one.get("value")));
            for (JsonNode header : one.get("headers"))
                record.headers().add(header.get(0).asText(), bytes(header.get(1)));
            sending.add(producer.send(record));
        }
        producer.flush();
        List<Long> offsets = new ArrayList<>();
        for (Future<RecordMetadata> sent : sending) offsets.add(sent.get().offset());
        return offsets;
    }

    List<Object> consume(JsonNode call, String topic) {
        if (consumer == null)
            consumer = new KafkaConsumer<>(
                settings(Map.of("auto.offset.reset", "none", "fetch.max.wait.ms", 50)),
                new ByteArrayDeserializer(), new ByteArrayDeserializer());
        Map<TopicPartition, Long> starts = new HashMap<>();
        call.get("starts").fields().forEachRemaining(start ->
            starts.put(new TopicPartition(topic, Integer.parseInt(start.getKey())), start.getValue().asLong()));
        consumer.assign(starts.keySet());
        starts.forEach(consumer::seek);
        List<Object> records = new ArrayList<>();
        long deadline = System.nanoTime() + call.get("timeout_s").asLong() * 1_000_000_000L;
        while (records.size() < call.get("count").asInt() && System.nanoTime() < deadline)
            for (ConsumerRecord<byte[], byte[]> one : consumer.poll(Duration.ofMillis(500)))
                records.add(record(one));
        return records.subList(0, Math.min(records.size(), call.get("count").asInt()));
    }

    static Object record(ConsumerRecord<byte[], byte[]> one) {
        List<Object> headers = new ArrayList<>();
        for (Header header : one.headers()) {
            List<String> pair = new ArrayList<>();
            pair.add(header.key());
            pair.add(text(header.value()));
            headers.add(pair);
        }
        Map<String, Object> record = new HashMap<>();
        record.put("value", text(one.value()));
        record.put("key", text(one.key()));
        record.put("headers", headers);
        record.put("timestamp", one.timestamp());
        record.put("partition", one.partition());
        record.put("offset", one.offset());
        record.put("timestamp_type", one.timestampType() == TimestampType.CREATE_TIME ? "create" : "append");
        return record;
    }

    List<Long> offsets(JsonNode call, TopicPartition where) throws Exception {
        List<Long> offsets = new ArrayList<>();
        for (JsonNode time : call.get("times")) {
            OffsetSpec spec = time.asLong() == -1 ? OffsetSpec.latest()
                : time.asLong() == -2 ? OffsetSpec.earliest()
                : OffsetSpec.forTimestamp(time.asLong());
            offsets.add(admin().listOffsets(Map.of(where, spec)).partitionResult(where).get().offset());
        }
        return offsets;
    }

    Map<String, String> config(ConfigResource topic) throws Exception {
        Map<String, String> values = new TreeMap<>();
        admin().describeConfigs(List.of(topic)).all().get().get(topic).entries()
            .forEach(entry -> values.put(entry.name(), entry.value()));
        return values;
    }

    static byte[] bytes(JsonNode text) {
        return text.isNull() ? null : FROM_TEXT.decode(text.asText());
    }

    static String text(byte[] bytes) {
        return bytes == null ? null : TO_TEXT.encodeToString(bytes);
    }
}
