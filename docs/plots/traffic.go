package main

import (
	"context"
	"strconv"
	"time"

	"github.com/forebay/forebay/internal/limits"
)

// phase is a part of the traffic, with evenly spaced requests.
type phase struct {
	name    string
	seconds int
	rate    int // per second; divides ticksPerSecond
}

// traffic is the load on each limit. The burst spans the edge of a window, at 40 s.
var traffic = []phase{
	{"half load, 1/s", 20, 1},
	{"idle", 18, 0},
	{"burst, 10/s", 4, 10},
	{"idle", 8, 0},
	{"overload, 5/s", 30, 5},
	{"half load", 10, 1},
}

const ticksPerSecond = 20

// begin is the start of a window.
var begin = time.Unix(1_800_000_000, 0)

// level is an amount that remains from a moment on.
type level struct {
	second    float64
	remaining int64
}

// sight is what was observed of a limit under the traffic.
type sight struct {
	offered, admitted []int   // in each second
	levels            []level // each change
	most              int     // admitted within any window
}

// watch applies one limit to the traffic.
func watch(ctx context.Context, l limits.Limit) (sight, error) {
	l.Per = limits.PerGlobal
	rule, err := limits.Compile(l)
	if err != nil {
		return sight{}, err
	}
	now := begin
	limiter := limits.NewLocalAt(func() time.Time { return now })
	type job struct {
		ends    time.Time
		verdict limits.Verdict
	}
	var s sight
	var jobs []job
	var times []time.Time // of admitted requests
	for _, p := range traffic {
		for tick := range p.seconds * ticksPerSecond {
			if tick%ticksPerSecond == 0 {
				s.offered, s.admitted = append(s.offered, 0), append(s.admitted, 0)
			}
			second := len(s.offered) - 1
			for l.Algorithm == limits.Concurrency && len(jobs) > 0 && !jobs[0].ends.After(now) {
				if err := limiter.Refund(ctx, jobs[0].verdict); err != nil {
					return sight{}, err
				}
				jobs = jobs[1:]
			}
			r := limits.Request{Rules: []*limits.Rule{rule}, Cost: 1,
				Job: strconv.FormatInt(now.UnixMicro(), 10)}
			var v limits.Verdict
			if p.rate > 0 && tick%(ticksPerSecond/p.rate) == 0 {
				if v, err = limiter.Decide(ctx, r); err != nil {
					return sight{}, err
				}
				s.offered[second]++
				if v.Allowed {
					s.admitted[second]++
					jobs, times = append(jobs, job{now.Add(lasts), v}), append(times, now)
				}
			} else if v, err = limiter.Peek(ctx, r); err != nil {
				return sight{}, err
			}
			n, last := v.Standings[0].Remaining, len(s.levels)-1
			if last < 0 || s.levels[last].remaining != n {
				s.levels = append(s.levels, level{now.Sub(begin).Seconds(), n})
			}
			now = now.Add(time.Second / ticksPerSecond)
		}
	}
	for first, last := 0, 0; last < len(times); last++ {
		for times[last].Sub(times[first]) >= window {
			first++
		}
		s.most = max(s.most, last-first+1)
	}
	return s, nil
}
