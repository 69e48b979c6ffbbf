// What kafka_exporter and Burrow ask of a broker, through sarama; and what tools on it, such as
// kaf and kafkactl, ask as administrators.
//
//	exporter ADDRESS TOPIC LIVE LEFT
//
// The topic has three partitions, with five records of partition 0; LIVE and LEFT are groups of it.
package main

import (
	"fmt"
	"os"
	"time"

	"clients/checks"

	"github.com/IBM/sarama"
)

// The exporter's default; administrators' calls came later.
var exporters, administrators = sarama.V2_0_0_0, sarama.V3_0_0_0

func main() {
	address, topic := os.Args[1], os.Args[2]
	client := open(address, exporters)
	defer client.Close()
	admin, err := sarama.NewClusterAdminFromClient(open(address, administrators))
	if err != nil {
		panic(err)
	}
	defer admin.Close()
	a := asker{client, admin, topic}
	checks.Run([]checks.Check{
		{Name: "brokers", Call: a.brokers},
		{Name: "topics", Call: a.topics},
		{Name: "partitions: leader, replicas, in sync", Call: a.partitions},
		{Name: "newest offsets", Call: a.offsets(sarama.OffsetNewest)},
		{Name: "oldest offsets", Call: a.offsets(sarama.OffsetOldest)},
		{Name: "offsets of many partitions at their leader", Call: a.offsetsAtLeader},
		{Name: "cluster", Call: a.cluster},
		{Name: "topic details", Call: a.details},
		{Name: "topic config", Call: a.topicConfig},
		{Name: "broker config", Call: a.brokerConfig},
		{Name: "log dirs: bytes of the topic", Call: a.logDirs},
		{Name: "incremental alter config", Call: a.incrementalAlter},
		{Name: "alter config", Call: a.alter},
		{Name: "client quotas", Call: a.quotas},
		{Name: "delete records", Call: a.deleteRecords},
		{Name: "create partitions", Call: a.createPartitions},
		{Name: "a topic made and deleted", Call: a.createAndDelete},
	})
	checks.Run(a.groupChecks(os.Args[3], os.Args[4]))
}

func open(address string, version sarama.KafkaVersion) sarama.Client {
	config := sarama.NewConfig()
	config.Version = version
	client, err := sarama.NewClient([]string{address}, config)
	if err != nil {
		panic(err)
	}
	return client
}

type asker struct {
	client sarama.Client
	admin  sarama.ClusterAdmin
	topic  string
}

func (a asker) brokers() (any, error) {
	return len(a.client.Brokers()), a.client.RefreshMetadata()
}

func (a asker) topics() (any, error) {
	topics, err := a.client.Topics()
	for _, topic := range topics {
		if topic == a.topic {
			return true, err
		}
	}
	return false, err
}

func (a asker) partitions() (any, error) {
	partitions, err := a.client.Partitions(a.topic)
	if err != nil {
		return nil, err
	}
	found := []string{}
	for _, partition := range partitions {
		leader, err := a.client.Leader(a.topic, partition)
		if err != nil {
			return nil, err
		}
		replicas, err := a.client.Replicas(a.topic, partition)
		if err != nil {
			return nil, err
		}
		inSync, err := a.client.InSyncReplicas(a.topic, partition)
		if err != nil {
			return nil, err
		}
		preferred := len(replicas) == 1 && replicas[0] == leader.ID()
		found = append(found, fmt.Sprint(partition, preferred && len(inSync) == 1))
	}
	return found, nil
}

func (a asker) offsets(time int64) func() (any, error) {
	return func() (any, error) {
		found := []int64{}
		for partition := int32(0); partition < 3; partition++ {
			offset, err := a.client.GetOffset(a.topic, partition, time)
			if err != nil {
				return nil, err
			}
			found = append(found, offset)
		}
		return found, nil
	}
}

// As Burrow does: one request to each leader.  Kafka 4 took version 0 out of its protocol.
func (a asker) offsetsAtLeader() (any, error) {
	leader, err := a.client.Leader(a.topic, 0)
	if err != nil {
		return nil, err
	}
	request := &sarama.OffsetRequest{Version: 1}
	for partition := int32(0); partition < 3; partition++ {
		request.AddBlock(a.topic, partition, sarama.OffsetNewest, 1)
	}
	answer, err := leader.GetAvailableOffsets(request)
	if err != nil {
		return nil, err
	}
	found := []int64{}
	for partition := int32(0); partition < 3; partition++ {
		block := answer.GetBlock(a.topic, partition)
		if block == nil || block.Err != sarama.ErrNoError {
			return nil, fmt.Errorf("partition %d: %v", partition, block)
		}
		found = append(found, block.Offset)
	}
	return found, nil
}

func (a asker) cluster() (any, error) {
	brokers, controller, err := a.admin.DescribeCluster()
	if err != nil {
		return nil, err
	}
	return len(brokers) == 1 && brokers[0].ID() == controller, nil
}

func (a asker) details() (any, error) {
	topics, err := a.admin.ListTopics()
	if err != nil {
		return nil, err
	}
	detail := topics[a.topic]
	set := detail.ConfigEntries["segment.bytes"]
	return []any{detail.NumPartitions, detail.ReplicationFactor, set}, nil
}

func (a asker) config(kind sarama.ConfigResourceType, name string, key string) (any, error) {
	entries, err := a.admin.DescribeConfig(sarama.ConfigResource{Type: kind, Name: name})
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		if entry.Name == key {
			return []string{entry.Value, entry.Source.String()}, nil
		}
	}
	return nil, fmt.Errorf("no %s", key)
}

func (a asker) topicConfig() (any, error) {
	return a.config(sarama.TopicResource, a.topic, "retention.ms")
}

func (a asker) brokerConfig() (any, error) {
	id := a.client.Brokers()[0].ID()
	return a.config(sarama.BrokerResource, fmt.Sprint(id), "num.partitions")
}

func (a asker) logDirs() (any, error) {
	described, err := a.admin.DescribeLogDirs([]int32{a.client.Brokers()[0].ID()})
	if err != nil {
		return nil, err
	}
	bytes := int64(0)
	for _, directories := range described {
		for _, directory := range directories {
			if directory.ErrorCode != sarama.ErrNoError {
				return nil, directory.ErrorCode
			}
			for _, topic := range directory.Topics {
				for _, partition := range topic.Partitions {
					if topic.Topic == a.topic {
						bytes += partition.Size
					}
				}
			}
		}
	}
	return bytes > 0, nil
}

func (a asker) incrementalAlter() (any, error) {
	week := "604800001"
	entries := map[string]sarama.IncrementalAlterConfigsEntry{
		"retention.ms": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &week},
	}
	if err := a.admin.IncrementalAlterConfig(sarama.TopicResource, a.topic, entries, false); err != nil {
		return nil, err
	}
	return a.topicConfig()
}

func (a asker) alter() (any, error) {
	day := "86400000"
	entries := map[string]*string{"retention.ms": &day}
	if err := a.admin.AlterConfig(sarama.TopicResource, a.topic, entries, false); err != nil {
		return nil, err
	}
	return a.topicConfig()
}

func (a asker) quotas() (any, error) {
	components := []sarama.QuotaEntityComponent{
		{EntityType: sarama.QuotaEntityClientID, MatchType: sarama.QuotaMatchExact, Name: "exporter"},
	}
	op := sarama.ClientQuotasOp{Key: "consumer_byte_rate", Value: 1048576}
	describe := func() ([]string, error) {
		filter := []sarama.QuotaFilterComponent{
			{EntityType: sarama.QuotaEntityClientID, MatchType: sarama.QuotaMatchExact, Match: "exporter"},
		}
		described, err := a.admin.DescribeClientQuotas(filter, true)
		found := []string{}
		for _, entry := range described {
			for key, value := range entry.Values {
				found = append(found, fmt.Sprintf("%s=%v", key, value))
			}
		}
		return found, err
	}
	if err := a.admin.AlterClientQuotas(components, op, false); err != nil {
		return nil, err
	}
	set, err := describe()
	// The controller of KRaft answers before its broker knows.
	for tries := 0; err == nil && len(set) == 0 && tries < 100; tries++ {
		time.Sleep(50 * time.Millisecond)
		set, err = describe()
	}
	if err != nil {
		return nil, err
	}
	op.Remove = true
	if err := a.admin.AlterClientQuotas(components, op, false); err != nil {
		return nil, err
	}
	removed, err := describe()
	for tries := 0; err == nil && len(removed) > 0 && tries < 100; tries++ {
		time.Sleep(50 * time.Millisecond)
		removed, err = describe()
	}
	return []any{set, removed}, err
}

func (a asker) deleteRecords() (any, error) {
	if err := a.admin.DeleteRecords(a.topic, map[int32]int64{0: 2}); err != nil {
		return nil, err
	}
	return a.offsets(sarama.OffsetOldest)()
}

func (a asker) createPartitions() (any, error) {
	if err := a.admin.CreatePartitions(a.topic, 4, nil, false); err != nil {
		return nil, err
	}
	if err := a.client.RefreshMetadata(a.topic); err != nil {
		return nil, err
	}
	partitions, err := a.client.Partitions(a.topic)
	return len(partitions), err
}

func (a asker) createAndDelete() (any, error) {
	name := a.topic + "-made"
	detail := &sarama.TopicDetail{NumPartitions: 2, ReplicationFactor: 1}
	if err := a.admin.CreateTopic(name, detail, false); err != nil {
		return nil, err
	}
	made, err := a.admin.DescribeTopics([]string{name})
	if err != nil {
		return nil, err
	}
	return len(made[0].Partitions), a.admin.DeleteTopic(name)
}
