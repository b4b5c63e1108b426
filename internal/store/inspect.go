package store

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"
)

// The oldest version of Redis that has all that the scripts use.
const oldestMajor, oldestMinor = 6, 2

// node is what one server reports of itself.
type node struct {
	version  string   // "" if it isn't reported
	warnings []string // sentences for the operator
}

// inspect checks whether each server that takes writes is fit. An error says why one is not.
func inspect(ctx context.Context, rdb redis.UniversalClient) (node, error) {
	c, ok := rdb.(*redis.ClusterClient)
	if !ok {
		return inspectNode(ctx, rdb)
	}
	var mu sync.Mutex
	var all node
	err := c.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
		n, err := inspectNode(ctx, master)
		mu.Lock()
		defer mu.Unlock()
		all.version = n.version
		all.warnings = append(all.warnings, n.warnings...)
		return err
	})
	slices.Sort(all.warnings)
	all.warnings = slices.Compact(all.warnings)
	return all, err
}

func inspectNode(ctx context.Context, rdb redis.Cmdable) (node, error) {
	info, err := rdb.InfoMap(ctx).Result() // without arguments: several need Redis 7
	if forbidden(err) {
		return node{warnings: []string{fmt.Sprintf(
			"Version, eviction policy and persistence could not be checked: INFO is not "+
				"permitted. Forebay needs Redis %d.%d or later, maxmemory-policy noeviction, "+
				"and appendonly yes.",
			oldestMajor, oldestMinor)}}, nil
	}
	if err != nil {
		return node{}, err
	}
	n := node{version: info["Server"]["redis_version"]}
	if err := checkVersion(n.version); err != nil {
		return n, err
	}
	if info["Replication"]["role"] == "slave" {
		return n, unfit("it is a read-only replica: set redis.url to its master")
	}
	if policy, ok := info["Memory"]["maxmemory_policy"]; ok && policy != "noeviction" {
		n.warnings = append(n.warnings, fmt.Sprintf("maxmemory-policy is %s: a Redis whose memory "+
			"is full removes accepted jobs and spent limits. Set maxmemory-policy noeviction.",
			policy))
	}
	if info["Persistence"]["aof_enabled"] != "1" {
		loses, err := checkSnapshots(ctx, rdb)
		if err != nil {
			return n, err
		}
		n.warnings = append(n.warnings, loses)
	}
	return n, nil
}

// unfit is the error for a Redis that answers but can't be used.
type unfit string

func (u unfit) Error() string { return string(u) }

func checkVersion(version string) error {
	var major, minor int
	if n, _ := fmt.Sscanf(version, "%d.%d", &major, &minor); n < 2 {
		return unfit(fmt.Sprintf("its version %q can't be read: Forebay needs Redis %d.%d or later",
			version, oldestMajor, oldestMinor))
	}
	if major < oldestMajor || major == oldestMajor && minor < oldestMinor {
		return unfit(fmt.Sprintf("its version is %s: Forebay needs Redis %d.%d or later",
			version, oldestMajor, oldestMinor))
	}
	return nil
}

// checkSnapshots returns a warning about what a server without an append-only file can lose.
func checkSnapshots(ctx context.Context, rdb redis.Cmdable) (string, error) {
	const mend = " Set appendonly yes to keep every accepted job."
	save, err := rdb.ConfigGet(ctx, "save").Result()
	switch {
	case forbidden(err): // as on managed servers
		return "There is no append-only file, and whether snapshots are taken could not be " +
			"checked: CONFIG is not permitted." + mend, nil
	case err != nil:
		return "", err
	case save["save"] == "":
		return "Nothing is persisted: a restart of Redis loses all accepted jobs." + mend, nil
	}
	return "Only snapshots are persisted: a crash of Redis loses the jobs accepted since the " +
		"last one." + mend, nil
}

// forbidden reports whether the user may not use a command, or the server hides it.
func forbidden(err error) bool {
	return redis.HasErrorPrefix(err, "NOPERM") || redis.HasErrorPrefix(err, "unknown command")
}
