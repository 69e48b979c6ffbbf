package main

import (
	"context"
	"fmt"
	"sort"
	"time"

	"clients/checks"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What is asked about two groups of the topic: `live` has one member and committed 3 of 5,
// `left` has none and committed 4.
func (a asker) groupChecks(live, left string) []checks.Check {
	g := groups{a, live, left}
	return []checks.Check{
		{Name: "groups by state", Call: g.list},
		{Name: "groups described", Call: g.describe},
		{Name: "committed offsets of many groups", Call: g.offsets},
		{Name: "lag", Call: g.lag},
		{Name: "the topic of committed offsets", Call: g.consume},
		{Name: "commit for a group without members", Call: g.commit},
		{Name: "a live group is not deleted", Call: g.deleteLive},
		{Name: "delete offsets", Call: g.deleteOffsets},
		{Name: "delete groups", Call: g.delete},
		{Name: "transactions", Call: g.transactions},
		{Name: "producers", Call: g.producers},
	}
}

type groups struct {
	asker
	live, left string
}

func (g groups) list() (any, error) {
	found := []string{}
	for _, state := range []string{"Stable", "Empty"} {
		listed, err := g.admin.ListGroups(g.ctx, state)
		if err != nil {
			return nil, err
		}
		for _, name := range []string{g.live, g.left} {
			if one, has := listed[name]; has {
				found = append(found, fmt.Sprint(one.State, " ", one.ProtocolType))
			}
		}
	}
	return found, nil
}

func (g groups) describe() (any, error) {
	described, err := g.admin.DescribeGroups(g.ctx, g.live, g.left)
	if err != nil {
		return nil, err
	}
	found := []string{}
	for _, group := range described.Sorted() {
		line := fmt.Sprint(group.State, " ", group.Protocol, " ", len(group.Members))
		for _, member := range group.Members {
			assigned, _ := member.Assigned.AsConsumer()
			for _, topic := range assigned.Topics {
				line += fmt.Sprint(" ", topic.Topic == g.topic, topic.Partitions)
			}
		}
		found = append(found, line)
	}
	sort.Strings(found)
	return found, nil
}

func (g groups) offsets() (any, error) {
	fetched := g.admin.FetchManyOffsets(g.ctx, g.live, g.left)
	found := []int64{}
	for _, name := range []string{g.live, g.left} {
		group := fetched[name]
		if group.Err != nil {
			return nil, group.Err
		}
		one, _ := group.Fetched.Lookup(g.topic, 0)
		found = append(found, one.At)
	}
	return found, nil
}

func (g groups) lag() (any, error) {
	lags, err := g.admin.Lag(g.ctx, g.live, g.left)
	if err != nil {
		return nil, err
	}
	found := []int64{}
	for _, name := range []string{g.live, g.left} {
		found = append(found, lags[name].Lag[g.topic][0].Lag)
	}
	return found, nil
}

// The last of each key, as kminion gathers it from the topic instead of asking.
func (g groups) consume() (any, error) {
	ends, err := g.admin.ListEndOffsets(g.ctx, "__consumer_offsets")
	if err != nil {
		return nil, err
	}
	left := int64(0)
	starts := map[string]map[int32]kgo.Offset{"__consumer_offsets": {}}
	ends.Each(func(o kadm.ListedOffset) {
		left += o.Offset
		starts["__consumer_offsets"][o.Partition] = kgo.NewOffset().At(0)
	})
	// Where there were transactions, the ends count their markers too.
	options := append(g.client.Opts(), kgo.ConsumePartitions(starts), kgo.KeepControlRecords())
	reader, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	committed, members := map[string]int64{}, map[string]int{}
	for left > 0 && g.ctx.Err() == nil {
		reader.PollFetches(g.ctx).EachRecord(func(r *kgo.Record) {
			left--
			if !r.Attrs.IsControl() {
				err = g.take(r, committed, members)
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return []any{committed[g.live], committed[g.left], members[g.live]}, g.ctx.Err()
}

func (g groups) take(r *kgo.Record, committed map[string]int64, members map[string]int) error {
	commit, metadata := kmsg.NewOffsetCommitKey(), kmsg.NewGroupMetadataKey()
	switch r.Key[1] {
	case 0, 1:
		if err := commit.ReadFrom(r.Key); err != nil || r.Value == nil {
			return err
		}
		value := kmsg.NewOffsetCommitValue()
		err := value.ReadFrom(r.Value)
		if commit.Topic == g.topic && commit.Partition == 0 {
			committed[commit.Group] = value.Offset
		}
		return err
	case 2:
		if err := metadata.ReadFrom(r.Key); err != nil || r.Value == nil {
			return err
		}
		value := kmsg.NewGroupMetadataValue()
		err := value.ReadFrom(r.Value)
		members[metadata.Group] = len(value.Members)
		return err
	}
	return nil
}

func (g groups) commit() (any, error) {
	offsets := kadm.Offsets{}
	offsets.Add(kadm.Offset{Topic: g.topic, Partition: 1, At: 7, LeaderEpoch: -1, Metadata: "by hand"})
	committed, err := g.admin.CommitOffsets(g.ctx, g.left, offsets)
	if err != nil {
		return nil, err
	}
	if err := committed.Error(); err != nil {
		return nil, err
	}
	fetched, err := g.admin.FetchOffsets(g.ctx, g.left)
	one, _ := fetched.Lookup(g.topic, 1)
	return []any{one.At, one.Metadata}, err
}

func (g groups) deleteLive() (any, error) {
	deleted, err := g.admin.DeleteGroups(g.ctx, g.live)
	if err != nil {
		return nil, err
	}
	return nil, deleted[g.live].Err
}

func (g groups) deleteOffsets() (any, error) {
	topics := kadm.TopicsSet{}
	topics.Add(g.topic, 1)
	deleted, err := g.admin.DeleteOffsets(g.ctx, g.left, topics)
	if err != nil {
		return nil, err
	}
	if err := deleted.Error(); err != nil {
		return nil, err
	}
	fetched, err := g.admin.FetchOffsets(g.ctx, g.left)
	_, has := fetched.Lookup(g.topic, 1)
	return has, err
}

func (g groups) delete() (any, error) {
	deleted, err := g.admin.DeleteGroups(g.ctx, g.left)
	if err != nil {
		return nil, err
	}
	if err := deleted[g.left].Err; err != nil {
		return nil, err
	}
	listed, err := g.admin.ListGroups(g.ctx)
	_, has := listed[g.left]
	return has, err
}

// One that stays open meanwhile.
func (g groups) transactions() (any, error) {
	id := g.topic + "-transaction"
	producer, err := kgo.NewClient(append(g.client.Opts(), kgo.TransactionalID(id))...)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	if err := producer.BeginTransaction(); err != nil {
		return nil, err
	}
	record := &kgo.Record{Topic: g.topic, Value: []byte("open")}
	if err := producer.ProduceSync(g.ctx, record).FirstErr(); err != nil {
		return nil, err
	}
	listed, err := g.admin.ListTransactions(g.ctx, nil, []string{"Ongoing"})
	if err != nil {
		return nil, err
	}
	described, err := g.admin.DescribeTransactions(g.ctx, id)
	if err != nil {
		return nil, err
	}
	one := described[id]
	if err := producer.EndTransaction(context.Background(), kgo.TryAbort); err != nil {
		return nil, err
	}
	_, has := listed[id]
	return []any{has, one.State, len(one.Topics[g.topic])}, one.Err
}

func (g groups) producers() (any, error) {
	topics := kadm.TopicsSet{}
	topics.Add(g.topic, 0, 1, 2, 3) // The last was created before: the record may be there.
	for tries := 0; ; tries++ {
		described, err := g.admin.DescribeProducers(g.ctx, topics)
		if err != nil {
			return nil, err
		}
		open := 0
		described.EachProducer(func(p kadm.DescribedProducer) {
			if p.CurrentTxnStartOffset >= 0 {
				open++
			}
		})
		// Apache's coordinator answers before its markers are written.
		if open == 0 || tries == 100 {
			return []any{len(described.SortedProducers()) > 0, open}, nil
		}
		time.Sleep(50 * time.Millisecond)
	}
}
