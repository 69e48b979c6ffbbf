// franz-go as a member of a group.
package main

import (
	"context"
	"os/signal"
	"syscall"
	"time"

	"clients/events"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	given := events.Parse()
	balancers := map[string]kgo.GroupBalancer{
		"range":              kgo.RangeBalancer(),
		"roundrobin":         kgo.RoundRobinBalancer(),
		"cooperative-sticky": kgo.CooperativeStickyBalancer(),
	}
	revoked := func(_ context.Context, _ *kgo.Client, of map[string][]int32) { events.Revoked(of) }
	options := []kgo.Opt{
		kgo.SeedBrokers(given.Address),
		kgo.ConsumerGroup(given.Group),
		kgo.ConsumeTopics(given.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(50 * time.Millisecond),
		kgo.SessionTimeout(given.SessionTimeout),
		kgo.HeartbeatInterval(given.HeartbeatInterval()),
		kgo.Balancers(balancers[given.Strategy]),
		kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(
			func(_ context.Context, _ *kgo.Client, of map[string][]int32) { events.Assigned(of) }),
		kgo.OnPartitionsRevoked(revoked),
		kgo.OnPartitionsLost(revoked),
	}
	if given.Instance != "" {
		options = append(options, kgo.InstanceID(given.Instance))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		panic(err)
	}
	stopped, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	for stopped.Err() == nil {
		fetches := client.PollFetches(stopped)
		fetches.EachRecord(func(r *kgo.Record) {
			events.Record(r.Topic, r.Partition, r.Offset, r.Value)
		})
		// Refused where a rebalance came between: then they come again.
		client.CommitUncommittedOffsets(context.Background())
	}
	client.Close()
	events.Closed()
}
