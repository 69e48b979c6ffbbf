// IBM's sarama, driven by steps.py.
package main

import (
	"errors"
	"time"

	"clients/steps"

	"github.com/IBM/sarama"
)

type client struct {
	address   string
	client    sarama.Client
	admin     sarama.ClusterAdmin
	consumer  sarama.Consumer
	producers map[string]sarama.SyncProducer
}

func config() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Consumer.MaxWaitTime = 50 * time.Millisecond
	config.Consumer.Retry.Backoff = 100 * time.Millisecond
	config.Consumer.Return.Errors = true
	return config
}

func open(address string) (steps.Client, error) {
	shared, err := sarama.NewClient([]string{address}, config())
	if err != nil {
		return nil, err
	}
	admin, err := sarama.NewClusterAdminFromClient(shared)
	if err != nil {
		return nil, err
	}
	consumer, err := sarama.NewConsumerFromClient(shared)
	if err != nil {
		return nil, err
	}
	return &client{address, shared, admin, consumer, map[string]sarama.SyncProducer{}}, nil
}

func (c *client) producer(call steps.Call) (sarama.SyncProducer, error) {
	if producer, found := c.producers[call.ProducerKey()]; found {
		return producer, nil
	}
	config := config()
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Flush.Frequency = call.Linger()
	config.Producer.MaxMessageBytes = int(call.MaxRequestBytes)
	config.Producer.Retry.Max = 20
	if err := config.Producer.Compression.UnmarshalText([]byte(call.Codec)); err != nil {
		return nil, err
	}
	if call.Idempotent {
		config.Producer.Idempotent = true
		config.Net.MaxOpenRequests = 1
	}
	producer, err := sarama.NewSyncProducer([]string{c.address}, config)
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
	var messages []*sarama.ProducerMessage
	for _, record := range call.Records {
		message := &sarama.ProducerMessage{
			Topic:     call.Topic,
			Partition: record.Partition,
			Key:       encoder(record.Key),
			Value:     encoder(record.Value),
		}
		if record.Timestamp != nil {
			message.Timestamp = time.UnixMilli(*record.Timestamp)
		}
		for _, header := range record.Headers {
			message.Headers = append(message.Headers,
				sarama.RecordHeader{Key: []byte(header.Name), Value: header.Value})
		}
		messages = append(messages, message)
	}
	if err := producer.SendMessages(messages); err != nil {
		return nil, err
	}
	var offsets []int64
	for _, message := range messages {
		offsets = append(offsets, message.Offset)
	}
	return offsets, nil
}

func encoder(data []byte) sarama.Encoder {
	if data == nil {
		return nil
	}
	return sarama.ByteEncoder(data)
}

func (c *client) Consume(call steps.Call) ([]steps.Record, error) {
	messages := make(chan *sarama.ConsumerMessage)
	failures := make(chan error)
	done := make(chan struct{})
	defer close(done)
	for partition, offset := range call.Starts {
		consumer, err := c.consumer.ConsumePartition(call.Topic, partition, offset)
		if err != nil {
			return nil, err
		}
		defer consumer.Close()
		go func() {
			for {
				select {
				case message, open := <-consumer.Messages():
					if !open {
						return
					}
					select {
					case messages <- message:
					case <-done:
						return
					}
				case failure := <-consumer.Errors():
					if failure == nil {
						return
					}
					select {
					case failures <- failure:
					case <-done:
						return
					}
				case <-done:
					return
				}
			}
		}()
	}
	deadline := time.After(time.Until(call.Deadline()))
	var records []steps.Record
	for len(records) < call.Count {
		select {
		case message := <-messages:
			records = append(records, record(message))
		case failure := <-failures:
			// While a broker restarts, sarama tells of each try and goes on.
			if code(failure) > 0 {
				return nil, failure
			}
		case <-deadline:
			return records, nil
		}
	}
	return records, nil
}

func record(message *sarama.ConsumerMessage) steps.Record {
	timestamp := message.Timestamp.UnixMilli()
	record := steps.Record{
		Value:     message.Value,
		Key:       message.Key,
		Headers:   []steps.Header{},
		Timestamp: &timestamp,
		Partition: message.Partition,
		Offset:    message.Offset,
	}
	for _, header := range message.Headers {
		record.Headers = append(record.Headers, steps.Header{Name: string(header.Key), Value: header.Value})
	}
	return record
}

func (c *client) Offsets(call steps.Call) ([]int64, error) {
	var offsets []int64
	for _, time := range call.Times {
		// -1 and -2 mean to sarama what they mean to the protocol.
		offset, err := c.client.GetOffset(call.Topic, call.Partition, time)
		if err != nil {
			return nil, err
		}
		offsets = append(offsets, offset)
	}
	return offsets, nil
}

func (c *client) Create(call steps.Call) error {
	entries := map[string]*string{}
	for key, value := range call.Config {
		entries[key] = &value
	}
	detail := sarama.TopicDetail{
		NumPartitions: call.Partitions, ReplicationFactor: 1, ConfigEntries: entries,
	}
	return c.admin.CreateTopic(call.Topic, &detail, false)
}

func (c *client) Topics() ([]string, error) {
	details, err := c.admin.ListTopics()
	names := []string{}
	for name := range details {
		names = append(names, name)
	}
	return names, err
}

func (c *client) Partitions(call steps.Call) (int, error) {
	topics, err := c.admin.DescribeTopics([]string{call.Topic})
	if err != nil {
		return 0, err
	}
	return len(topics[0].Partitions), nil
}

func (c *client) Grow(call steps.Call) error {
	return c.admin.CreatePartitions(call.Topic, call.Partitions, nil, false)
}

func (c *client) Config(call steps.Call) (map[string]*string, error) {
	topic := sarama.ConfigResource{Type: sarama.TopicResource, Name: call.Topic}
	entries, err := c.admin.DescribeConfig(topic)
	values := map[string]*string{}
	for _, entry := range entries {
		values[entry.Name] = &entry.Value
	}
	return values, err
}

func (c *client) Delete(call steps.Call) error {
	return c.admin.DeleteTopic(call.Topic)
}

func (c *client) Close() error {
	for _, producer := range c.producers {
		producer.Close()
	}
	c.consumer.Close()
	return c.admin.Close()
}

func code(err error) int {
	var many sarama.ProducerErrors
	if errors.As(err, &many) {
		return code(many[0].Err)
	}
	var kafka sarama.KError
	if errors.As(err, &kafka) {
		return int(kafka)
	}
	var topic *sarama.TopicError
	if errors.As(err, &topic) {
		return int(topic.Err)
	}
	var partition *sarama.TopicPartitionError
	if errors.As(err, &partition) {
		return int(partition.Err)
	}
	return -1
}

func main() {
	steps.Serve(open, code)
}
