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

// State is the state of a delivery.
type State string

const (
	Pending   State = "pending"   // an attempt is under way or will be made
	Delivered State = "delivered" // the receiver answered 2xx
	Failed    State = "failed"    // given up after the last attempt
	Disabled  State = "disabled"  // the receiver answered 410 to this or to another delivery
)

// Delivery is the notification of a client about the end of one job.
type Delivery struct {
	JobID     string
	Client    string
	URL       string // "": the delivery is due, but its record doesn't exist yet
	MessageID string // webhook-id
	Type      string // of the event
	State     State
	Attempts  int       // in all
	NextAt    time.Time // pending: when it is due; during an attempt, when that counts as lost
	GivenUpAt time.Time // failed and disabled, in a list
	ExpiresAt time.Time // when this record is removed, unless an attempt follows
	Log       []Attempt // the newest last, at most 20
}

// Attempt is one request to the receiver. It has only the status of the receiver's answer.
type Attempt struct {
	At     time.Time
	Took   time.Duration
	Status int // 0: there was no answer
	// Word says why there was no answer: address_not_allowed, url_not_allowed, no_secret, timeout,
	// refused, dns, tls or connection.
	Word string
}

// ErrNone means that there is no delivery on record for a job: it has no callback, hasn't ended, or
// ended too long ago.
var ErrNone = errors.New("no delivery")

// Read returns the delivery of a job's end, or ErrNone.
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

// read reads several deliveries of one backend. One without a record has only its id and NextAt.
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
		readings[i] = reading{pipe.HGetAll(ctx, key), pipe.PTTL(ctx, key),
			pipe.ZScore(ctx, outboxKey(backend), id)}
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

// logPrefix begins the hash fields of the attempts. The attempt's number follows.
const logPrefix = "log:"

func delivery(id string, fields map[string]string) Delivery {
	d := Delivery{JobID: id, Client: fields["client"], URL: fields["url"],
		MessageID: fields["message"], Type: fields["type"], State: State(fields["state"])}
	d.Attempts, _ = strconv.Atoi(fields["attempts"]) // absent: 0
	for n := max(d.Attempts-maxLog, 0) + 1; n <= d.Attempts; n++ {
		var l logged
		if err := json.Unmarshal([]byte(fields[logPrefix+strconv.Itoa(n)]), &l); err == nil {
			d.Log = append(d.Log, Attempt{At: time.UnixMilli(l.At),
				Took: time.Duration(l.Took) * time.Millisecond, Status: l.Status, Word: l.Word})
		}
	}
	return d
}

// Redeliver makes a delivery due now, whatever its state, and begins its schedule anew. It also
// enables its receiver again. The webhook-id stays the same. If there is no record of the delivery,
// the job must have ended and have a callback.
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
	err = redeliverScript.Run(ctx, o.rdb, []string{outboxKey(backend), deliveryKey(backend, id),
		undeliveredKey(backend)}, id, wakeChannel(backend), keepDelivery.Milliseconds()).Err()
	if err != nil {
		return fmt.Errorf("redeliver %s: %w", id, err)
	}
	return nil
}

// plain reports whether a text is a number as Redis writes a time. Go also parses NaN, inf and
// 0x_1p4.
func plain(score string) bool {
	_, err := strconv.ParseFloat(score, 64)
	return err == nil && strings.Trim(score, "0123456789.e+-") == ""
}

// MaxPage bounds the deliveries in a page of a list: Redis takes three commands for each.
const MaxPage = 200

// ErrCursor means that a cursor isn't from List.
var ErrCursor = errors.New("not a cursor of this list")

// List returns a page of a backend's deliveries. With Pending it lists pending ones, the next due
// first. With Failed it lists those that were given up or disabled, the newest first. cursor is ""
// for the first page, and otherwise next of the previous page; next is "" after the last page. A
// page that isn't the last may be short or empty.
func (o *Outbox) List(
	ctx context.Context, backend string, state State, cursor string, limit int,
) (page []Delivery, next string, err error) {
	key, fromEnd := outboxKey(backend), 0
	if state == Failed {
		key, fromEnd = undeliveredKey(backend), 1
	}
	score, last, _ := strings.Cut(cursor, " ")
	if cursor != "" && (!plain(score) || last == "") {
		return nil, "", ErrCursor
	}
	values, err := listScript.Run(ctx, o.rdb, []string{key}, fromEnd, limit, score,
		last).StringSlice()
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
		case state == Pending && d.NextAt.IsZero(),
			state == Failed && d.State != Failed && d.State != Disabled:
			continue // it moved on meanwhile, or its record has expired
		case state == Failed:
			d.GivenUpAt = time.UnixMicro(int64(micros))
		}
		page = append(page, d)
	}
	return page, next, nil
}
