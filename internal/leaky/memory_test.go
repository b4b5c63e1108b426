package leaky_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/leaky"
)

// A waiting job is a record, a member of the line and an entry of its client's list. With a payload
// of 256 bytes and names as short as these it takes less than 700 bytes in Redis (bench measures a
// million). The allocator's steps are 64 bytes: longer names may cost one.
func TestAWaitingJobTakesUnder700Bytes(t *testing.T) {
	t.Parallel()
	// With the clients' lists fewer than 32,768 keys, at which Redis doubles its table.
	const waiting, clients, most = 31_744, 1000, 700
	rdb := ownServer(t)
	b := newUnchecked(t, rdb, func(s *leaky.Settings) {
		s.Backend, s.Capacity, s.Rate = "bench", waiting+1, leaky.Unlimited
	})
	b.accept("first") // scripts are loaded then
	before := usedMemory(t, rdb)
	for n := 0; n < waiting; n += batch {
		offers := make([]leaky.Offer, batch)
		for i := range offers {
			offers[i] = b.job(fmt.Sprint("acme-", (n+i)%clients))
			offers[i].Job.Operation, offers[i].Job.Payload = "job",
				[]byte(`"`+strings.Repeat("x", 254)+`"`)
		}
		places, err := b.OfferAll(context.Background(), offers)
		if err != nil || places[batch-1].Outcome != leaky.Accepted {
			t.Fatal(places, err)
		}
	}
	if each := float64(usedMemory(t, rdb)-before) / waiting; each >= most {
		t.Errorf("a waiting job takes %.0f bytes, want under %d", each, most)
	} else {
		t.Logf("a waiting job takes %.0f bytes", each)
	}
}

func usedMemory(t *testing.T, rdb redis.UniversalClient) int64 {
	t.Helper()
	info, err := rdb.InfoMap(context.Background(), "memory").Result()
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseInt(info["Memory"]["used_memory"], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
