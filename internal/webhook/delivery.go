package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/jobs"
)

// State is what became of a delivery.
type State string

const (
	Pending   State = "pending"   // an attempt is made, or will be
	Delivered State = "delivered" // the receiver said 2xx
	Failed    State = "failed"    // given up after the last attempt
	Disabled  State = "disabled"  // the receiver said 410, to this or to another one: its client's URL is left alone
)

// Delivery is the telling of one job's end.
type Delivery struct {
	JobID     string
	Client    string
	URL       string // "": nothing is on record yet, but that it is due
	MessageID string // webhook-id
	Type      string // of the event
	State     State
	Attempts  int       // ever
	NextAt    time.Time // pending: when it is due; of an attempt under way, when that counts as lost
	GivenUpAt time.Time // failed and disabled, in a list
	ExpiresAt time.Time // when this record is removed, unless an attempt follows
	Log       []Attempt // the newest last, at most 20
}

// Attempt is one try to deliver. Nothing of what the receiver said is in it but the status.
type Attempt struct {
	At     time.Time
	Took   time.Duration
	Status int    // 0: there was no answer
	Word   string // why there was none: address_not_allowed, url_not_allowed, no_secret, timeout, refused, dns, tls or connection
}

// ErrNone says that nothing is on record about a job's end being told: it has no callback, hasn't ended, or it was too long ago.
var ErrNone = errors.New("no delivery")

// Read tells what became of the delivery of a job's end.
func (o *Outbox) Read(ctx context.Context, id string) (Delivery, error) {
	found, err := o.read(ctx, []string{id})
	if err != nil {
		return Delivery{}, err
	}
	if found[0].URL == "" && found[0].NextAt.IsZero() {
		return Delivery{}, ErrNone
	}
	return found[0], nil
}

// read reads several deliveries of one backend. One that isn't on record is its id and NextAt alone.
func (o *Outbox) read(ctx context.Context, ids []string) ([]Delivery, error) {
	type reading struct {
		fields *redis.MapStringStringCmd
		ttl    *redis.DurationCmd
		due    *redis.FloatCmd
	}
	pipe := o.rdb.Pipeline()
	readings := make([]reading, len(ids))
	for i, id := range ids {
		backend, _ := jobs.ParseID(id)
		key := deliveryKey(backend, id)
		readings[i] = reading{pipe.HGetAll(ctx, key), pipe.PTTL(ctx, key), pipe.ZScore(ctx, outboxKey(backend), id)}
	}
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("read deliveries: %w", err)
	}
	out := make([]Delivery, len(ids))
	for i, r := range readings {
		out[i] = delivery(ids[i], r.fields.Val())
		if due := r.due.Val(); r.due.Err() == nil {
			out[i].State, out[i].NextAt = Pending, time.UnixMicro(int64(due))
		}
		if ttl := r.ttl.Val(); ttl > 0 {
			out[i].ExpiresAt = time.Now().Add(ttl)
		}
	}
	return out, nil
}

// logPrefix is what the fields of the attempts begin with; their number follows.
const logPrefix = "log:"

func delivery(id string, fields map[string]string) Delivery {
	d := Delivery{JobID: id, Client: fields["client"], URL: fields["url"], MessageID: fields["message"], Type: fields["type"], State: State(fields["state"])}
	d.Attempts, _ = strconv.Atoi(fields["attempts"]) // absent: 0
	for n := max(d.Attempts-maxLog, 0) + 1; n <= d.Attempts; n++ {
		var l logged
		if err := json.Unmarshal([]byte(fields[logPrefix+strconv.Itoa(n)]), &l); err == nil {
			d.Log = append(d.Log, Attempt{At: time.UnixMilli(l.At), Took: time.Duration(l.Took) * time.Millisecond, Status: l.Status, Word: l.Word})
		}
	}
	return d
}

// Redeliver has a delivery made now, with the whole schedule before it, whatever became of it: also where its receiver was disabled. The
// webhook-id stays. A job of which nothing is on record here must have ended and have a callback.
func (o *Outbox) Redeliver(ctx context.Context, id string) error {
	backend, _ := jobs.ParseID(id)
	d, err := o.Read(ctx, id)
	if err != nil && !errors.Is(err, ErrNone) {
		return err
	}
	if d.URL != "" {
		if err := o.rdb.Del(ctx, disabledKey(d.Client, d.URL)).Err(); err != nil {
			return fmt.Errorf("enable the callback of %s: %w", id, err)
		}
	}
	err = redeliverScript.Run(ctx, o.rdb, []string{outboxKey(backend), deliveryKey(backend, id), undeliveredKey(backend)}, id, wakeChannel(backend), keepDelivery.Milliseconds()).Err()
	if err != nil {
		return fmt.Errorf("redeliver %s: %w", id, err)
	}
	return nil
}

// plain reports whether a text is a number as Redis writes a time. Go reads more as one: NaN, inf, 0x_1p4.
func plain(score string) bool {
	_, err := strconv.ParseFloat(score, 64)
	return err == nil && strings.Trim(score, "0123456789.e+-") == ""
}

// MaxPage bounds a page of a list: each delivery of it takes Redis three commands.
const MaxPage = 200

// ErrCursor says that a cursor isn't one that List has given.
var ErrCursor = errors.New("not a cursor of this list")

// List returns a page of a backend's deliveries: the Pending ones, the next due first, or with Failed those that were given up or
// disabled, the newest first. cursor is "" for the first page, or next of the page before; next is "" after the last. A page may be short, or
// empty, and not be the last.
func (o *Outbox) List(ctx context.Context, backend string, state State, cursor string, limit int) (page []Delivery, next string, err error) {
	key, fromEnd := outboxKey(backend), 0
	if state == Failed {
		key, fromEnd = undeliveredKey(backend), 1
	}
	score, last, _ := strings.Cut(cursor, " ")
	if cursor != "" && (!plain(score) || last == "") {
		return nil, "", ErrCursor
	}
	values, err := listScript.Run(ctx, o.rdb, []string{key}, fromEnd, limit, score, last).StringSlice()
	if err != nil {
		return nil, "", fmt.Errorf("list deliveries of %s: %w", backend, err)
	}
	var ids, scores []string
	for pair := range slices.Chunk(values, 2) {
		ids, scores = append(ids, pair[0]), append(scores, pair[1])
	}
	if len(ids) == 0 {
		return nil, "", nil
	}
	if len(ids) == limit {
		next = scores[len(ids)-1] + " " + ids[len(ids)-1]
	}
	found, err := o.read(ctx, ids)
	if err != nil {
		return nil, "", err
	}
	for i, d := range found {
		micros, _ := strconv.ParseFloat(scores[i], 64)
		switch {
		case state == Pending && d.NextAt.IsZero(), state == Failed && d.State != Failed && d.State != Disabled:
			continue // it went on meanwhile, or its record is gone
		case state == Failed:
			d.GivenUpAt = time.UnixMicro(int64(micros))
		}
		page = append(page, d)
	}
	return page, next, nil
}
