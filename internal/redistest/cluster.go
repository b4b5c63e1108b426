package redistest

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	masters = 3
	slots   = 16384
)

// StartCluster starts a Redis Cluster of three masters without replicas that ends with t. It
// returns a client of it, closed when t ends, and the masters' addresses. It takes about two
// seconds.
func StartCluster(t testing.TB) (redis.UniversalClient, []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	nodes := make([]redis.UniversalClient, masters)
	addrs := make([]string, masters)
	for i := range nodes {
		s := Start(t, "--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf",
			"--cluster-node-timeout", "2000")
		addrs[i], nodes[i] = s.Addr, s.Client(t)
		if err := join(ctx, nodes[i], i, addrs[0]); err != nil {
			t.Fatalf("redistest: cluster node %d: %v", i, err)
		}
	}
	for i, node := range nodes {
		if err := agreed(ctx, node); err != nil {
			t.Fatalf("redistest: cluster node %d: %v", i, err)
		}
	}

	o := options("")
	rdb := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs:                    slices.Clone(addrs), // the client appends to it
		MaxRedirects:             -1,
		DialerRetries:            o.DialerRetries,
		DialTimeout:              o.DialTimeout,
		ReadTimeout:              o.ReadTimeout,
		WriteTimeout:             o.WriteTimeout,
		ContextTimeoutEnabled:    true,
		PoolSize:                 o.PoolSize,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { rdb.Close() })
	return rdb, addrs
}

// join gives the i-th node its third of the slots and introduces it to the first node.
func join(ctx context.Context, node redis.UniversalClient, i int, first string) error {
	// Distinct epochs from the start: nodes that all begin at 0 have to settle a conflict first.
	if err := node.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(); err != nil {
		return err
	}
	if err := node.ClusterAddSlotsRange(ctx, i*slots/masters,
		(i+1)*slots/masters-1).Err(); err != nil {
		return err
	}
	if i == 0 {
		return nil
	}
	host, port, err := net.SplitHostPort(first)
	if err != nil {
		return err
	}
	return node.ClusterMeet(ctx, host, port).Err()
}

// agreed waits until the node knows all masters and all slots.
func agreed(ctx context.Context, node redis.UniversalClient) error {
	for {
		shards, err := node.ClusterSlots(ctx).Result()
		if err != nil {
			return err
		}
		covered := 0
		for _, s := range shards {
			covered += s.End - s.Start + 1
		}
		info, err := node.ClusterInfo(ctx).Result()
		if err != nil {
			return err
		}
		if covered == slots && len(shards) == masters &&
			strings.Contains(info, "cluster_state:ok") {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no agreement within %v: %d slots in %d shards", startTimeout,
				covered, len(shards))
		case <-time.After(10 * time.Millisecond):
		}
	}
}
