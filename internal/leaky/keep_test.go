package leaky_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/redistest"
)

func TestAResultIsKeptByteForByte(t *testing.T) {
	t.Parallel()
	for name, body := range map[string][]byte{
		"binary": {0, 255, '\r', '\n', 0xC3, 0x28, 0},
		"empty":  {},
		"large":  bytes.Repeat([]byte("\x00line\r\n"), 150_000),
	} {
		for _, to := range []jobs.State{jobs.Succeeded, jobs.Failed} {
			b := newLine(t, nil)
			id := b.accept("acme")
			ticket := b.release().Tickets[0]
			b.begin(ticket, "me")
			meta := jobs.Meta{Status: 203, ContentType: `text/plain; charset="ütf-8"`,
				Fields: "Etag: \"ü\"\n"}
			b.settle(leaky.Settlement{Ticket: ticket, Owner: "me", To: to, Result: meta,
				Body: body})
			got, err := b.Result(context.Background(), id)
			if err != nil || !bytes.Equal(got, body) {
				t.Errorf("%s: the result of a job that has %s has %d bytes, %v, want %d", name, to,
					len(got), err, len(body))
			}
			meta.Size = int64(len(body))
			if look := b.look(id); look.Standing.Result != meta {
				t.Errorf("%s: %+v, want %+v", name, look.Standing.Result, meta)
			}
		}
	}
}

func TestAPayloadIsKeptByteForByte(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	o := b.job("ip:2001:db8::/64")
	o.Job.Payload = []byte("{\"a\" : 1.0}\n\x00\xff " + strings.Repeat("x", 5000))
	o.Job.Traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	o.Job.Fingerprint, o.Job.Priority = "f", jobs.High
	b.offer(o)
	if look := b.look(o.Job.ID); look.Job.Payload != nil || look.Job.Client != o.Job.Client ||
		look.Job.Traceparent != o.Job.Traceparent {
		t.Errorf("look = %+v", look.Job)
	}
	if payload, err := b.Payload(context.Background(), o.Job.ID); err != nil ||
		!bytes.Equal(payload, o.Job.Payload) {
		t.Errorf("payload = %q, %v", payload, err)
	}
	if _, err := b.Payload(context.Background(), jobs.NewID(b.Settings().Backend)); !errors.Is(err,
		leaky.ErrUnknownJob) {
		t.Errorf("payload of no job: %v", err)
	}
	s := b.begin(b.release().Tickets[0], "me")
	if !bytes.Equal(s.Job.Payload, o.Job.Payload) || s.Job.Priority != jobs.High ||
		!s.Job.CreatedAt.Equal(b.now) {
		t.Errorf("start = %+v", s.Job)
	}
}

// Every key has a TTL or an owner. CheckBooks looks for keys without either. This test checks the
// TTLs.
func TestAFinishedJobIsKeptAsLongAsItsOperationSays(t *testing.T) {
	t.Parallel()
	b := newLine(t, func(s *leaky.Settings) { s.Rate = leaky.Unlimited })
	settled := b.job("acme")
	settled.Keep = 2 * time.Hour
	b.offer(settled)
	ticket := b.release().Tickets[0]
	b.begin(ticket, "me")
	b.settle(leaky.Settlement{Ticket: ticket, Owner: "me", To: jobs.Succeeded,
		Result: jobs.Meta{Status: 200}, Body: []byte("x")})
	canceled := b.job("acme")
	canceled.Keep = 2 * time.Hour
	b.offer(canceled)
	b.cancel(canceled.Job.ID)
	for _, id := range []string{settled.Job.ID, canceled.Job.ID} {
		if at := b.look(id).Standing.ExpiresAt; !at.Equal(b.now.Add(2 * time.Hour)) {
			t.Errorf("it is said to be kept until %v, now is %v", at, b.now)
		}
		backend := b.Settings().Backend
		for _, key := range []string{jobs.RecordKey(backend, id), jobs.StateKey(backend, id),
			jobs.ResultKey(backend, id)} {
			ttl, err := b.rdb.PTTL(context.Background(), key).Result()
			if id == canceled.Job.ID && key == jobs.ResultKey(backend, id) {
				continue
			}
			if err != nil || ttl > 2*time.Hour || ttl < 2*time.Hour-time.Minute {
				t.Errorf("%s has a TTL of %v, %v", key, ttl, err)
			}
		}
	}
}

func TestAJobIsUnknownAfterItHasExpired(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	o := b.job("acme")
	o.Keep = time.Millisecond
	b.offer(o)
	ticket := b.release().Tickets[0]
	b.begin(ticket, "me")
	b.settle(leaky.Settlement{Ticket: ticket, Owner: "me", To: jobs.Succeeded,
		Result: jobs.Meta{Status: 200}, Body: []byte("x")})
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if _, err := b.Look(context.Background(), o.Job.ID); errors.Is(err, leaky.ErrUnknownJob) {
			break
		} else if time.Now().After(end) {
			t.Fatalf("after its time the job is still known: %v", err)
		}
	}
	if _, err := b.Result(context.Background(), o.Job.ID); !errors.Is(err, leaky.ErrNoResult) {
		t.Errorf("its result: %v", err)
	}
	if _, err := b.Cancel(context.Background(), o.Job.ID); !errors.Is(err, leaky.ErrUnknownJob) {
		t.Errorf("its cancel: %v", err)
	}
	if p := b.offer(o); p.Outcome != leaky.Accepted {
		t.Errorf("its id offered again: %+v", p)
	}
}

// Redis can lose a record only by eviction, or if another program removes it. Then that job is
// lost, and the line goes on.
func TestALostRecordLosesItsJobAlone(t *testing.T) {
	t.Parallel()
	for name, bring := range map[string]func(b *bench) leaky.Ticket{
		"waiting":  func(b *bench) leaky.Ticket { return leaky.Ticket{} },
		"released": func(b *bench) leaky.Ticket { return b.release().Tickets[0] },
		"running": func(b *bench) leaky.Ticket {
			ticket := b.release().Tickets[0]
			b.begin(ticket, "me")
			return ticket
		},
		"delayed": func(b *bench) leaky.Ticket {
			ticket := b.release().Tickets[0]
			b.begin(ticket, "me")
			b.settle(leaky.Settlement{Ticket: ticket, Owner: "me", To: jobs.Delayed,
				Delay: time.Second})
			return ticket
		},
		"waiting with a deadline": func(b *bench) leaky.Ticket {
			b.pause(true)
			return leaky.Ticket{}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newLine(t, func(s *leaky.Settings) { s.ClientShare = 0.5 })
			o := b.job("acme")
			if name == "waiting with a deadline" {
				o.StartWithin = time.Second
			}
			b.offer(o)
			ticket := bring(b)
			if err := b.rdb.Del(context.Background(),
				jobs.RecordKey(b.Settings().Backend, o.Job.ID)).Err(); err != nil {
				t.Fatal(err)
			}
			if ticket.ID != "" {
				if s, err := b.Start(context.Background(), ticket, "me"); err != nil ||
					s.Outcome != leaky.Gone {
					t.Errorf("start = %+v, %v", s, err)
				}
				if v, _, err := b.Settle(context.Background(),
					leaky.Settlement{Ticket: ticket, Owner: "other",
						To: jobs.Succeeded}); err != nil || v != leaky.Forfeited {
					t.Errorf("settle = %s, %v", v, err)
				}
			}
			if _, err := b.Look(context.Background(), o.Job.ID); !errors.Is(err,
				leaky.ErrUnknownJob) {
				t.Errorf("look: %v", err)
			}
			if _, err := b.Cancel(context.Background(), o.Job.ID); !errors.Is(err,
				leaky.ErrUnknownJob) {
				t.Errorf("cancel: %v", err)
			}
			b.pass(leaky.Lease)
			b.release()
			b.pause(false)
			b.release()
			b.pass(time.Second)
			b.release()
			id := b.accept("acme")
			if r := b.release(); len(r.Tickets) != 1 || r.Tickets[0].ID != id {
				t.Errorf("afterwards: %+v", r)
			}
			if s := b.status(); s.Books.Lost != 1 || s.Waiting != 0 || s.InFlight != 1 {
				t.Errorf("status = %+v", s)
			}
		})
	}
}

// Other looks at the same moment don't fail with it.
func TestAnUnreadableRecordIsAnErrorOfItsOwnLook(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	bad, good := b.accept("acme"), b.accept("acme")
	key := jobs.RecordKey(b.Settings().Backend, bad)
	record := b.rdb.Get(context.Background(), key).Val()
	b.rdb.Set(context.Background(), key, "1 2 3 4 ff {", 0)
	looks, errs := b.LookAll(context.Background(), []string{bad, good})
	if errs[0] == nil || errs[1] != nil || looks[1].Job.ID != good {
		t.Errorf("looks = %+v, %v", looks, errs)
	}
	b.rdb.Set(context.Background(), key, record, 0)
}

// After a restart of Redis, or a failover, its script cache is empty.
func TestAnEmptyScriptCacheIsNotNoticed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := newLineOn(t, server.Client(t), nil)
	flush := func() {
		t.Helper()
		if err := b.rdb.ScriptFlush(context.Background()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	id := b.accept("acme")
	flush()
	b.accept("acme")
	flush()
	ticket := b.release().Tickets[0]
	flush()
	b.begin(ticket, "me")
	flush()
	if got, err := b.Renew(context.Background(), "me", []leaky.Ticket{ticket}); err != nil ||
		got[0] != leaky.Held {
		t.Errorf("renew = %v, %v", got, err)
	}
	flush()
	b.end(ticket, "me", jobs.Succeeded)
	flush()
	b.look(id)
	flush()
	b.cancel(id)
	flush()
	b.pause(true)
	flush()
	if s := b.status(); s.Books.Succeeded != 1 || !s.Paused {
		t.Errorf("status = %+v", s)
	}
}
