package leaky

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// claimTime is how long a claim lasts that nobody gives back: longer than a front process waits for the store on behalf of one request, and a call
// that it gave up may still reach Redis (callTimeout). Who finds a claim taken waits a part of it. A large request has more time for
// the store: its claim lasts three times that.
const claimTime = 2 * time.Second

//go:embed scripts/unclaim.lua
var unclaimLua string

var unclaimScript = redis.NewScript(unclaimLua)

// Claim takes it on one caller to decide which job a request gets, where it may get one of several: all who decide on the same request claim the same
// id, and by tells them apart, differently each time. False: another has it now. It ends with Unclaim, or after 2 s, or three
// times what is left of ctx where that is longer; so whoever takes it must have decided by then, and must look first what was decided before. After an error it may have been taken.
func (l *Line) Claim(ctx context.Context, id, by string) (taken bool, err error) {
	lasts := claimTime
	if end, ok := ctx.Deadline(); ok {
		lasts = max(lasts, 3*time.Until(end))
	}
	err = l.rdb.SetArgs(ctx, decidingKey(l.settings.Backend, id), by, redis.SetArgs{Mode: "NX", TTL: lasts}).Err()
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, redis.Nil):
		return false, nil
	}
	return false, fmt.Errorf("line of %s: claim %s: %w", l.settings.Backend, id, err)
}

// Unclaim gives back what Claim took. Where it has run out, or was taken by another since, nothing happens.
func (l *Line) Unclaim(ctx context.Context, id, by string) error {
	if err := unclaimScript.Run(ctx, l.rdb, []string{decidingKey(l.settings.Backend, id)}, by).Err(); err != nil {
		return fmt.Errorf("line of %s: give back claim %s: %w", l.settings.Backend, id, err)
	}
	return nil
}
