package leaky_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
)

// stores has the bytes of the model's jobs that count for their clients.
type stores struct {
	bytes  func(leaky.Offer) int64           // bytes of the offer's job, without its result
	stored map[string]int64                  // by client: of jobs that haven't ended
	keeps  map[string]map[string]storedBytes // by client and job
	swept  map[string]bool                   // clients whose ended jobs this call has checked
}

// storedBytes has the bytes of a job that has ended, and until when its record is kept.
type storedBytes struct {
	bytes int64
	until float64
}

func newStores() stores {
	return stores{stored: map[string]int64{}, keeps: map[string]map[string]storedBytes{}}
}

// counted returns the bytes with which the offer's job counts; 0: it doesn't count.
func (m *model) counted(o leaky.Offer) int64 {
	if o.MaxStored == 0 {
		return 0
	}
	return m.bytes(o)
}

func (m *model) store(client string, by int64) {
	if m.stored[client] += by; m.stored[client] == 0 {
		delete(m.stored, client)
	}
}

// kept counts a job that has ended with its result until its record expires.
func (m *model) kept(j *modelJob, keep time.Duration) {
	if j.bytes == 0 {
		return
	}
	m.store(j.job.Client, -j.bytes)
	if m.keeps[j.job.Client] == nil {
		m.keeps[j.job.Client] = map[string]storedBytes{}
	}
	m.keeps[j.job.Client][j.job.ID] = storedBytes{j.bytes + j.st.Result.Size,
		us(m.now + usec(keep))}
}

// dropped subtracts the bytes of a job that has ended.
func (m *model) dropped(j *modelJob) { delete(m.keeps[j.job.Client], j.job.ID) }

// free returns how long it takes until the offer's bytes fit; 0: they do now.
func (v *view) free(o leaky.Offer) float64 {
	if v.counted(o) == 0 {
		return 0
	}
	ended := v.keeps[o.Job.Client]
	if !v.swept[o.Job.Client] {
		maps.DeleteFunc(ended, func(_ string, s storedBytes) bool { return s.until <= v.now })
		v.swept[o.Job.Client] = true
	}
	over := v.stored[o.Job.Client] + v.bytes(o) - o.MaxStored
	next := slices.SortedFunc(maps.Values(ended),
		func(a, b storedBytes) int { return cmp.Compare(a.until, b.until) })
	for _, s := range next {
		over += s.bytes
	}
	if over <= 0 {
		return 0
	}
	for _, s := range next {
		if over -= s.bytes; over <= 0 {
			return max(s.until-v.now, 1)
		}
	}
	return 30e6
}

func (h *history) bytes(o leaky.Offer) int64 {
	n, err := h.line.Bytes(o)
	if err != nil {
		h.Fatal(err)
	}
	return n
}

// compareStores compares the bytes that count for clients with the model.
func (h *history) compareStores() {
	ctx, prefix := context.Background(), jobs.KeyPrefix(h.line.Settings().Backend)
	stored, err := h.rdb.HGetAll(ctx, prefix+"stored").Result()
	want := map[string]string{}
	for client, n := range h.model.stored {
		want[leaky.ClientTag(client)] = strconv.FormatInt(n, 10)
	}
	h.agree("bytes of jobs that live", stored, want, err)
	for client, ended := range h.model.keeps {
		members, err := h.rdb.ZRangeWithScores(ctx, prefix+"kept:"+leaky.ClientTag(client), 0,
			-1).Result()
		got, want := zset{}, zset{}
		for _, m := range members {
			got[m.Member.(string)] = m.Score
		}
		if _, any := got[""]; any {
			want[""] = 0
		}
		for id, s := range ended {
			want[""] -= float64(s.bytes)
			want[fmt.Sprintf("%s %d", id[len(id)-36:], s.bytes)] = s.until
		}
		h.agree("bytes of jobs that have ended", got, want, err)
	}
}
