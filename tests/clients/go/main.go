// go-redis' cluster client through the events of test_cluster_clients.py, which tells what the lines mean.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

var ctx = context.Background()
var errors, wrong, turns atomic.Int64

func check(what string, got, wanted any) {
	if fmt.Sprint(got) != fmt.Sprint(wanted) {
		wrong.Add(1)
		fmt.Fprintln(os.Stderr, what, "is", got, "and not", wanted)
	}
}

// Until it succeeds.
func try(f func() error) {
	for {
		err := f()
		if err == nil || err == redis.Nil {
			return
		}
		errors.Add(1)
		fmt.Fprintln(os.Stderr, err)
		time.Sleep(50 * time.Millisecond)
	}
}

// A key that lives for 50 ms: it is gone when that time is over, and was not gone before.
func short(c *redis.ClusterClient, i int) {
	key := fmt.Sprintf("go:s%d", i%40)
	begin := time.Now()
	try(func() error { return c.Set(ctx, key, "x", 50*time.Millisecond).Err() })
	setBy := time.Now()
	try(func() error {
		_, err := c.Get(ctx, key).Result()
		if err == redis.Nil && time.Since(begin) < 50*time.Millisecond {
			check(key, err, "x")
		}
		return err
	})
	if i%10 != 0 {
		return
	}
	time.Sleep(time.Until(setBy.Add(51 * time.Millisecond)))
	try(func() error {
		got, err := c.Get(ctx, key).Result()
		if err == nil {
			check(key, got, "gone")
		}
		return err
	})
}

func turn(c *redis.ClusterClient, i int) {
	key := fmt.Sprintf("go:%d", i%40)
	try(func() error { return c.Set(ctx, key, i, 1000*time.Second).Err() })
	try(func() error {
		got, err := c.Get(ctx, key).Result()
		if err == nil {
			check(key, got, i)
		}
		return err
	})
	short(c, i)
	try(func() error {
		p := c.Pipeline()
		for j := 0; j < 20; j++ {
			p.Set(ctx, fmt.Sprintf("go:p%d", j), i, 0)
		}
		ttl := p.TTL(ctx, key)
		_, err := p.Exec(ctx)
		if err == nil && (ttl.Val() < 900*time.Second || ttl.Val() > 1000*time.Second) {
			check(key+"'s TTL", ttl.Val(), "about 1000 s")
		}
		return err
	})
	try(func() error {
		_, err := c.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.HSet(ctx, "{go}h", "f", i)
			p.Set(ctx, "{go}s", i, 0)
			return nil
		})
		return err
	})
	try(func() error {
		got, err := c.HGet(ctx, "{go}h", "f").Result()
		if err == nil {
			check("{go}h", got, i)
		}
		return err
	})
	turns.Add(1)
}

func main() {
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{os.Args[1]}, MaxRedirects: 50})
	go func() {
		for i := 1; ; i++ {
			turn(c, i)
		}
	}()
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		if strings.TrimSpace(in.Text()) == "look" {
			fmt.Println(turns.Load(), errors.Load(), wrong.Load())
		}
	}
}
