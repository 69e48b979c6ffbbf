// franz-go, driven by steps.py.
package main

import (
	"context"
	"errors"
	"time"

	"clients/steps"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

type client struct {
	address   string
	consumer  *kgo.Client
	admin     *kadm.Client
	producers map[string]*kgo.Client
}

func options(address string, more ...kgo.Opt) []kgo.Opt {
	return append(more,
		kgo.SeedBrokers(address),
		kgo.FetchMaxWait(50*time.Millisecond),
		kgo.MetadataMinAge(100*time.Millisecond))
}

func open(address string) (steps.Client, error) {
	consumer, err := kgo.NewClient(options(address, kgo.ConsumeResetOffset(kgo.NoResetOffset()))...)
	if err != nil {
		return nil, err
	}
	return &client{address, consumer, kadm.NewClient(consumer), map[string]*kgo.Client{}}, nil
}

func (c *client) producer(call steps.Call) (*kgo.Client, error) {
	if producer, found := c.producers[call.ProducerKey()]; found {
		return producer, nil
	}
	more := []kgo.Opt{
		kgo.AllowAutoTopicCreation(),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(codecs[call.Codec]),
		kgo.ProducerLinger(call.Linger()),
		kgo.ProducerBatchMaxBytes(call.BatchBytes),
	}
	if !call.Idempotent {
		more = append(more, kgo.DisableIdempotentWrite())
	}
	producer, err := kgo.NewClient(options(c.address, more...)...)
	if err == nil {
		c.producers[call.ProducerKey()] = producer
	}
	return producer, err
}

func (c *client) Produce(call steps.Call) ([]int64, error) {
	producer, err := c.producer(call)
	if err != nil {
		return nil, err
	}
	var records []*kgo.Record
	for _, one := range call.Records {
		record := &kgo.Record{
			Topic: call.Topic, Partition: one.Partition, Key: one.Key, Value: one.Value,
		}
		if one.Timestamp != nil {
			record.Timestamp = time.UnixMilli(*one.Timestamp)
		}
		for _, header := range one.Headers {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: header.Name, Value: header.Value})
		}
		records = append(records, record)
	}
	if err := producer.ProduceSync(context.Background(), records...).FirstErr(); err != nil {
		return nil, err
	}
	var offsets []int64
	for _, record := range records {
		offsets = append(offsets, record.Offset)
	}
	return offsets, nil
}

func (c *client) Consume(call steps.Call) ([]steps.Record, error) {
	starts := map[int32]kgo.Offset{}
	var partitions []int32
	for partition, offset := range call.Starts {
		starts[partition] = kgo.NewOffset().At(offset)
		partitions = append(partitions, partition)
	}
	c.consumer.AddConsumePartitions(map[string]map[int32]kgo.Offset{call.Topic: starts})
	defer c.consumer.RemoveConsumePartitions(map[string][]int32{call.Topic: partitions})
	ctx, cancel := context.WithDeadline(context.Background(), call.Deadline())
	defer cancel()
	var records []steps.Record
	for len(records) < call.Count {
		fetches := c.consumer.PollRecords(ctx, call.Count-len(records))
		if ctx.Err() != nil {
			return records, nil
		}
		if failures := fetches.Errors(); len(failures) > 0 {
			return nil, failures[0].Err
		}
		for _, record := range fetches.Records() {
			records = append(records, tell(record))
		}
	}
	return records, nil
}

func tell(one *kgo.Record) steps.Record {
	timestamp := one.Timestamp.UnixMilli()
	kind := map[int8]string{0: "create", 1: "append"}[one.Attrs.TimestampType()]
	record := steps.Record{
		Value:         one.Value,
		Key:           one.Key,
		Headers:       []steps.Header{},
		Timestamp:     &timestamp,
		Partition:     one.Partition,
		Offset:        one.Offset,
		TimestampType: &kind,
	}
	for _, header := range one.Headers {
		record.Headers = append(record.Headers, steps.Header{Name: header.Key, Value: header.Value})
	}
	return record
}

func (c *client) Offsets(call steps.Call) ([]int64, error) {
	var offsets []int64
	for _, time := range call.Times {
		// kadm would tell the end of the log for a time that no record has reached.
		partition := kmsg.NewListOffsetsRequestTopicPartition()
		partition.Partition = call.Partition
		partition.Timestamp = time
		topic := kmsg.NewListOffsetsRequestTopic()
		topic.Topic = call.Topic
		topic.Partitions = append(topic.Partitions, partition)
		request := kmsg.NewPtrListOffsetsRequest()
		request.Topics = append(request.Topics, topic)
		answer, err := request.RequestWith(context.Background(), c.consumer)
		if err != nil {
			return nil, err
		}
		found := answer.Topics[0].Partitions[0]
		if err := kerr.ErrorForCode(found.ErrorCode); err != nil {
			return nil, err
		}
		offsets = append(offsets, found.Offset)
	}
	return offsets, nil
}

func (c *client) Create(call steps.Call) error {
	config := map[string]*string{}
	for key, value := range call.Config {
		config[key] = &value
	}
	_, err := c.admin.CreateTopic(context.Background(), call.Partitions, 1, config, call.Topic)
	return err
}

func (c *client) Topics() ([]string, error) {
	details, err := c.admin.ListTopics(context.Background())
	return details.Names(), err
}

func (c *client) Partitions(call steps.Call) (int, error) {
	details, err := c.admin.ListTopics(context.Background(), call.Topic)
	return len(details[call.Topic].Partitions), err
}

func (c *client) Grow(call steps.Call) error {
	answers, err := c.admin.UpdatePartitions(context.Background(), int(call.Partitions), call.Topic)
	if err != nil {
		return err
	}
	return answers[call.Topic].Err
}

func (c *client) Config(call steps.Call) (map[string]*string, error) {
	described, err := c.admin.DescribeTopicConfigs(context.Background(), call.Topic)
	if err != nil {
		return nil, err
	}
	values := map[string]*string{}
	for _, entry := range described[0].Configs {
		values[entry.Key] = entry.Value
	}
	return values, described[0].Err
}

func (c *client) Delete(call steps.Call) error {
	answer, err := c.admin.DeleteTopic(context.Background(), call.Topic)
	if err != nil {
		return err
	}
	return answer.Err
}

func (c *client) Close() error {
	for _, producer := range c.producers {
		producer.Close()
	}
	c.consumer.Close()
	return nil
}

func code(err error) int {
	var kafka *kerr.Error
	if errors.As(err, &kafka) {
		return int(kafka.Code)
	}
	return -1
}

func main() {
	steps.Serve(open, code)
}
