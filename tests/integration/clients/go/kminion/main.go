// What kminion, rpk and Redpanda Console ask of a broker, through franz-go's kadm.
//
//	kminion ADDRESS TOPIC LIVE LEFT
//
// The topic has three partitions, with five records of partition 0; LIVE and LEFT are groups of it.
package main

import (
	"context"
	"fmt"
	"os"
	"sort"
	"time"

	"clients/checks"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const patience = 30 * time.Second

var wanted = []kmsg.Key{
	kmsg.Produce, kmsg.Fetch, kmsg.ListOffsets, kmsg.Metadata, kmsg.ApiVersions, kmsg.CreateTopics,
	kmsg.DeleteTopics, kmsg.DeleteRecords, kmsg.DescribeConfigs, kmsg.AlterConfigs,
	kmsg.DescribeLogDirs, kmsg.CreatePartitions, kmsg.IncrementalAlterConfigs,
	kmsg.DescribeClientQuotas, kmsg.AlterClientQuotas, kmsg.DescribeCluster, kmsg.FindCoordinator,
	kmsg.ListGroups, kmsg.DescribeGroups, kmsg.OffsetFetch, kmsg.OffsetCommit, kmsg.OffsetDelete,
	kmsg.DeleteGroups, kmsg.JoinGroup, kmsg.SyncGroup, kmsg.Heartbeat, kmsg.LeaveGroup,
	kmsg.InitProducerID, kmsg.AddPartitionsToTxn, kmsg.EndTxn, kmsg.TxnOffsetCommit,
	kmsg.DescribeProducers, kmsg.DescribeTransactions, kmsg.ListTransactions,
	kmsg.ConsumerGroupHeartbeat, kmsg.ConsumerGroupDescribe,
}

func main() {
	address, topic := os.Args[1], os.Args[2]
	client, err := kgo.NewClient(kgo.SeedBrokers(address))
	if err != nil {
		panic(err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	a := asker{ctx, client, admin, topic}
	checks.Run([]checks.Check{
		{Name: "api versions: what is missing", Call: a.apiVersions},
		{Name: "metadata: brokers, controller, partitions", Call: a.metadata},
		{Name: "internal and other topics", Call: a.topics},
		{Name: "end offsets", Call: a.endOffsets},
		{Name: "start offsets", Call: a.startOffsets},
		{Name: "offsets after a time", Call: a.offsetsAfter},
		{Name: "topic configs", Call: a.topicConfigs},
		{Name: "broker configs", Call: a.brokerConfigs},
		{Name: "log dirs: bytes of the topic", Call: a.logDirs},
		{Name: "incremental alter configs", Call: a.incrementalAlter},
		{Name: "incremental alter configs, validated only", Call: a.validateAlter},
		{Name: "alter configs", Call: a.alter},
		{Name: "a setting that is none", Call: a.alterNonsense},
		{Name: "client quotas", Call: a.quotas},
		{Name: "delete records", Call: a.deleteRecords},
		{Name: "create partitions", Call: a.createPartitions},
		{Name: "a topic with its assignment", Call: a.createAssigned},
	})
	checks.Run(a.groupChecks(os.Args[3], os.Args[4]))
	checks.Run([]checks.Check{
		{Name: "a topic that is not there", Call: a.missing},
		{Name: "delete topics", Call: a.deleteTopic},
	})
}

type asker struct {
	ctx    context.Context
	client *kgo.Client
	admin  *kadm.Client
	topic  string
}

func (a asker) apiVersions() (any, error) {
	versions, err := a.admin.ApiVersions(a.ctx)
	if err != nil {
		return nil, err
	}
	missing := []string{}
	for _, broker := range versions.Sorted() {
		if broker.Err != nil {
			return nil, broker.Err
		}
		for _, key := range wanted {
			if _, found := broker.KeyMaxVersion(key.Int16()); !found {
				missing = append(missing, key.Name())
			}
		}
	}
	return missing, nil
}

func (a asker) metadata() (any, error) {
	metadata, err := a.admin.Metadata(a.ctx, a.topic)
	if err != nil {
		return nil, err
	}
	partitions := []string{}
	for _, p := range metadata.Topics[a.topic].Partitions.Sorted() {
		sound := p.Err == nil && p.Leader == metadata.Controller && len(p.Replicas) == 1
		partitions = append(partitions, fmt.Sprint(p.Partition, sound && len(p.ISR) == 1))
	}
	return []any{len(metadata.Brokers), metadata.Cluster != "", partitions}, nil
}

func (a asker) topics() (any, error) {
	details, err := a.admin.ListTopics(a.ctx)
	return details.Has(a.topic), err
}

func offsets(listed kadm.ListedOffsets, topic string, err error) (any, error) {
	found := []int64{}
	if err == nil {
		err = listed.Error()
	}
	for _, one := range listed[topic] {
		found = append(found, one.Offset)
	}
	sort.Slice(found, func(i, j int) bool { return found[i] < found[j] })
	return found, err
}

func (a asker) endOffsets() (any, error) {
	listed, err := a.admin.ListEndOffsets(a.ctx, a.topic)
	return offsets(listed, a.topic, err)
}

func (a asker) startOffsets() (any, error) {
	listed, err := a.admin.ListStartOffsets(a.ctx, a.topic)
	return offsets(listed, a.topic, err)
}

func (a asker) offsetsAfter() (any, error) {
	listed, err := a.admin.ListOffsetsAfterMilli(a.ctx, 1003, a.topic)
	return offsets(listed, a.topic, err)
}

func value(described kadm.ResourceConfigs, key string) (any, error) {
	for _, one := range described {
		if one.Err != nil {
			return nil, one.Err
		}
		for _, config := range one.Configs {
			if config.Key == key {
				return []string{config.MaybeValue(), config.Source.String()}, nil
			}
		}
	}
	return nil, fmt.Errorf("no %s", key)
}

func (a asker) described(key string) (any, error) {
	described, err := a.admin.DescribeTopicConfigs(a.ctx, a.topic)
	if err != nil {
		return nil, err
	}
	return value(described, key)
}

func (a asker) topicConfigs() (any, error) {
	return a.described("retention.ms")
}

func (a asker) brokerConfigs() (any, error) {
	brokers, err := a.admin.ListBrokers(a.ctx)
	if err != nil {
		return nil, err
	}
	described, err := a.admin.DescribeBrokerConfigs(a.ctx, brokers.NodeIDs()...)
	if err != nil {
		return nil, err
	}
	return value(described, "num.partitions")
}

func (a asker) logDirs() (any, error) {
	described, err := a.admin.DescribeAllLogDirs(a.ctx, nil)
	if err != nil {
		return nil, err
	}
	bytes := int64(0)
	described.Each(func(d kadm.DescribedLogDir) {
		if d.Err != nil {
			err = d.Err
		}
		for _, p := range d.Topics[a.topic] {
			bytes += p.Size
		}
	})
	return bytes > 0, err
}

func (a asker) change(op kadm.IncrementalOp, name string, text string) error {
	changes := []kadm.AlterConfig{{Op: op, Name: name, Value: kadm.StringPtr(text)}}
	answers, err := a.admin.AlterTopicConfigs(a.ctx, changes, a.topic)
	if err != nil {
		return err
	}
	return answers[0].Err
}

func (a asker) incrementalAlter() (any, error) {
	if err := a.change(kadm.SetConfig, "retention.ms", "86400000"); err != nil {
		return nil, err
	}
	set, err := a.topicConfigs()
	if err != nil {
		return nil, err
	}
	if err := a.change(kadm.AppendConfig, "cleanup.policy", "compact"); err != nil {
		return nil, err
	}
	both, err := a.described("cleanup.policy")
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"retention.ms", "cleanup.policy"} {
		if err := a.change(kadm.DeleteConfig, name, ""); err != nil {
			return nil, err
		}
	}
	deleted, err := a.topicConfigs()
	return []any{set, both, deleted}, err
}

func (a asker) validateAlter() (any, error) {
	changes := []kadm.AlterConfig{{Name: "retention.ms", Value: kadm.StringPtr("1")}}
	answers, err := a.admin.ValidateAlterTopicConfigs(a.ctx, changes, a.topic)
	if err != nil {
		return nil, err
	}
	if answers[0].Err != nil {
		return nil, answers[0].Err
	}
	return a.topicConfigs()
}

func (a asker) alter() (any, error) {
	state := []kadm.AlterConfig{{Name: "max.message.bytes", Value: kadm.StringPtr("2000000")}}
	answers, err := a.admin.AlterTopicConfigsState(a.ctx, state, a.topic)
	if err != nil {
		return nil, err
	}
	if answers[0].Err != nil {
		return nil, answers[0].Err
	}
	return a.described("max.message.bytes")
}

func (a asker) alterNonsense() (any, error) {
	return nil, a.change(kadm.SetConfig, "retention.ms", "soon")
}

func (a asker) quotas() (any, error) {
	name := "exporter"
	entity := kadm.ClientQuotaEntity{{Type: "client-id", Name: &name}}
	alter := func(op kadm.AlterClientQuotaOp) error {
		changes := []kadm.AlterClientQuotaEntry{
			{Entity: entity, Ops: []kadm.AlterClientQuotaOp{op}},
		}
		altered, err := a.admin.AlterClientQuotas(a.ctx, changes)
		if err != nil {
			return err
		}
		return altered[0].Err
	}
	describe := func() ([]string, error) {
		match := []kadm.DescribeClientQuotaComponent{{Type: "client-id", MatchName: &name}}
		described, err := a.admin.DescribeClientQuotas(a.ctx, true, match)
		found := []string{}
		for _, one := range described {
			for _, quota := range one.Values {
				found = append(found, fmt.Sprintf("%s=%v", quota.Key, quota.Value))
			}
		}
		return found, err
	}
	op := kadm.AlterClientQuotaOp{Key: "producer_byte_rate", Value: 1048576}
	if err := alter(op); err != nil {
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
	if err := alter(op); err != nil {
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
	upTo := kadm.Offsets{}
	upTo.AddOffset(a.topic, 0, 2, -1)
	deleted, err := a.admin.DeleteRecords(a.ctx, upTo)
	if err != nil {
		return nil, err
	}
	if err := deleted.Error(); err != nil {
		return nil, err
	}
	starts, err := a.startOffsets()
	return []any{deleted[a.topic][0].LowWatermark, starts}, err
}

func (a asker) createPartitions() (any, error) {
	validated, err := a.admin.ValidateUpdatePartitions(a.ctx, 5, a.topic)
	if err != nil {
		return nil, err
	}
	if err := validated.Error(); err != nil {
		return nil, err
	}
	created, err := a.admin.CreatePartitions(a.ctx, 1, a.topic)
	if err != nil {
		return nil, err
	}
	if err := created.Error(); err != nil {
		return nil, err
	}
	details, err := a.admin.ListTopics(a.ctx, a.topic)
	return len(details[a.topic].Partitions), err
}

func (a asker) createAssigned() (any, error) {
	metadata, err := a.admin.Metadata(a.ctx)
	if err != nil {
		return nil, err
	}
	request := kmsg.NewPtrCreateTopicsRequest()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = a.topic+"-assigned", -1, -1
	for partition := int32(0); partition < 2; partition++ {
		assignment := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		assignment.Partition, assignment.Replicas = partition, []int32{metadata.Controller}
		topic.ReplicaAssignment = append(topic.ReplicaAssignment, assignment)
	}
	request.Topics = append(request.Topics, topic)
	answer, err := request.RequestWith(a.ctx, a.client)
	if err != nil {
		return nil, err
	}
	return []int{int(answer.Topics[0].ErrorCode), int(answer.Topics[0].NumPartitions)}, nil
}

func (a asker) missing() (any, error) {
	details, err := a.admin.ListTopics(a.ctx, "nowhere")
	if err != nil {
		return nil, err
	}
	return nil, details["nowhere"].Err
}

func (a asker) deleteTopic() (any, error) {
	deleted, err := a.admin.DeleteTopics(a.ctx, a.topic+"-assigned")
	if err != nil {
		return nil, err
	}
	if err := deleted.Error(); err != nil {
		return nil, err
	}
	details, err := a.admin.ListTopics(a.ctx)
	return details.Has(a.topic + "-assigned"), err
}
