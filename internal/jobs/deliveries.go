package jobs

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

const (
	deliveryType = "forebay:delivery"
	// deliveryQueue is asynq's queue of deliveries. No backend has its name: those have no underscore.
	deliveryQueue = "fb_deliveries"
	// MaxDeliveries is how many deliveries a process has in flight at once: each may be a connection to a receiver who is slow.
	MaxDeliveries = 500
	// deliveryHold is how late a process finds deliveries that others have sent. It costs one call a second of an idle queue.
	deliveryHold = time.Second
)

// Delivery is the message "tell the end of this job now" on its way to a worker. It may be lost or come twice: whoever gets it asks
// whether Claim still holds.
type Delivery struct {
	ID    string // job id
	Claim int64  // when whoever sent it takes it for lost, in µs since 1970 on Redis's clock: no two sendings of one job have the same
}

// Deliveries carries the deliveries of all backends in a queue of its own, apart from the tickets: a receiver who is slow holds no
// slot of a drain. Safe for concurrent use.
type Deliveries struct{ carrier }

// NewDeliveries returns the transport of deliveries. The client stays the caller's; it must not retry commands by itself.
func NewDeliveries(rdb redis.UniversalClient, log *slog.Logger) *Deliveries {
	return &Deliveries{newCarrier(rdb, deliveryQueue, MaxDeliveries, deliveryHold, log)}
}

// Send hands deliveries to whichever worker asks first. On an error some of them may not have been sent.
func (d *Deliveries) Send(ctx context.Context, deliveries []Delivery) error {
	return d.send(ctx, len(deliveries), func(i int) (task *asynq.Task, id string) {
		one := deliveries[i]
		payload := fmt.Appendf(nil, "%s %d", one.ID, one.Claim)
		return asynq.NewTask(deliveryType, payload), one.ID + ":" + strconv.FormatInt(one.Claim, 10)
	})
}

// Serve calls handle for each delivery that this process gets, up to MaxDeliveries at a time, each in a goroutine of its own. It is
// as Queue.Serve in all else.
func (d *Deliveries) Serve(handle func(Delivery)) (stop func(context.Context) error, err error) {
	return d.serve(func(payload []byte) error {
		one, err := decodeDelivery(payload)
		if err == nil {
			handle(one)
		}
		return err
	})
}

// Waiting is how many deliveries were sent and are in nobody's hands yet.
func (d *Deliveries) Waiting(ctx context.Context) (int, error) {
	n, err := d.rdb.LLen(ctx, "asynq:{"+d.queue+"}:pending").Result()
	if err != nil {
		return 0, fmt.Errorf("length of queue %s: %w", d.queue, err)
	}
	return int(n), nil
}

func decodeDelivery(payload []byte) (Delivery, error) {
	id, text, _ := strings.Cut(string(payload), " ")
	claim, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return Delivery{}, fmt.Errorf("delivery's claim: %w", err)
	}
	return Delivery{ID: id, Claim: claim}, nil
}
