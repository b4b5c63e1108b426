package webhook

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/forebay/forebay/internal/jobs"
)

const (
	// storeTime bounds one step in Redis.
	storeTime = 5 * time.Second
	// Tries of the step that settles an attempt, and the waits between them: an attempt that isn't
	// on record is made again.
	settleTries = 10
	settleWait  = time.Second
)

// deliver makes one attempt, if the claim of its message still holds.
func (s *Sender) deliver(d jobs.Delivery) {
	ctx, cancel := context.WithTimeout(s.attempts, storeTime)
	defer cancel()
	backend, _ := jobs.ParseID(d.ID)
	if s.wakes[backend] == nil {
		s.settle(d, putOff, minPutOff, nil) // left to a process with a newer config
		return
	}
	own, r, ok, err := s.outbox.begin(ctx, d, s.guard)
	if err != nil || !ok {
		s.waits(d, err)
		return
	}
	r, fresh, err := s.current(ctx, own.ID, r)
	switch {
	case err != nil:
		s.waits(own, err)
		return
	case r.url == "":
		s.settle(own, dropped, 0, nil)
		return
	}
	// A URL that can't be read has no host, and is refused below.
	end, wait := s.inFlight.begin(host(r.url), r.client)
	if end == nil {
		s.metrics.attempts.WithLabelValues(outcomePutOff).Inc()
		s.settle(own, putOff, wait, nil)
		return
	}
	defer end()
	if fresh {
		r.message = "msg_" + rand.Text()
		if ok, err := s.outbox.open(ctx, own, r); err != nil || !ok {
			s.waits(own, err)
			return
		}
	}
	off, err := s.outbox.disabled(ctx, r.client, r.url)
	switch {
	case err != nil:
		s.waits(own, err)
	case off:
		s.settle(own, Disabled, 0, nil)
	default:
		s.attempt(own, r)
	}
}

// current returns the record to deliver: r, or a fresh one if the job has ended again since r was
// made. Its url is "" if there is nothing to deliver.
func (s *Sender) current(
	ctx context.Context, id string, r record,
) (_ record, fresh bool, err error) {
	end, err := s.Jobs.End(ctx, id)
	switch {
	case errors.Is(err, ErrGone):
		return r, false, nil // a delivery on record is made even so
	case errors.Is(err, ErrNotEnded):
		return record{}, false, nil // its next end is reported instead of this one
	case err != nil:
		return record{}, false, err
	case r.finished == end.FinishedAt.UnixMicro():
		return r, false, nil
	}
	return record{finished: end.FinishedAt.UnixMicro(), url: end.URL, client: end.Client,
		event: end.Type, body: end.Event, expires: end.ExpiresAt}, true, nil
}

func host(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return u.Host
}

// attempt makes one attempt and settles it.
func (s *Sender) attempt(own jobs.Delivery, r record) {
	out := result{at: time.Now()}
	_, secrets := s.Clients.Callback(r.client)
	switch {
	case len(secrets) == 0:
		out.word = wordSecret
	case s.Policy.Check(r.url) != nil: // the config may have changed since it was accepted
		out.word = wordURL
	default:
		if out = s.post(s.attempts, r, secrets); out.status == 0 && s.attempts.Err() != nil {
			s.settle(own, putOff, 0, nil) // this process stops: another one makes the attempt
			return
		}
	}
	made := &Attempt{At: out.at, Took: out.took, Status: out.status, Word: out.word}
	to, wait := s.next(r, out)
	s.metrics.note(to, out)
	s.logAttempt(own.ID, r, to, wait, out)
	if to == Disabled {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(s.attempts), storeTime)
		defer cancel()
		if err := s.outbox.disable(ctx, r.client, r.url); err != nil {
			// the next delivery gets a 410 as well
			s.Log.Warn("webhook", "job_id", own.ID, "error", err)
		}
	}
	s.settle(own, to, wait, made)
}

// next returns the delivery's state after an attempt, and if it is pending, the wait.
func (s *Sender) next(r record, out result) (to State, wait time.Duration) {
	switch {
	case out.delivered():
		return Delivered, 0
	case out.status == http.StatusGone:
		return Disabled, 0
	}
	wait, again := s.Policy.retryAt(r.attempts-r.first+1, out.retryAfter)
	if !again {
		return Failed, 0
	}
	return Pending, wait
}

// logAttempt logs an attempt, without the URL, which may contain a secret.
func (s *Sender) logAttempt(id string, r record, to State, wait time.Duration, out result) {
	level, text := slog.LevelDebug, "webhook delivered"
	switch to {
	case Pending:
		level, text = slog.LevelInfo, "webhook failed, and will be tried again"
	case Failed:
		level, text = slog.LevelWarn, "webhook given up"
	case Disabled:
		level, text = slog.LevelWarn, "webhook disabled: its receiver says 410"
	}
	details := []slog.Attr{slog.String("job_id", id), slog.String("host", host(r.url)),
		slog.Int64("attempt", r.attempts+1), slog.Duration("took", out.took)}
	if out.status != 0 {
		details = append(details, slog.Int("status", out.status))
	} else {
		details = append(details, slog.String("error", out.word))
	}
	if wait > 0 {
		details = append(details, slog.Duration("again_in", wait))
	}
	s.Log.LogAttrs(context.Background(), level, text, details...)
}

// settle records in the outbox what follows. It tries again while Redis is unavailable.
func (s *Sender) settle(own jobs.Delivery, to State, wait time.Duration, made *Attempt) {
	for n := 1; ; n++ {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(s.attempts), storeTime)
		err := s.outbox.settle(ctx, own, to, wait, made)
		cancel()
		if err == nil {
			if (to == Pending || to == putOff) && wait < s.look {
				s.wake(own.ID) // otherwise its relay would notice too late
			}
			return
		}
		if n == settleTries {
			s.waits(own, err)
			return
		}
		select {
		case <-s.attempts.Done():
			s.waits(own, err)
			return
		case <-time.After(settleWait):
		}
	}
}

// waits logs why a delivery stays as it is until its claim expires. If err is nil, another process
// has the claim, and nothing is logged.
func (s *Sender) waits(d jobs.Delivery, err error) {
	if err != nil {
		s.Log.Warn("webhook waits", "job_id", d.ID, "error", err)
	}
}
