package webhook

import (
	"context"
	"time"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/pubsub"
)

const (
	// maxClaim bounds the deliveries that a relay claims at a time: Redis takes well under a
	// millisecond.
	maxClaim = 100
	// maxSent bounds the messages that wait for a process. Further deliveries stay in the outbox,
	// unclaimed, since a claim would expire.
	maxSent = 1000
	// lookEvery is how late a relay notices a delivery without a wake-up: wake-ups are lost while
	// the connection is down.
	lookEvery = 5 * time.Second
	// crowdedFor is the pause of a relay while maxSent messages wait.
	crowdedFor = 250 * time.Millisecond
	// troubleFor is the pause after an error of Redis.
	troubleFor = time.Second
)

// relay sends the deliveries of one backend that are due, until ctx ends.
func (s *Sender) relay(ctx context.Context, backend string) {
	var troubled bool // an outage of Redis is logged once
	for {
		wait, err := s.sendDue(ctx, backend)
		if err != nil {
			if !troubled && ctx.Err() == nil {
				s.Log.Warn("webhooks wait", "backend", backend, "error", err)
			}
			wait = troubleFor
		}
		troubled = err != nil
		rest := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			rest.Stop()
			return
		case <-s.wakes[backend]:
		case <-rest.C:
		}
		rest.Stop()
	}
}

// sendDue sends up to maxClaim deliveries that are due, and returns when to call it again.
func (s *Sender) sendDue(ctx context.Context, backend string) (time.Duration, error) {
	if n, err := s.Transport.Waiting(ctx); err != nil || n >= maxSent {
		return crowdedFor, err
	}
	found, err := s.outbox.claim(ctx, backend, s.guard, maxClaim)
	if err != nil {
		return 0, err
	}
	s.metrics.pending.WithLabelValues(backend).Set(float64(found.pending))
	wait := s.look
	if found.next >= 0 {
		wait = min(wait, found.next+time.Millisecond) // so as not to be early
	}
	if len(found.deliveries) == 0 {
		return wait, nil
	}
	return wait, s.Transport.Send(ctx, found.deliveries)
}

// listen wakes the relays when a delivery is added to their outbox, until ctx ends. It wakes all of
// them when it may have missed that.
func (s *Sender) listen(ctx context.Context) {
	topics := map[string]func(string){}
	for backend, wake := range s.wakes {
		topics[wakeChannel(backend)] = func(string) { ring(wake) }
	}
	reader := pubsub.Read(pubsub.Config{Redis: s.Redis, Topics: topics, Silence: s.silence,
		Subscribed: func() {
			for _, wake := range s.wakes {
				ring(wake)
			}
		}})
	<-ctx.Done()
	if err := reader.Close(); err != nil {
		s.Log.Debug("webhooks: close a subscription", "error", err)
	}
}

// wake makes the relay of a job's backend check when its next delivery is due.
func (s *Sender) wake(id string) {
	backend, _ := jobs.ParseID(id)
	ring(s.wakes[backend])
}

func ring(bell chan<- struct{}) {
	select {
	case bell <- struct{}{}:
	default: // it has rung already, or this process has no such relay
	}
}
