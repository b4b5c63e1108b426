package httpapi

import (
	"context"
	"log/slog"

	"github.com/forebay/forebay/internal/admission"
	"github.com/forebay/forebay/internal/cache"
	"github.com/forebay/forebay/internal/shadows"
	"github.com/forebay/forebay/internal/web"
)

// Config is what a Server is put together from. It was checked before: every name in it is known.
type Config struct {
	Identity  Identifier
	Admission *admission.Admission
	Lines     map[string]Line // by backend
	Finals    Finals
	Answers   Answers
	Store     Store

	Callbacks  Callbacks  // nil: no job's end is notified
	Deliveries Deliveries // nil: operators can't look at webhooks' deliveries
	Shadows    Shadows    // nil: no books on shadow limits are kept
	Stored     Stored     // nil: operators can't look at stored answers

	// CheckMethod is the field in which a gateway that is a trusted proxy names the original
	// request's method; "": none.
	CheckMethod string

	MaxBody int64 // bytes of a POST's body
	// MaxBuffered bounds the bytes of all POSTs' bodies that are in memory at one time, and by as much
	// again those of all answers that clients haven't read yet; 0: no bound.
	MaxBuffered int64
	Legacy      LegacyHeaders // "": Epoch
	AdminToken  string        // "": the admin API asks for none, and must not be reachable from elsewhere

	Web *web.Server // speaks HTTP, logs, and takes the metrics
	// Audit takes changes that operators make, whatever else is logged; nil: Web's log.
	Audit *slog.Logger
}

// Callbacks are the webhooks that tell of jobs' ends.
type Callbacks interface {
	// For is the URL that the end of a client's job is told to: what the request asks for, or the client's own ("" where it has none). An
	// error is fit for the client: why it can't have that.
	For(client, asked string) (url string, err error)
}

// Stored are the answers that are kept, for operators.
type Stored interface {
	Holding(ctx context.Context, operation string) (cache.Holding, error)
	Inspect(ctx context.Context, key string) (cache.Entry, bool, error)
	Purge(ctx context.Context, f cache.Filter) (removed int, err error)
}

// Shadows keeps the books on clients that shadow limits would have refused.
type Shadows interface {
	Top(context.Context) ([]shadows.Count, error) // of the last 24 h, the largest counts first
}
