// franz-go as a transactor: the options and lines of transactors/work.py.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const atOnce = 20

var (
	address    = flag.String("bootstrap-server", "", "")
	source     = flag.String("source", "", "")
	target     = flag.String("target", "", "")
	group      = flag.String("group-id", "", "")
	id         = flag.String("transactional-id", "", "")
	partitions = flag.Int("partitions", 0, "")
	ctx        = context.Background()
)

func options(more ...kgo.Opt) []kgo.Opt {
	return append(more,
		kgo.SeedBrokers(strings.Split(*address, ",")...),
		kgo.TransactionalID(*id),
		kgo.TransactionTimeout(20*time.Second),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
}

// Whoever started this starts it again.
func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func tell(committed bool) {
	if committed {
		fmt.Println(`{"name": "committed"}`)
	} else {
		fmt.Println(`{"name": "aborted"}`)
	}
}

func main() {
	mode := os.Args[1]
	os.Args = append(os.Args[:1], os.Args[2:]...)
	flag.Parse()
	if mode == "copy" {
		copyAll()
	} else {
		transfer()
	}
}

func copyAll() {
	session, err := kgo.NewGroupTransactSession(options(
		kgo.ConsumerGroup(*group),
		kgo.ConsumeTopics(*source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxWait(100*time.Millisecond),
		kgo.RequireStableFetchOffsets(),
		kgo.SessionTimeout(3*time.Second),
		kgo.Balancers(kgo.RangeBalancer()),
		kgo.HeartbeatInterval(500*time.Millisecond),
	)...)
	check(err)
	for {
		fetches := session.PollRecords(ctx, atOnce)
		if fetches.Empty() {
			continue
		}
		check(session.Begin())
		fetches.EachRecord(func(r *kgo.Record) {
			session.Produce(ctx, &kgo.Record{
				Topic: *target, Partition: r.Partition, Value: r.Value}, nil)
		})
		committed, err := session.End(ctx, kgo.TryCommit)
		check(err)
		tell(committed)
	}
}

func transfer() {
	client, err := kgo.NewClient(options()...)
	check(err)
	for number := 1; ; number++ {
		amount := 1 + rand.Intn(1000)
		taken := rand.Intn(*partitions)
		given := (taken + 1 + rand.Intn(*partitions-1)) % *partitions
		check(client.BeginTransaction())
		kept := number%4 != 0
		records := []*kgo.Record{
			{Topic: *target, Partition: int32(taken), Value: fmt.Append(nil, -amount)},
			{Topic: *target, Partition: int32(given), Value: fmt.Append(nil, amount)},
		}
		if !kept {
			records = records[:1]
		}
		check(client.ProduceSync(ctx, records...).FirstErr())
		check(client.EndTransaction(ctx, kgo.TransactionEndTry(kept)))
		tell(kept)
	}
}
