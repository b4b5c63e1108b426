package wire

import (
	"cmp"
	"context"
	"crypto/rand"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/adminapi"
	"github.com/forebay/forebay/internal/admission"
	"github.com/forebay/forebay/internal/cache"
	"github.com/forebay/forebay/internal/clients"
	"github.com/forebay/forebay/internal/config"
	"github.com/forebay/forebay/internal/degrade"
	"github.com/forebay/forebay/internal/httpapi"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/limits"
	"github.com/forebay/forebay/internal/shadows"
	"github.com/forebay/forebay/internal/store"
	"github.com/forebay/forebay/internal/web"
	"github.com/forebay/forebay/internal/webhook"
)

// Front is the api's two servers and their background work.
type Front struct {
	*httpapi.Server
	// Answers are those that may be served again. An embedded worker stores its own there: answers
	// that pass through this process are still known to it while Redis is unavailable.
	Answers degrade.Store

	operators  *adminapi.Server
	background []func(context.Context)
}

// NewFront makes the api's servers. audit takes the changes that operators make, log everything
// else; past counts decisions. The background work starts with Run.
func NewFront(c *config.Config, callers *Clients, s *store.Store, lines map[string]*leaky.Line,
	finals httpapi.Finals, past *History, metrics *prometheus.Registry,
	log, audit *slog.Logger) (*Front, error) {
	limiter := limits.New(s.Client(), s.Cluster())
	limiter.Tend(s.Client(), fates(lines))
	exchange, err := together(c, limiter, s, metrics, log)
	if err != nil {
		return nil, err
	}
	peers := limits.NewPeers(s.Client(), processName(), c.Checks.Processes)
	books := shadows.New(s.Client(), log)
	f := &Front{background: []func(context.Context){peers.Run, books.Run, exchange}}

	memory := cache.NewMemory(cache.New(s.Client()), cache.DefaultMemory, s.Healthy)
	f.Answers = memory
	f.background = append(f.background,
		func(ctx context.Context) { memory.Run(ctx); memory.Close() })

	answers := degrade.New(memory)
	enter := admission.Config{
		Rules: admission.Rules{
			Tiers:           map[string]admission.Tier{},
			Overrides:       callers.Override,
			RejectOnFailure: c.Redis.OnFailure == "reject",
		},
		Parts: admission.Parts{
			Limiter:     limiter,
			LocalChecks: limits.NewFallback(limiter, peers.Count, s.Healthy),
			Lines:       map[string]admission.Line{},
			Cluster:     s.Cluster(),
			Answers:     answers,
			Store:       s,
			Secret:      jobs.NewSecret(s.Client()),
			Shadows:     books,
		},
		Policy:  httpapi.LastingPolicy,
		Metrics: metrics,
		Log:     log,
	}
	front := httpapi.Config{
		Identity:  callers,
		Lines:     map[string]httpapi.Line{},
		Finals:    finals,
		Answers:   answers,
		Store:     s,
		Callbacks: webhook.Rules{Policy: c.Callbacks, Clients: callers},
		Web:       web.NewServer(metrics, log),
		Tally:     past.tally(c),
		Requests: httpapi.Requests{
			CheckMethod: c.Checks.MethodHeader,
			MaxBody:     int64(c.HTTP.MaxBody),
			MaxBuffered: int64(c.HTTP.MaxBuffered),
			Legacy:      httpapi.LegacyHeaders(c.HTTP.LegacyRateLimitHeaders),
		},
	}
	operators := adminapi.Config{
		Lines:      map[string]adminapi.Line{},
		Store:      health{s, lines},
		Operations: map[string]degrade.Policy{},
		Stored:     memory,
		Deliveries: webhook.NewOutbox(s.Client()),
		Shadows:    books,
		Tallies:    past.Tallies,
		Events:     past.Events,
		Running:    api.RunningConfig{Process: past.Process, Config: c.Describe()},
		Workers: func(ctx context.Context) (int, error) {
			return jobs.Workers(ctx, s.Client())
		},
		Token: string(c.Admin.Token),
		Web:   front.Web,
		Audit: audit,
	}
	for name, line := range lines {
		enter.Lines[name], front.Lines[name], operators.Lines[name] = line, line, line
		if !s.Cluster() {
			line.Limited(limits.Script{})
		}
	}
	if enter.Limits, err = rules(c, "limits", c.Limits); err != nil {
		return nil, err
	}
	for name, t := range c.Tiers {
		own, err := rules(c, "tier:"+name, t.Limits)
		if err != nil {
			return nil, err
		}
		reads, err := rules(c, "reads:"+name, t.Reads)
		if err != nil {
			return nil, err
		}
		enter.Tiers[name] = admission.Tier{Weight: t.Weight, MaxStored: int64(t.MaxStored),
			Limits: own, Reads: reads,
			Grace: admission.Grace(t.Grace)}
		if t.Grace.Factor > 0 {
			enter.Newcomers = clients.NewNewcomers(s.Client())
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Operations)) {
		o := c.Operations[name]
		own, err := rules(c, "operation:"+name, o.Limits)
		if err != nil {
			return nil, err
		}
		operators.Operations[name] = o.Policy()
		enter.Operations = append(enter.Operations, admission.Operation{
			Name: name, Backend: o.Backend,
			Tiers: o.Tiers, Cost: admission.Cost(o.Cost), Limits: own,
			Overload: operators.Operations[name],
			Coalesce: o.Coalesce, Keep: o.KeepResult, MaxAge: c.Backends[o.Backend].MaxAge,
			OnFailure: cmp.Or(o.OnFailure, c.Checks.OnFailure)})
	}
	if watched := mayBeSick(enter.Operations, lines); len(watched) > 0 {
		healths := leaky.NewHealths(watched)
		enter.Health = healths
		f.background = append(f.background, healths.Run)
	}
	front.Admission = admission.New(enter)
	f.Server = httpapi.New(front)
	operators.Front = f.Server
	f.operators = adminapi.New(operators)
	f.background = append(f.background, f.operators.Run)
	return f, nil
}

// Admin is the handler of the admin listener.
func (f *Front) Admin() http.Handler { return f.operators.Handler() }

// mayBeSick are the lines of those backends whose health some operation asks for.
func mayBeSick(operations []admission.Operation,
	lines map[string]*leaky.Line) map[string]*leaky.Line {
	watched := map[string]*leaky.Line{}
	for _, o := range operations {
		if o.Overload.Sick.On || o.Overload.Refresh {
			watched[o.Backend] = lines[o.Backend]
		}
	}
	return watched
}

// Run does the background work until ctx ends, and then makes the remaining writes. ctx should end
// after the last request was answered and before the store is closed.
func (f *Front) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, work := range f.background {
		all.Go(func() { work(ctx) })
	}
	all.Wait()
	f.Admission.Wait() // a refresh that is still being offered
}

// processName distinguishes this process from all others that use the same Redis. A restarted
// process counts as another one.
func processName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return host + "-" + rand.Text()
}
