package leaky

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/jobs"
)

// Bounds of previews. A job takes 16 bytes, so those of a backend take 3.2 MB at most.
const (
	// MaxPreview bounds the jobs of a preview.
	MaxPreview = 10_000
	// PreviewTTL is how long a preview is kept: long enough to read it and to ask a colleague.
	PreviewTTL = 15 * time.Minute
	// maxPreviews bounds the previews of a backend; beyond it the oldest is dropped.
	maxPreviews = 20
)

// TimeOver means that the time was over before all failed jobs were looked at.
const TimeOver Outcome = "time_over"

// ErrNoPreview means that no preview is kept under a token: there never was one, or its time is
// over.
var ErrNoPreview = errors.New("no such preview")

// Preview says what a redrive of many jobs would do.
type Preview struct {
	// Token names exactly these jobs, for RedrivePreviewed and PreviewTTL. It can't be guessed.
	// "": there are none.
	Token   string
	At      time.Time
	Jobs    int
	Stopped Outcome   // MaxReached: there may be more; TimeOver; "": these are all
	Oldest  time.Time // when the first of them failed; zero: there are none

	ByClient, ByOperation, ByCode map[string]int // jobs

	Ahead int64 // jobs that wait now
	Room  int64 // jobs that the line has room for now
	// Wait predicts when the last of them would start, if all were redriven now; 0 while the line
	// is paused.
	Wait   time.Duration
	Paused bool
}

// PreviewRedrive finds up to max failed jobs that f selects, as RedriveAll would, and keeps them
// under a token. It changes nothing else. Each step is bounded, and the end of ctx ends the search;
// what was found until then is the preview. max is 1 to MaxPreview.
func (l *Line) PreviewRedrive(ctx context.Context, f FailedFilter, max int) (Preview, error) {
	if max < 1 || max > MaxPreview {
		return Preview{}, fmt.Errorf("line of %s: a preview has 1 to %d jobs, not %d",
			l.settings.Backend, MaxPreview, max)
	}
	p := Preview{ByClient: map[string]int{}, ByOperation: map[string]int{},
		ByCode: map[string]int{}}
	var kept []byte
	q := query{place: place{key: keyFailed}, client: f.Client, operation: f.Operation, code: f.Code}
	for !q.end() && p.Stopped == "" {
		q.limit = min(max-p.Jobs, MaxWork)
		if q.limit == 0 {
			p.Stopped = MaxReached
			break
		}
		found, err := l.list(ctx, q)
		switch {
		case err != nil && ctx.Err() != nil && !q.until.IsZero():
			p.Stopped = TimeOver
			continue
		case err != nil:
			return Preview{}, err
		case q.until.IsZero():
			q.until = found.now
			kept = binary.BigEndian.AppendUint64(kept, uint64(found.now.UnixMicro()))
		}
		q.place = found.next
		for _, look := range found.jobs {
			if look.Standing.FinishedAt.After(q.until) {
				continue // the clock was set back
			}
			uuid, ok := jobs.IDBytes(look.Job.ID)
			if !ok {
				return Preview{}, errAnswer
			}
			kept = append(kept, uuid[:]...)
			if p.Jobs == 0 {
				p.Oldest = look.Standing.FinishedAt
			}
			p.Jobs++
			p.ByClient[look.Job.Client]++
			p.ByOperation[look.Job.Operation]++
			p.ByCode[look.Standing.Failure.Code]++
		}
	}
	err := l.keepPreview(ctx, &p, kept)
	return p, err
}

// keepPreview stores the jobs, and adds what the line says of them now.
func (l *Line) keepPreview(ctx context.Context, p *Preview, kept []byte) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	const tokenLetters = 10 // 50 bits: two previews have the same token once in 10^15
	token := strings.ToLower(rand.Text()[:tokenLetters])
	a, err := l.run(ctx, previewScript, token, kept, p.Jobs, PreviewTTL.Milliseconds(), maxPreviews)
	if err != nil {
		return err
	}
	p.At, p.Ahead, p.Room = a.when(), a.number(), a.number()
	wait := a.text()
	p.Paused = wait == ""
	if p.Jobs > 0 {
		p.Token = token
	}
	rest := answer{values: []any{wait}}
	p.Wait = rest.micros()
	return firstError(a.err, rest.err)
}

// HasPreview reports whether a preview is kept under a token.
func (l *Line) HasPreview(ctx context.Context, token string) (bool, error) {
	n, err := l.rdb.Exists(ctx, l.previewKey(token)).Result()
	return n > 0, err
}

func (l *Line) previewKey(token string) string {
	return jobs.KeyPrefix(l.settings.Backend) + "preview:" + token
}

// RedrivePreviewed redrives exactly the jobs of a preview, the oldest first, as far as the line has
// room. It skips those that were redriven since, also if they have failed again, and those that are
// no longer on record. So it may be called again after an error or the end of ctx, which ends it
// between steps. Then the jobs that it has redriven before are skipped. It returns ErrNoPreview if
// the token is of no preview of this backend.
func (l *Line) RedrivePreviewed(ctx context.Context, token string) (RedriveResult, error) {
	var done RedriveResult
	kept, err := l.rdb.Get(ctx, l.previewKey(token)).Bytes()
	switch {
	case errors.Is(err, redis.Nil):
		return done, ErrNoPreview
	case err != nil:
		return done, fmt.Errorf("preview of %s: %w", l.settings.Backend, err)
	case len(kept) < 8:
		return done, errAnswer
	}
	until := time.UnixMicro(int64(binary.BigEndian.Uint64(kept)))
	var ids []string
	for kept = kept[8:]; len(kept) >= 16; kept = kept[16:] {
		ids = append(ids, jobs.IDOf(l.settings.Backend, [16]byte(kept)))
	}
	err = l.redriveEach(ctx, ids, until, &done)
	return done, err
}
