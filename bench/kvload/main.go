// kvload sends one kind of request from many clients to a Mayfly cluster or to etcd, each through the client
// library its users have, and prints what came of it as JSON.
//
//	kvload -to go-redis|rueidis|etcd -at HOST:PORT,… -op put|get -clients 64 -seconds 10
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	etcd "go.etcd.io/etcd/client/v3"
)

const (
	keys      = 100_000
	valueSize = 100
	warmUp    = time.Second
)

// target is one client's view of a store.
type target interface {
	put(ctx context.Context, key, value string) error
	get(ctx context.Context, key string) error
}

type goRedisTarget struct{ c *redis.ClusterClient }

func (t goRedisTarget) put(ctx context.Context, key, value string) error {
	return t.c.Set(ctx, key, value, 0).Err()
}

func (t goRedisTarget) get(ctx context.Context, key string) error {
	err := t.c.Get(ctx, key).Err()
	if err == redis.Nil {
		return nil
	}
	return err
}

type rueidisTarget struct{ c rueidis.Client }

func (t rueidisTarget) put(ctx context.Context, key, value string) error {
	return t.c.Do(ctx, t.c.B().Set().Key(key).Value(value).Build()).Error()
}

func (t rueidisTarget) get(ctx context.Context, key string) error {
	err := t.c.Do(ctx, t.c.B().Get().Key(key).Build()).Error()
	if rueidis.IsRedisNil(err) {
		return nil
	}
	return err
}

type etcdTarget struct{ c *etcd.Client }

func (t etcdTarget) put(ctx context.Context, key, value string) error {
	_, err := t.c.Put(ctx, key, value)
	return err
}

func (t etcdTarget) get(ctx context.Context, key string) error {
	_, err := t.c.Get(ctx, key) // linearizable unless told otherwise
	return err
}

// shareN is how many connections all clients share where a connection carries many requests at once, as in etcd's
// own benchmark.
const shareN = 8

// connect returns a target per client. go-redis has a pool of as many connections as there are clients. Clients of
// etcd (HTTP/2) and rueidis (pipelining) share connections: each of them has one to the node it talks to.
func connect(kind string, at []string, clients int) ([]target, error) {
	switch kind {
	case "go-redis":
		c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: at, PoolSize: clients, MinIdleConns: clients})
		return share(clients, 1, func() (target, error) {
			return goRedisTarget{c}, c.Ping(context.Background()).Err()
		})
	case "rueidis":
		return share(clients, shareN, func() (target, error) {
			c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: at, DisableCache: true, AlwaysPipelining: true})
			return rueidisTarget{c}, err
		})
	case "etcd":
		return share(clients, shareN, func() (target, error) {
			c, err := etcd.New(etcd.Config{Endpoints: at, DialTimeout: 5 * time.Second})
			return etcdTarget{c}, err
		})
	}
	return nil, fmt.Errorf("no such kind of client: %s", kind)
}

// share makes n targets and gives them to the clients in turn.
func share(clients, n int, make1 func() (target, error)) ([]target, error) {
	targets := make([]target, clients)
	for i := range targets {
		if i >= n {
			targets[i] = targets[i%n]
			continue
		}
		t, err := make1()
		if err != nil {
			return nil, err
		}
		targets[i] = t
	}
	return targets, nil
}

type result struct {
	PerSecond float64 `json:"per_second"`
	P50       float64 `json:"p50_ms"`
	P99       float64 `json:"p99_ms"`
	P999      float64 `json:"p999_ms"`
	Requests  int     `json:"requests"`
	Errors    int     `json:"errors"`
}

type client struct {
	took   []time.Duration
	errors int
}

func (c *client) run(t target, op string, random *rand.Rand, begin, end time.Time) {
	ctx := context.Background()
	value := strings.Repeat("v", valueSize)
	for now := time.Now(); now.Before(end); {
		key := fmt.Sprintf("key:%012d", random.Intn(keys))
		var err error
		if op == "put" {
			err = t.put(ctx, key, value)
		} else {
			err = t.get(ctx, key)
		}
		done := time.Now()
		if now.After(begin) {
			c.took = append(c.took, done.Sub(now))
			if err != nil {
				c.errors++
			}
		}
		now = done
	}
}

func percentile(sorted []time.Duration, p float64) float64 {
	return float64(sorted[int(p*float64(len(sorted)-1))]) / float64(time.Millisecond)
}

func measure(targets []target, op string, seconds float64) (result, error) {
	begin := time.Now().Add(warmUp)
	length := time.Duration(seconds * float64(time.Second))
	clients := make([]client, len(targets))
	var wait sync.WaitGroup
	for i := range clients {
		wait.Add(1)
		go func(i int) {
			defer wait.Done()
			clients[i].run(targets[i], op, rand.New(rand.NewSource(int64(i))), begin, begin.Add(length))
		}(i)
	}
	wait.Wait()
	var all []time.Duration
	var r result
	for _, c := range clients {
		all = append(all, c.took...)
		r.Errors += c.errors
	}
	if len(all) == 0 {
		return r, fmt.Errorf("no request was answered")
	}
	sort.Slice(all, func(i, j int) bool { return all[i] < all[j] })
	r.Requests = len(all)
	r.PerSecond = float64(len(all)) / seconds
	r.P50, r.P99, r.P999 = percentile(all, 0.5), percentile(all, 0.99), percentile(all, 0.999)
	return r, nil
}

func main() {
	kind := flag.String("to", "go-redis", "go-redis, rueidis or etcd")
	at := flag.String("at", "", "addresses, separated by commas")
	op := flag.String("op", "put", "put or get")
	clients := flag.Int("clients", 64, "how many send requests at the same time")
	seconds := flag.Float64("seconds", 10, "after one second of warming up")
	flag.Parse()
	targets, err := connect(*kind, strings.Split(*at, ","), *clients)
	if err == nil {
		var r result
		if r, err = measure(targets, *op, *seconds); err == nil {
			err = json.NewEncoder(os.Stdout).Encode(r)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "kvload:", err)
		os.Exit(1)
	}
}
