// Writes control_frames.txt, from the classes of Apache Kafka 3.9.2's own controller and broker:
//
//     javac -cp 'libs/*' ControlFrames.java && java -cp '.:libs/*' ControlFrames > control_frames.txt
//
// A line is: request or answer, key, version, frame.

import java.nio.ByteBuffer;
import java.util.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.protocol.*;
import org.apache.kafka.common.requests.*;

public class ControlFrames {
    static final Uuid ORDERS = new Uuid(1, 2), LOGS = new Uuid(3, 4);

    public static void main(String[] arguments) {
        for (int version = 0; version <= 7; version++) leaderAndIsr((short) version);
        for (int version = 0; version <= 4; version++) stopReplica((short) version);
        for (int version = 0; version <= 8; version++) updateMetadata((short) version);
        for (int version = 1; version <= 3; version++) controlledShutdown((short) version);
    }

    static void leaderAndIsr(short version) {
        var states = new ArrayList<LeaderAndIsrRequestData.LeaderAndIsrPartitionState>();
        for (String topic : List.of("orders", "logs"))
            for (int partition = 0; partition < 2; partition++) {
                var state = new LeaderAndIsrRequestData.LeaderAndIsrPartitionState()
                    .setTopicName(topic).setPartitionIndex(partition).setControllerEpoch(5)
                    .setLeader(2).setLeaderEpoch(6 + partition).setIsr(List.of(2, 3))
                    .setPartitionEpoch(7).setReplicas(List.of(2, 3, 4));
                if (version >= 1) state.setIsNew(partition == 1);
                if (version >= 3) state.setAddingReplicas(List.of(4)).setRemovingReplicas(List.of(3));
                if (version >= 6) state.setLeaderRecoveryState((byte) partition);
                states.add(state);
            }
        var request = new LeaderAndIsrRequest.Builder(version, 1, 5, 99L, states,
            Map.of("orders", ORDERS, "logs", LOGS), List.of(new Node(2, "h\u00f6st", 9092)));
        request(ApiKeys.LEADER_AND_ISR, version, request.build(version).data());
        var data = new LeaderAndIsrResponseData().setErrorCode((short) 11);
        var error = new LeaderAndIsrResponseData.LeaderAndIsrPartitionError()
            .setPartitionIndex(1).setErrorCode((short) 56);
        if (version < 5)
            data.setPartitionErrors(List.of(error.setTopicName("orders")));
        else {
            var topics = new LeaderAndIsrResponseData.LeaderAndIsrTopicErrorCollection();
            topics.add(new LeaderAndIsrResponseData.LeaderAndIsrTopicError()
                .setTopicId(ORDERS).setPartitionErrors(List.of(error)));
            data.setTopics(topics);
        }
        answer(ApiKeys.LEADER_AND_ISR, version, data);
    }

    static void stopReplica(short version) {
        var topics = new ArrayList<StopReplicaRequestData.StopReplicaTopicState>();
        for (String topic : List.of("orders", "logs")) {
            var partitions = new ArrayList<StopReplicaRequestData.StopReplicaPartitionState>();
            for (int partition = 0; partition < 2; partition++)
                partitions.add(new StopReplicaRequestData.StopReplicaPartitionState()
                    .setPartitionIndex(partition).setLeaderEpoch(8)
                    .setDeletePartition(version < 3 || partition == 1));
            topics.add(new StopReplicaRequestData.StopReplicaTopicState()
                .setTopicName(topic).setPartitionStates(partitions));
        }
        var request = new StopReplicaRequest.Builder(version, 1, 5, 99L, true, topics);
        request(ApiKeys.STOP_REPLICA, version, request.build(version).data());
        answer(ApiKeys.STOP_REPLICA, version, new StopReplicaResponseData().setErrorCode((short) 77)
            .setPartitionErrors(List.of(new StopReplicaResponseData.StopReplicaPartitionError()
                .setTopicName("orders").setPartitionIndex(1).setErrorCode((short) 74))));
    }

    static void updateMetadata(short version) {
        var states = new ArrayList<UpdateMetadataRequestData.UpdateMetadataPartitionState>();
        for (String topic : List.of("orders", "logs"))
            for (int partition = 0; partition < 2; partition++) {
                var state = new UpdateMetadataRequestData.UpdateMetadataPartitionState()
                    .setTopicName(topic).setPartitionIndex(partition).setControllerEpoch(5)
                    .setLeader(-2 + partition).setLeaderEpoch(6).setIsr(List.of(2))
                    .setZkVersion(7).setReplicas(List.of(2, 3));
                if (version >= 4) state.setOfflineReplicas(List.of(3));
                states.add(state);
            }
        var broker = new UpdateMetadataRequestData.UpdateMetadataBroker().setId(2);
        if (version >= 2) broker.setRack("r1");
        var endpoints = new ArrayList<UpdateMetadataRequestData.UpdateMetadataEndpoint>();
        endpoints.add(endpoint(version, 9092, "PLAINTEXT", 0));
        if (version >= 1) endpoints.add(endpoint(version, 9093, version >= 3 ? "IN" : "SSL", 1));
        broker.setEndpoints(endpoints);
        var bare = new UpdateMetadataRequestData.UpdateMetadataBroker().setId(3).setRack(null)
            .setEndpoints(List.of(endpoint(version, 9094, "PLAINTEXT", 0)));
        var request = new UpdateMetadataRequest.Builder(version, 1, 5, 99L, states,
            List.of(broker, bare), Map.of("orders", ORDERS, "logs", LOGS));
        request(ApiKeys.UPDATE_METADATA, version, request.build(version).data());
        answer(ApiKeys.UPDATE_METADATA, version,
            new UpdateMetadataResponseData().setErrorCode((short) 11));
    }

    static UpdateMetadataRequestData.UpdateMetadataEndpoint endpoint(
            short version, int port, String listener, int protocol) {
        return new UpdateMetadataRequestData.UpdateMetadataEndpoint().setHost("h\u00f6st")
            .setPort(port).setListener(listener).setSecurityProtocol((short) protocol);
    }

    static void controlledShutdown(short version) {
        var request = new ControlledShutdownRequestData().setBrokerId(2).setBrokerEpoch(99L);
        request(ApiKeys.CONTROLLED_SHUTDOWN, version,
            new ControlledShutdownRequest.Builder(request, version).build(version).data());
        var remaining = new ControlledShutdownResponseData.RemainingPartitionCollection();
        remaining.add(new ControlledShutdownResponseData.RemainingPartition()
            .setTopicName("orders").setPartitionIndex(1));
        answer(ApiKeys.CONTROLLED_SHUTDOWN, version, new ControlledShutdownResponseData()
            .setErrorCode((short) 77).setRemainingPartitions(remaining));
    }

    static void request(ApiKeys key, int version, ApiMessage message) {
        RequestHeader header = new RequestHeader(key, (short) version, "client-1", 77);
        print("request", key, version, header.data(), header.headerVersion(), message);
    }

    static void answer(ApiKeys key, int version, ApiMessage message) {
        ResponseHeaderData header = new ResponseHeaderData().setCorrelationId(77);
        print("answer", key, version, header, key.responseHeaderVersion((short) version), message);
    }

    static void print(String kind, ApiKeys key, int version, Message header, short headerVersion,
            ApiMessage message) {
        var cache = new ObjectSerializationCache();
        var size = new MessageSizeAccumulator();
        header.addSize(size, cache, headerVersion);
        message.addSize(size, cache, (short) version);
        ByteBuffer frame = ByteBuffer.allocate(4 + size.totalSize());
        frame.putInt(size.totalSize());
        var writable = new ByteBufferAccessor(frame);
        header.write(writable, cache, headerVersion);
        message.write(writable, cache, (short) version);
        System.out.println(kind + " " + key.id + " " + version + " "
            + HexFormat.of().formatHex(frame.array()));
    }
}
