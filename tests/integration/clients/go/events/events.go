// Package events is what a member of a group is told and tells: members/events.py in Go.
package events

import (
	"encoding/json"
	"flag"
	"os"
	"sync"
	"time"
)

type Options struct {
	Address, Topic, Group, Instance, Strategy string
	SessionTimeout                            time.Duration
}

func (o Options) HeartbeatInterval() time.Duration {
	return min(o.SessionTimeout/3, 500*time.Millisecond)
}

func Parse() Options {
	var o Options
	flag.StringVar(&o.Address, "bootstrap-server", "", "")
	flag.StringVar(&o.Topic, "topic", "", "")
	flag.StringVar(&o.Group, "group-id", "", "")
	flag.StringVar(&o.Instance, "group-instance-id", "", "")
	flag.StringVar(&o.Strategy, "assignment-strategy", "range", "")
	session := flag.Int("session-timeout", 30000, "milliseconds")
	flag.Parse()
	o.SessionTimeout = time.Duration(*session) * time.Millisecond
	return o
}

type Partition struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
}

type record struct {
	Name      string `json:"name"`
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Value     string `json:"value"`
}

var (
	lock sync.Mutex
	out  = json.NewEncoder(os.Stdout)
)

func tell(event any) {
	lock.Lock()
	defer lock.Unlock()
	out.Encode(event)
}

func partitions(name string, of map[string][]int32) {
	listed := []Partition{}
	for topic, numbers := range of {
		for _, number := range numbers {
			listed = append(listed, Partition{topic, number})
		}
	}
	tell(map[string]any{"name": name, "partitions": listed})
}

func Assigned(of map[string][]int32) { partitions("partitions_assigned", of) }
func Revoked(of map[string][]int32)  { partitions("partitions_revoked", of) }

func Record(topic string, partition int32, offset int64, value []byte) {
	tell(record{"record_data", topic, partition, offset, string(value)})
}

func Closed() { tell(map[string]any{"name": "shutdown_complete"}) }
