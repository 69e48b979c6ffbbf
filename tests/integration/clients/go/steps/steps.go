// Package steps is the other end of steps.py: a call a line on standard input, its answer a line
// on standard output.  Clients stay open, by the address they are for.
package steps

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"time"
)

type Header struct {
	Name  string
	Value []byte
}

func (h Header) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{h.Name, h.Value})
}

func (h *Header) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&h.Name, &h.Value})
}

type Record struct {
	Value         []byte   `json:"value"`
	Key           []byte   `json:"key"`
	Headers       []Header `json:"headers"`
	Timestamp     *int64   `json:"timestamp"`
	Partition     int32    `json:"partition"`
	Offset        int64    `json:"offset"`
	TimestampType *string  `json:"timestamp_type"`
}

type Call struct {
	Call            string            `json:"call"`
	At              string            `json:"at"`
	Topic           string            `json:"topic"`
	Records         []Record          `json:"records"`
	Codec           string            `json:"codec"`
	Idempotent      bool              `json:"idempotent"`
	PatienceMs      int               `json:"patience_ms"`
	LingerMs        int               `json:"linger_ms"`
	BatchBytes      int32             `json:"batch_bytes"`
	MaxRequestBytes int32             `json:"max_request_bytes"`
	Starts          map[int32]int64   `json:"starts"`
	Count           int               `json:"count"`
	TimeoutS        int               `json:"timeout_s"`
	Partition       int32             `json:"partition"`
	Times           []int64           `json:"times"`
	Partitions      int32             `json:"partitions"`
	Config          map[string]string `json:"config"`
}

// ProducerKey tells producers apart.
func (c Call) ProducerKey() string {
	return fmt.Sprint(c.Codec, c.Idempotent, c.PatienceMs)
}

func (c Call) Linger() time.Duration {
	return time.Duration(c.LingerMs) * time.Millisecond
}

func (c Call) Deadline() time.Time {
	return time.Now().Add(time.Duration(c.TimeoutS) * time.Second)
}

type Client interface {
	Produce(Call) ([]int64, error)
	Consume(Call) ([]Record, error)
	Offsets(Call) ([]int64, error)
	Create(Call) error
	Topics() ([]string, error)
	Partitions(Call) (int, error)
	Grow(Call) error
	Config(Call) (map[string]*string, error)
	Delete(Call) error
	Close() error
}

func answer(client Client, call Call) (any, error) {
	switch call.Call {
	case "produce":
		return client.Produce(call)
	case "consume":
		return client.Consume(call)
	case "offsets":
		return client.Offsets(call)
	case "create":
		return nil, client.Create(call)
	case "topics":
		return client.Topics()
	case "partitions":
		return client.Partitions(call)
	case "grow":
		return nil, client.Grow(call)
	case "config":
		return client.Config(call)
	case "delete":
		return nil, client.Delete(call)
	case "close":
		return nil, client.Close()
	}
	return nil, fmt.Errorf("unknown call %q", call.Call)
}

// Serve answers until standard input ends; code finds the protocol's error code in an error.
func Serve(open func(address string) (Client, error), code func(error) int) {
	clients := map[string]Client{}
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := json.NewEncoder(os.Stdout)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var call Call
		if err := json.Unmarshal(line, &call); err != nil {
			panic(err)
		}
		client, found := clients[call.At]
		if !found {
			client, err = open(call.At)
		}
		var result any
		if err == nil {
			clients[call.At] = client
			result, err = answer(client, call)
		}
		if call.Call == "close" {
			delete(clients, call.At)
		}
		if err != nil {
			out.Encode(map[string]any{"refused": code(err), "text": err.Error()})
		} else {
			out.Encode(map[string]any{"result": result})
		}
	}
}
