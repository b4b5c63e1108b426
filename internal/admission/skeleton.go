package admission

import (
	"context"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"forebay/internal/jobs"
)

// Holds are the places of limits of concurrency that the verdict's charge took for its job.
func (v Verdict) Holds() jobs.Holds { return jobs.Holds{} }

// Newcomers knows since when each client has been seen.
type Newcomers struct{}

func NewNewcomers(rdb redis.UniversalClient) *Newcomers { return &Newcomers{} }

// Until is when the client stops being new; zero: it isn't new any more.
func (n *Newcomers) Until(ctx context.Context, client string, period time.Duration) (time.Time, error) {
	return time.Time{}, nil
}

// Shadows remembers who would have been refused by shadow limits.
type Shadows struct{}

// ShadowCount is how often a shadow limit would have refused a client's requests for an operation.
type ShadowCount struct {
	Limit, Client, Operation string
	Count                    int64
	Last                     time.Time
}

func NewShadows(rdb redis.UniversalClient, log *slog.Logger) *Shadows { return &Shadows{} }
func (s *Shadows) Run(ctx context.Context)                            {}
func (s *Shadows) Note(limit, client, operation string)               {}
func (s *Shadows) Top(ctx context.Context) ([]ShadowCount, error)     { return nil, nil }

// Peers counts the processes that decide together.
type Peers struct{}

func NewPeers(rdb redis.UniversalClient, name string) *Peers { return &Peers{} }
func (p *Peers) Run(ctx context.Context)                     {}
func (p *Peers) Count() int                                  { return 1 }

// Fallback is a Limiter that goes on by itself where the store is lost.
type Fallback struct{ *Limiter }

func NewFallback(shared *Limiter, peers func() int, healthy func() bool) *Fallback {
	return &Fallback{shared}
}
