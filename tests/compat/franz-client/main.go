// franz-go, driven by JSON lines; compat_clients/driven.py says what they look like.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sort"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const timeout = 30 * time.Second

type request struct {
	Op         string            `json:"op"`
	Servers    string            `json:"servers"`
	Topic      string            `json:"topic"`
	Group      string            `json:"group"`
	Member     string            `json:"member"`
	Instance   string            `json:"instance"`
	Assignor   string            `json:"assignor"`
	Codec      string            `json:"codec"`
	Idempotent bool              `json:"idempotent"`
	Count      int               `json:"count"`
	Partitions int               `json:"partitions"`
	Timestamp  int64             `json:"timestamp"`
	Records    []record          `json:"records"`
	Starts     map[string]int64  `json:"starts"`
	Ends       map[string]int64  `json:"ends"`
	Configs    map[string]string `json:"configs"`
}

// record is [partition, timestamp, key, value, headers, offset]. A nil slice is JSON's null, and encoding/json writes bytes as base64.
type record struct {
	partition  int32
	timestamp  int64
	key, value []byte
	headers    []header
	offset     int64
}

type header struct {
	key   string
	value []byte
}

func (r *record) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&r.partition, &r.timestamp, &r.key, &r.value, &r.headers})
}

func (r record) MarshalJSON() ([]byte, error) {
	headers := r.headers
	if headers == nil {
		headers = []header{}
	}
	return json.Marshal([]any{r.partition, r.timestamp, r.key, r.value, headers, r.offset})
}

func (h *header) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&h.key, &h.value})
}

func (h header) MarshalJSON() ([]byte, error) { return json.Marshal([]any{h.key, h.value}) }

type member struct {
	client     *kgo.Client
	stop       context.CancelFunc
	done       chan struct{}
	lock       sync.Mutex
	assignment map[int32]bool
	consumed   [][2]int64
	rebalances int
	failure    string
}

var members = map[string]*member{}

func main() {
	requests := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := requests.ReadBytes('\n')
		if err != nil {
			return
		}
		answer := map[string]any{}
		var asked request
		if err := json.Unmarshal(line, &asked); err != nil {
			answer["error"] = err.Error()
		} else if result, err := perform(asked); err != nil {
			answer["error"] = err.Error()
		} else {
			answer["result"] = result
		}
		encoded, err := json.Marshal(answer)
		if err != nil {
			panic(err)
		}
		os.Stdout.Write(append(encoded, '\n'))
	}
}

func perform(asked request) (any, error) {
	bounded, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	switch asked.Op {
	case "produce":
		return produce(bounded, asked)
	case "read":
		return read(bounded, asked)
	case "read_group":
		return readGroup(bounded, asked)
	case "join":
		return nil, join(asked)
	case "member":
		return members[asked.Member].report(), nil
	case "leave":
		leaving := members[asked.Member]
		delete(members, asked.Member)
		return nil, leaving.leave(bounded)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(asked.Servers))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return administer(bounded, kadm.NewClient(client), asked)
}

func produce(bounded context.Context, asked request) (any, error) {
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(asked.Servers), kgo.ProducerBatchCompression(codecs[asked.Codec]), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(20 * time.Millisecond), kgo.RequiredAcks(kgo.AllISRAcks()),
	}
	if !asked.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	records := make([]*kgo.Record, len(asked.Records))
	for i, given := range asked.Records {
		records[i] = &kgo.Record{Topic: asked.Topic, Partition: given.partition, Timestamp: time.UnixMilli(given.timestamp), Key: given.key, Value: given.value}
		for _, h := range given.headers {
			records[i].Headers = append(records[i].Headers, kgo.RecordHeader{Key: h.key, Value: h.value})
		}
	}
	offsets := make([]int64, len(records))
	var wait sync.WaitGroup
	var first error
	var lock sync.Mutex
	for i := range records {
		wait.Add(1)
		client.Produce(bounded, records[i], func(sent *kgo.Record, err error) {
			lock.Lock()
			if err != nil && first == nil {
				first = err
			}
			offsets[i] = sent.Offset
			lock.Unlock()
			wait.Done()
		})
	}
	wait.Wait()
	return offsets, first
}

func read(bounded context.Context, asked request) (any, error) {
	starts := map[int32]kgo.Offset{}
	count := 0
	for partition, start := range asked.Starts {
		starts[number(partition)] = kgo.NewOffset().At(start)
		count += int(asked.Ends[partition] - start)
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(asked.Servers), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{asked.Topic: starts}), kgo.ConsumeResetOffset(kgo.NoResetOffset()))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return consume(bounded, client, count)
}

func readGroup(bounded context.Context, asked request) (any, error) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(asked.Servers), kgo.ConsumerGroup(asked.Group), kgo.ConsumeTopics(asked.Topic), kgo.DisableAutoCommit(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	records, err := consume(bounded, client, asked.Count)
	if err != nil {
		return nil, err
	}
	ends := map[string]map[int32]kgo.EpochOffset{asked.Topic: {}}
	for _, given := range records {
		ends[asked.Topic][given.partition] = kgo.EpochOffset{Epoch: -1, Offset: given.offset + 1}
	}
	admin := kadm.NewClient(client)
	offsets := kadm.Offsets{}
	for partition, end := range ends[asked.Topic] {
		offsets.AddOffset(asked.Topic, partition, end.Offset, -1)
	}
	group, generation := client.GroupMetadata()
	if group == "" || generation < 0 {
		return nil, errors.New("not in the group")
	}
	client.CommitOffsetsSync(bounded, ends, nil)
	committed, err := admin.FetchOffsets(bounded, asked.Group)
	if err != nil {
		return nil, err
	}
	for partition, end := range ends[asked.Topic] {
		if at, ok := committed.Lookup(asked.Topic, partition); !ok || at.At != end.Offset {
			return nil, fmt.Errorf("partition %d: committed %d, fetched %v", partition, end.Offset, at)
		}
	}
	return records, nil
}

func join(asked request) error {
	balancers := map[string]kgo.GroupBalancer{"range": kgo.RangeBalancer(), "roundrobin": kgo.RoundRobinBalancer(), "cooperative-sticky": kgo.CooperativeStickyBalancer()}
	running, stop := context.WithCancel(context.Background())
	joined := &member{stop: stop, done: make(chan struct{}), assignment: map[int32]bool{}, consumed: [][2]int64{}}
	options := []kgo.Opt{
		kgo.SeedBrokers(asked.Servers), kgo.ConsumerGroup(asked.Group), kgo.ConsumeTopics(asked.Topic), kgo.Balancers(balancers[asked.Assignor]),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.HeartbeatInterval(300 * time.Millisecond), kgo.SessionTimeout(10 * time.Second),
		kgo.AutoCommitInterval(time.Second), kgo.MetadataMaxAge(time.Second), kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, given map[string][]int32) { joined.change(given, true) }),
		kgo.OnPartitionsRevoked(func(revoking context.Context, client *kgo.Client, taken map[string][]int32) {
			if err := client.CommitUncommittedOffsets(revoking); err != nil {
				joined.fail(err)
			}
			joined.change(taken, false)
		}),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, lost map[string][]int32) { joined.change(lost, false) }),
	}
	if asked.Instance != "" {
		options = append(options, kgo.InstanceID(asked.Instance))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		stop()
		return err
	}
	joined.client = client
	members[asked.Member] = joined
	go joined.run(running)
	return nil
}

func (m *member) run(running context.Context) {
	defer close(m.done)
	for running.Err() == nil {
		fetches := m.client.PollFetches(running)
		fetches.EachError(func(_ string, _ int32, err error) {
			var session *kgo.ErrGroupSession // franz-go tells that it has to join anew, and does
			if !errors.Is(err, context.Canceled) && !errors.As(err, &session) {
				m.fail(err)
			}
		})
		m.lock.Lock()
		fetches.EachRecord(func(given *kgo.Record) {
			m.consumed = append(m.consumed, [2]int64{int64(given.Partition), given.Offset})
		})
		m.lock.Unlock()
	}
}

func (m *member) change(partitions map[string][]int32, given bool) {
	m.lock.Lock()
	defer m.lock.Unlock()
	if given {
		m.rebalances++
	}
	for _, list := range partitions {
		for _, partition := range list {
			if given {
				m.assignment[partition] = true
			} else {
				delete(m.assignment, partition)
			}
		}
	}
}

func (m *member) fail(err error) {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.failure = err.Error()
}

func (m *member) report() any {
	m.lock.Lock()
	defer m.lock.Unlock()
	assignment := []int32{}
	for partition := range m.assignment {
		assignment = append(assignment, partition)
	}
	sort.Slice(assignment, func(i, j int) bool { return assignment[i] < assignment[j] })
	since := m.consumed
	m.consumed = [][2]int64{}
	return map[string]any{"assignment": assignment, "consumed": since, "rebalances": m.rebalances, "error": m.failure}
}

func (m *member) leave(bounded context.Context) error {
	m.stop()
	<-m.done
	err := m.client.CommitUncommittedOffsets(bounded)
	m.client.Close()
	return err
}

func administer(bounded context.Context, admin *kadm.Client, asked request) (any, error) {
	topic, group := asked.Topic, asked.Group
	switch asked.Op {
	case "offsets_at":
		listed, err := admin.ListOffsetsAfterMilli(bounded, asked.Timestamp, topic)
		if err != nil {
			return nil, err
		}
		// kadm asks a second time, for the end, where nothing is as late: its Timestamp is -1 then.
		found := map[string]int64{}
		listed.Each(func(at kadm.ListedOffset) {
			if err == nil {
				err = at.Err
			}
			found[strconv.Itoa(int(at.Partition))] = at.Offset
			if at.Timestamp == -1 {
				found[strconv.Itoa(int(at.Partition))] = -1
			}
		})
		return found, err
	case "create_topic":
		configs := map[string]*string{}
		for name, value := range asked.Configs {
			configs[name] = kadm.StringPtr(value)
		}
		created, err := admin.CreateTopic(bounded, int32(asked.Partitions), 1, configs, topic)
		if err == nil {
			err = created.Err
		}
		return nil, err
	case "describe_topic":
		listed, err := admin.ListTopics(bounded, topic)
		if err != nil {
			return nil, err
		}
		if err := listed.Error(); err != nil {
			return nil, err
		}
		for _, partition := range listed[topic].Partitions {
			if partition.Leader < 0 || len(partition.Replicas) == 0 || len(partition.ISR) == 0 {
				return nil, fmt.Errorf("%v", partition)
			}
		}
		return len(listed[topic].Partitions), nil
	case "list_topics":
		listed, err := admin.ListTopics(bounded)
		return listed.Names(), err
	case "describe_configs":
		described, err := admin.DescribeTopicConfigs(bounded, topic)
		if err != nil {
			return nil, err
		}
		resource, err := described.On(topic, nil)
		if err == nil {
			err = resource.Err
		}
		entries := map[string]string{}
		for _, entry := range resource.Configs {
			entries[entry.Key] = entry.MaybeValue()
		}
		return entries, err
	case "alter_configs":
		var changes []kadm.AlterConfig
		for name, value := range asked.Configs {
			changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: kadm.StringPtr(value)})
		}
		altered, err := admin.AlterTopicConfigs(bounded, changes, topic)
		if err != nil {
			return nil, err
		}
		_, err = altered.On(topic, func(one *kadm.AlterConfigsResponse) error { return one.Err })
		return nil, err
	case "create_partitions":
		changed, err := admin.UpdatePartitions(bounded, asked.Partitions, topic)
		if err == nil {
			err = changed.Error()
		}
		return nil, err
	case "delete_records":
		before := kadm.Offsets{}
		for partition, offset := range asked.Starts {
			before.AddOffset(topic, number(partition), offset, -1)
		}
		deleted, err := admin.DeleteRecords(bounded, before)
		if err == nil {
			err = deleted.Error()
		}
		lows := map[string]int64{}
		deleted.Each(func(one kadm.DeleteRecordsResponse) { lows[strconv.Itoa(int(one.Partition))] = one.LowWatermark })
		return lows, err
	case "list_groups":
		listed, err := admin.ListGroups(bounded)
		return listed.Groups(), err
	case "describe_group":
		described, err := admin.DescribeGroups(bounded, group)
		if err == nil {
			err = described.Error()
		}
		return []any{described[group].State, len(described[group].Members)}, err
	case "group_offsets":
		fetched, err := admin.FetchOffsets(bounded, group)
		committed := map[string]int64{}
		for partition, at := range fetched[topic] {
			committed[strconv.Itoa(int(partition))] = at.At
		}
		return committed, err
	case "delete_group":
		deleted, err := admin.DeleteGroup(bounded, group)
		if err == nil {
			err = deleted.Err
		}
		return nil, err
	case "delete_topic":
		deleted, err := admin.DeleteTopic(bounded, topic)
		if err == nil {
			err = deleted.Err
		}
		return nil, err
	}
	return nil, errors.New("nothing is called " + asked.Op)
}

func consume(bounded context.Context, client *kgo.Client, count int) ([]record, error) {
	records := []record{}
	for len(records) < count {
		fetches := client.PollRecords(bounded, count-len(records))
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("%d of %d records: %w", len(records), count, err)
		}
		fetches.EachRecord(func(given *kgo.Record) {
			headers := []header{}
			for _, h := range given.Headers {
				headers = append(headers, header{h.Key, h.Value})
			}
			records = append(records, record{given.Partition, given.Timestamp.UnixMilli(), given.Key, given.Value, headers, given.Offset})
		})
	}
	return records, nil
}

func number(partition string) int32 {
	parsed, err := strconv.Atoi(partition)
	if err != nil {
		panic(err)
	}
	return int32(parsed)
}
