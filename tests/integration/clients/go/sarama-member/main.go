// IBM's sarama as a member of a group.
package main

import (
	"context"
	"os/signal"
	"syscall"
	"time"

	"clients/events"

	"github.com/IBM/sarama"
)

type handler struct{}

func (handler) Setup(session sarama.ConsumerGroupSession) error {
	events.Assigned(session.Claims())
	return nil
}

func (handler) Cleanup(session sarama.ConsumerGroupSession) error {
	events.Revoked(session.Claims())
	return nil
}

func (handler) ConsumeClaim(
	session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim,
) error {
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			events.Record(message.Topic, message.Partition, message.Offset, message.Value)
			session.MarkMessage(message, "")
		case <-session.Context().Done():
			return nil
		}
	}
}

func main() {
	given := events.Parse()
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Interval = 100 * time.Millisecond
	config.Consumer.MaxWaitTime = 50 * time.Millisecond
	config.Consumer.Group.Session.Timeout = given.SessionTimeout
	config.Consumer.Group.Heartbeat.Interval = given.HeartbeatInterval()
	config.Consumer.Group.InstanceId = given.Instance
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{
		map[string]sarama.BalanceStrategy{
			"range":      sarama.NewBalanceStrategyRange(),
			"roundrobin": sarama.NewBalanceStrategyRoundRobin(),
		}[given.Strategy],
	}
	group, err := sarama.NewConsumerGroup([]string{given.Address}, given.Group, config)
	if err != nil {
		panic(err)
	}
	stopped, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	for stopped.Err() == nil {
		// It returns at each rebalance, and where a broker is away for longer than it tries.
		group.Consume(stopped, []string{given.Topic}, handler{})
	}
	group.Close()
	events.Closed()
}
