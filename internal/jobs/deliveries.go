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
	// deliveryQueue is asynq's queue of deliveries. No backend can have this name: names of
	// backends have no underscore.
	deliveryQueue = "fb_deliveries"
	// MaxDeliveries is the number of deliveries that a process has in flight at most: each may be a
	// connection to a slow receiver.
	MaxDeliveries = 500
	// deliveryHold is how late a process finds deliveries that other processes have sent. It costs
	// one call a second on an idle queue.
	deliveryHold = time.Second
)

// Delivery is the message "send the webhook of this job now" on its way to a worker. It may be lost
// or come twice: the receiving process checks whether Claim still holds.
type Delivery struct {
	ID string // job id
	// Claim is when its sender presumes it lost, in µs since 1970 on Redis's clock. It differs each
	// time that a delivery of the same job is sent.
	Claim int64
}

// Deliveries carries the deliveries of all backends in a queue of its own, apart from the tickets,
// so that a slow receiver holds no slot of a drain. Safe for concurrent use.
type Deliveries struct{ carrier }

// NewDeliveries returns the transport of deliveries. The caller closes rdb, which must not retry
// commands by itself.
func NewDeliveries(rdb redis.UniversalClient, log *slog.Logger) *Deliveries {
	return &Deliveries{newCarrier(rdb, deliveryQueue, MaxDeliveries, deliveryHold, log)}
}

// Send sends each delivery to the worker that asks first. After an error some of them may not have
// been sent.
func (d *Deliveries) Send(ctx context.Context, deliveries []Delivery) error {
	return d.send(ctx, len(deliveries), func(i int) (task *asynq.Task, id string) {
		one := deliveries[i]
		payload := fmt.Appendf(nil, "%s %d", one.ID, one.Claim)
		return asynq.NewTask(deliveryType, payload), one.ID + ":" + strconv.FormatInt(one.Claim, 10)
	})
}

// Serve calls handle for each delivery that this process gets, up to MaxDeliveries at a time, each
// in a goroutine of its own. Otherwise it is like Queue.Serve.
func (d *Deliveries) Serve(handle func(Delivery)) (stop func(context.Context) error, err error) {
	return d.serve(func(payload []byte) error {
		one, err := decodeDelivery(payload)
		if err == nil {
			handle(one)
		}
		return err
	})
}

// Waiting returns the number of deliveries that were sent and that no process has taken yet.
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
