package limits

import (
	"testing"
	"time"
)

// A limit of bytes is charged bytes and no cost, in one step with the other limits: all of them or
// none. It doesn't refuse a request without bytes, and the verdict has its state.
func TestALimitOfBytesCountsBytes(t *testing.T) {
	everywhere(t, func(t *testing.T, c *clock, l *Limiter) {
		for _, a := range exact {
			t.Run(string(a), func(t *testing.T) {
				requests := bucketOf(t, 10, MaxWindow, 0)
				upload := compile(t, Limit{Algorithm: a, Amount: 1000, Window: time.Hour,
					Bytes: true})
				ask := func(cost, bytes, requestsLeft, bytesLeft int64) Verdict {
					t.Helper()
					r := request(cost, requests, upload)
					r.Bytes = bytes
					v := decide(t, l, r)
					if n := v.Standings[0].Remaining; n != requestsLeft {
						t.Errorf("%d requests remain, not %d", n, requestsLeft)
					}
					if n := v.Standings[1].Remaining; n != bytesLeft {
						t.Errorf("%d bytes remain, not %d", n, bytesLeft)
					}
					return v
				}
				first := ask(2, 600, 8, 400)
				if v := ask(1, 600, 8, 400); v.Allowed || v.Never || v.RetryAfter == 0 ||
					v.Reason != upload.limit.Name {
					t.Errorf("600 bytes of 400: %+v", v)
				}
				if v := ask(1, 1001, 8, 400); v.Allowed || !v.Never ||
					v.Reason != upload.limit.Name {
					t.Errorf("1001 bytes of 1000: %+v", v)
				}
				ask(1, 400, 7, 0)
				if v := ask(1, 0, 6, 0); !v.Allowed {
					t.Errorf("no bytes: %+v", v)
				}
				if v := ask(1, 1, 6, 0); v.Allowed {
					t.Error("a byte more than the limit is let through")
				}
				if err := l.Refund(t.Context(), first); err != nil {
					t.Fatal(err)
				}
				ask(1, 0, 7, 600)
			})
		}
	})
}
