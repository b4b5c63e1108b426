package webhook

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/jobs"
)

//go:embed scripts/claim.lua
var claimLua string

//go:embed scripts/begin.lua
var beginLua string

//go:embed scripts/open.lua
var openLua string

//go:embed scripts/settle.lua
var settleLua string

//go:embed scripts/redeliver.lua
var redeliverLua string

//go:embed scripts/list.lua
var listLua string

var (
	claimScript     = redis.NewScript(claimLua)
	beginScript     = redis.NewScript(beginLua)
	openScript      = redis.NewScript(openLua)
	settleScript    = redis.NewScript(settleLua)
	redeliverScript = redis.NewScript(redeliverLua)
	listScript      = redis.NewScript(listLua)
)

const (
	// keepDelivery is how long at least a delivery stays on record after its last attempt, or if
	// another attempt follows, after that one is due.
	keepDelivery = 24 * time.Hour
	// maxLog bounds the attempts that are logged one by one: two rounds of the usual schedule.
	maxLog = 20
	// maxListed bounds the list of deliveries that were given up.
	maxListed = 10_000
	// disabledFor is how long a receiver stays disabled after a 410: longer than the jobs that it
	// was notified of are kept.
	disabledFor = 30 * 24 * time.Hour
)

// Outbox holds the deliveries of all backends in Redis: those still to be made, and the records of
// past ones. Any number of processes may use it. Safe for concurrent use.
type Outbox struct{ rdb redis.UniversalClient }

// NewOutbox returns the outbox in a Redis.
func NewOutbox(rdb redis.UniversalClient) *Outbox { return &Outbox{rdb} }

var errAnswer = errors.New("a script's answer isn't what its contract says")

// claimed are deliveries that the caller has claimed.
type claimed struct {
	deliveries []jobs.Delivery
	next       time.Duration // until the next one in the outbox is due; negative: there is none
	pending    int64         // all deliveries in the outbox
}

// claim claims up to n deliveries of a backend that are due. They are due again after guard.
func (o *Outbox) claim(
	ctx context.Context, backend string, guard time.Duration, n int,
) (claimed, error) {
	values, err := claimScript.Run(ctx, o.rdb, []string{outboxKey(backend)}, guard.Microseconds(),
		n).Slice()
	if err != nil {
		return claimed{}, fmt.Errorf("outbox of %s: %w", backend, err)
	}
	if len(values) < 3 {
		return claimed{}, errAnswer
	}
	out := claimed{next: -1}
	claim, bad := whole(values[0])
	if text, _ := values[1].(string); text != "" {
		micros, wrong := whole(values[1])
		out.next, bad = time.Duration(micros)*time.Microsecond, bad || wrong
	}
	pending, ok := values[2].(int64)
	if bad || !ok {
		return claimed{}, errAnswer
	}
	out.pending = pending
	for _, value := range values[3:] {
		id, _ := value.(string)
		out.deliveries = append(out.deliveries, jobs.Delivery{ID: id, Claim: claim})
	}
	return out, nil
}

// whole reads an integer that was sent as text; nil is 0.
func whole(value any) (n int64, bad bool) {
	if value == nil {
		return 0, false
	}
	text, ok := value.(string)
	n, err := strconv.ParseInt(text, 10, 64)
	return n, !ok || err != nil
}

// record is the record of a delivery, as far as an attempt needs it.
type record struct {
	finished int64  // µs: the end of the job that it reports; 0: there is no record
	url      string // of the receiver
	client   string // the job's owner
	message  string // webhook-id, the same at every attempt
	event    string // type
	body     []byte
	attempts int64 // in all
	first    int64 // attempts before this round of the schedule
	expires  time.Time
}

// begin takes over a claimed delivery for one attempt, which may take guard. It returns false if
// the claim is no longer valid.
func (o *Outbox) begin(
	ctx context.Context, d jobs.Delivery, guard time.Duration,
) (own jobs.Delivery, r record, ok bool, err error) {
	backend, _ := jobs.ParseID(d.ID)
	values, err := beginScript.Run(ctx, o.rdb,
		[]string{outboxKey(backend), deliveryKey(backend, d.ID)}, d.ID, d.Claim,
		guard.Microseconds()).Slice()
	if err != nil {
		return own, r, false, fmt.Errorf("begin to deliver %s: %w", d.ID, err)
	}
	if len(values) == 0 {
		return own, r, false, nil
	}
	if len(values) != 9 {
		return own, r, false, errAnswer
	}
	own.ID = d.ID
	var bad [4]bool
	own.Claim, bad[0] = whole(values[0])
	r.finished, bad[1] = whole(values[1])
	for i, to := range []*string{&r.url, &r.client, &r.message, &r.event} {
		*to, _ = values[2+i].(string)
	}
	body, _ := values[6].(string)
	r.body = []byte(body)
	r.attempts, bad[2] = whole(values[7])
	r.first, bad[3] = whole(values[8])
	if bad != [4]bool{} {
		return own, r, false, errAnswer
	}
	return own, r, true, nil
}

// open writes the record of a delivery. It returns false if the claim is no longer valid.
func (o *Outbox) open(ctx context.Context, d jobs.Delivery, r record) (bool, error) {
	backend, _ := jobs.ParseID(d.ID)
	n, err := openScript.Run(ctx, o.rdb, []string{outboxKey(backend), deliveryKey(backend, d.ID)},
		d.ID, d.Claim, keepDelivery.Milliseconds(), r.expires.UnixMicro(),
		"finished", r.finished, "url", r.url, "client", r.client, "message", r.message, "type",
		r.event, "body", r.body).Int()
	if err != nil {
		return false, fmt.Errorf("put the delivery of %s on record: %w", d.ID, err)
	}
	return n == 1, nil
}

// Outcomes for settle, beside the states of a Delivery.
const (
	putOff  State = "off"     // no attempt was made; one is due again
	dropped State = "dropped" // there is nothing to deliver (yet); a pending record is removed
)

// settle records the outcome of an attempt. wait is the time until the next one (Pending and
// putOff). It is safe to repeat.
func (o *Outbox) settle(
	ctx context.Context, d jobs.Delivery, to State, wait time.Duration, made *Attempt,
) error {
	backend, _ := jobs.ParseID(d.ID)
	entry := ""
	if made != nil {
		text, err := json.Marshal(logged{At: made.At.UnixMilli(), Took: made.Took.Milliseconds(),
			Status: made.Status, Word: made.Word})
		if err != nil {
			return fmt.Errorf("log an attempt to deliver %s: %w", d.ID, err)
		}
		entry = string(text)
	}
	err := settleScript.Run(ctx, o.rdb,
		[]string{outboxKey(backend), deliveryKey(backend, d.ID), undeliveredKey(backend)},
		d.ID, d.Claim, string(to), wait.Microseconds(), entry, maxLog, keepDelivery.Milliseconds(),
		maxListed).Err()
	if err != nil {
		return fmt.Errorf("settle the delivery of %s: %w", d.ID, err)
	}
	return nil
}

// logged is an Attempt in Redis.
type logged struct {
	At     int64  `json:"at"`          // ms
	Took   int64  `json:"ms"`          // ms
	Status int    `json:"s,omitempty"` // 0: no answer
	Word   string `json:"w,omitempty"`
}

// disabled reports whether a client's receiver has answered 410.
func (o *Outbox) disabled(ctx context.Context, client, url string) (bool, error) {
	n, err := o.rdb.Exists(ctx, disabledKey(client, url)).Result()
	if err != nil {
		return false, fmt.Errorf("is a callback disabled: %w", err)
	}
	return n == 1, nil
}

func (o *Outbox) disable(ctx context.Context, client, url string) error {
	if err := o.rdb.Set(ctx, disabledKey(client, url), 1, disabledFor).Err(); err != nil {
		return fmt.Errorf("disable a callback: %w", err)
	}
	return nil
}
