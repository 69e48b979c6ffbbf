// Writes frames.txt, from the classes that Apache Kafka's own clients and broker use:
//
//     javac -cp 'libs/*' Frames.java && java -cp '.:libs/*' Frames > frames.txt
//
// with the libs of Apache Kafka 4.3.1.

import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.List;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.protocol.*;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.*;
import org.apache.kafka.common.requests.RequestHeader;

public class Frames {
    static final long NOW = 1700000000000L;

    public static void main(String[] arguments) {
        Header[] headers = {
            new RecordHeader("h\u00e9", (byte[]) null), new RecordHeader("trace", "1234".getBytes())
        };
        SimpleRecord[] records = {
            new SimpleRecord(NOW, "key".getBytes(), "value".getBytes(), headers),
            new SimpleRecord(NOW - 100, null, "x".repeat(100).getBytes()),
            new SimpleRecord(NOW + 100_000, "".getBytes(), null)
        };
        for (CompressionType type : CompressionType.values())
            print("batch", type.name.toString(), MemoryRecords.withRecords(
                RecordBatch.MAGIC_VALUE_V2, 42, Compression.of(type).build(),
                TimestampType.CREATE_TIME, 4000, (short) 5, 7, 3, true, records).buffer());
        for (ControlRecordType type : List.of(ControlRecordType.ABORT, ControlRecordType.COMMIT))
            print("marker", type.name().toLowerCase(), MemoryRecords.withEndTransactionMarker(
                9, NOW, 2, 4000, (short) 5, new EndTransactionMarker(type, 11)).buffer());
        requests();
        answers();
    }

    static void requests() {
        request(ApiKeys.API_VERSIONS, 0, new ApiVersionsRequestData());
        request(ApiKeys.API_VERSIONS, 3, new ApiVersionsRequestData()
            .setClientSoftwareName("apache-kafka-java").setClientSoftwareVersion("4.3.1"));
        for (int version : new int[] {1, 9, 13})
            request(ApiKeys.METADATA, version, new MetadataRequestData().setTopics(List.of(
                new MetadataRequestData.MetadataRequestTopic().setName("orders"))));
        ByteBuffer records = MemoryRecords.withRecords(
            0L, Compression.NONE, new SimpleRecord(NOW, "v".getBytes())).buffer();
        for (int version : new int[] {3, 9}) {
            var partition = new ProduceRequestData.PartitionProduceData()
                .setIndex(2).setRecords(MemoryRecords.readableRecords(records.duplicate()));
            var topic = new ProduceRequestData.TopicProduceData()
                .setName("orders").setPartitionData(List.of(partition));
            var topics = new ProduceRequestData.TopicProduceDataCollection();
            topics.add(topic);
            request(ApiKeys.PRODUCE, version, new ProduceRequestData()
                .setAcks((short) -1).setTimeoutMs(1500).setTopicData(topics));
        }
        for (int version : new int[] {4, 12})
            request(ApiKeys.FETCH, version, new FetchRequestData()
                .setMaxWaitMs(500).setMinBytes(1).setMaxBytes(1 << 20).setIsolationLevel((byte) 1)
                .setTopics(List.of(new FetchRequestData.FetchTopic().setTopic("orders")
                    .setPartitions(List.of(new FetchRequestData.FetchPartition()
                        .setPartition(2).setFetchOffset(99).setPartitionMaxBytes(1 << 20))))));
        request(ApiKeys.HEARTBEAT, 4, new HeartbeatRequestData()
            .setGroupId("g").setMemberId("m-1").setGenerationId(7).setGroupInstanceId("i"));
    }

    static void answers() {
        for (int version : new int[] {0, 3}) {
            var keys = new ApiVersionsResponseData.ApiVersionCollection();
            keys.add(new ApiVersionsResponseData.ApiVersion()
                .setApiKey((short) 18).setMinVersion((short) 0).setMaxVersion((short) 4));
            answer(ApiKeys.API_VERSIONS, version, new ApiVersionsResponseData().setApiKeys(keys));
        }
        for (int version : new int[] {1, 12}) {
            var brokers = new MetadataResponseData.MetadataResponseBrokerCollection();
            brokers.add(new MetadataResponseData.MetadataResponseBroker()
                .setNodeId(1).setHost("localhost").setPort(9092));
            var topics = new MetadataResponseData.MetadataResponseTopicCollection();
            topics.add(new MetadataResponseData.MetadataResponseTopic().setName("orders")
                .setTopicId(version >= 10 ? new Uuid(1, 2) : Uuid.ZERO_UUID)
                .setPartitions(List.of(new MetadataResponseData.MetadataResponsePartition()
                    .setPartitionIndex(0).setLeaderId(1).setLeaderEpoch(4)
                    .setReplicaNodes(List.of(1)).setIsrNodes(List.of(1)))));
            answer(ApiKeys.METADATA, version, new MetadataResponseData().setClusterId("c")
                .setControllerId(1).setBrokers(brokers).setTopics(topics));
        }
        for (int version : new int[] {8, 9}) {
            var topics = new ProduceResponseData.TopicProduceResponseCollection();
            topics.add(new ProduceResponseData.TopicProduceResponse().setName("orders")
                .setPartitionResponses(List.of(new ProduceResponseData.PartitionProduceResponse()
                    .setIndex(2).setErrorCode((short) 6).setErrorMessage("not here")
                    .setBaseOffset(-1))));
            answer(ApiKeys.PRODUCE, version, new ProduceResponseData().setResponses(topics));
        }
        answer(ApiKeys.HEARTBEAT, 4, new HeartbeatResponseData().setErrorCode((short) 27));
    }

    static void request(ApiKeys key, int version, ApiMessage message) {
        RequestHeader header = new RequestHeader(key, (short) version, "client-1", 77);
        ByteBuffer frame = frame(header.data(), header.headerVersion(), message, version);
        print("request", key.id + " " + version, frame);
    }

    static void answer(ApiKeys key, int version, ApiMessage message) {
        ResponseHeaderData header = new ResponseHeaderData().setCorrelationId(77);
        short headerVersion = key.responseHeaderVersion((short) version);
        print("answer", key.id + " " + version, frame(header, headerVersion, message, version));
    }

    static ByteBuffer frame(Message header, short headerVersion, Message message, int version) {
        var cache = new ObjectSerializationCache();
        var size = new MessageSizeAccumulator();
        header.addSize(size, cache, headerVersion);
        message.addSize(size, cache, (short) version);
        ByteBuffer frame = ByteBuffer.allocate(4 + size.totalSize());
        frame.putInt(size.totalSize());
        var writable = new ByteBufferAccessor(frame);
        header.write(writable, cache, headerVersion);
        message.write(writable, cache, (short) version);
        frame.flip();
        return frame;
    }

    static void print(String kind, String name, ByteBuffer bytes) {
        byte[] copy = new byte[bytes.remaining()];
        bytes.duplicate().get(copy);
        System.out.println(kind + " " + name + " " + HexFormat.of().formatHex(copy));
    }
}
