package leaky

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/jobs"
)

// Payload returns a job's payload, byte for byte as the client sent it, or ErrUnknownJob if there
// is no such job on record.
func (l *Line) Payload(ctx context.Context, id string) ([]byte, error) {
	record, err := l.rdb.Get(ctx, jobs.RecordKey(l.settings.Backend, id)).Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, ErrUnknownJob
	}
	if err != nil {
		return nil, fmt.Errorf("payload of job %s: %w", id, err)
	}
	job, _, err := jobs.DecodeRecord(id, record)
	if err != nil {
		return nil, fmt.Errorf("payload of job %s: %w", id, err)
	}
	return job.Payload, nil
}
