package leaky_test

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/redistest"
)

// A value of the wrong type in any kind of key of a line either stops nothing, or the error names
// the key and a remedy. Once the key is removed, all goes on.
func TestAKeyOfTheWrongTypeNamesItself(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"line", "delayed", "inflight", "deadlines", "flows", "share",
		"pace", "books", "failed", "sweep", "callbacks",
		"permits", "stored", "mine:" + leaky.ClientTag("acme"), "kept:" + leaky.ClientTag("acme"),
		"job:", "state:", "shares:", "result:", "gone:"} {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			b := newUnchecked(t, redistest.Client(t), nil)
			ctx, id := t.Context(), b.accept("acme")
			b.accept("globex")
			planted := jobs.KeyPrefix(b.Settings().Backend) + key
			if strings.HasSuffix(key, ":") {
				planted += id
			}
			b.rdb.Del(ctx, planted)
			if err := b.rdb.XAdd(ctx,
				&redis.XAddArgs{Stream: planted, Values: []string{"a", "b"}}).Err(); err != nil {
				t.Fatal(err)
			}
			var errs []error
			note := func(err error) { errs = append(errs, err) }
			do := func() {
				errs = nil
				_, err := b.Offer(ctx, b.job("acme"))
				note(err)
				released, err := b.Release(ctx)
				note(err)
				for _, ticket := range released.Tickets {
					_, err := b.Start(ctx, ticket, "me")
					note(err)
					_, _, err = b.Settle(ctx,
						leaky.Settlement{Ticket: ticket, Owner: "me", To: jobs.Failed})
					note(err)
				}
				_, err = b.Look(ctx, id)
				note(err)
				_, err = b.Status(ctx)
				note(err)
				_, err = b.Reconcile(ctx)
				note(err)
				_, _, err = b.ReturnPermits(ctx)
				note(err)
				_, err = b.Cancel(ctx, id)
				note(err)
			}
			do()
			wrong, named := 0, 0
			for _, err := range errs {
				if err != nil && strings.Contains(err.Error(), "WRONGTYPE") {
					wrong++
					if strings.Contains(err.Error(), planted+" is a stream, not a ") {
						named++
					}
				}
			}
			// A release that fails because of a job's state has removed it from the line by then.
			// The job's own calls name the key.
			if wrong > named && (key != "state:" || named == 0) {
				t.Errorf("%d of %d errors name the key: %v", named, wrong, errs)
			}
			b.rdb.Del(ctx, planted)
			do()
			for _, err := range errs {
				if err != nil && strings.Contains(err.Error(), "WRONGTYPE") {
					t.Errorf("it is removed, and still: %v", err)
				}
			}
			if o := b.job("acme"); b.offer(o).Outcome != leaky.Accepted {
				t.Error("nothing is accepted any more")
			}
		})
	}
}

// A list that fails because of a job that ended long ago, on any page, names that job's key.
func TestAListNamesTheKeyOfTheWrongTypeOfAnEndedJob(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	ctx := t.Context()
	var ids []string
	for range 150 {
		b.accept("acme")
		ids = append(ids, b.fail("backend_status"))
	}
	pages := func() (mine, failed error) {
		for f := (leaky.MineFilter{Client: "acme", Limit: 50}); ; {
			page, err := b.Mine(ctx, f)
			if f.After = page.Next; err != nil || f.After == (leaky.Mark{}) {
				mine = err
				break
			}
		}
		for f := (leaky.ListFilter{State: jobs.Failed, Limit: 50}); ; {
			page, err := b.List(ctx, f)
			if f.Cursor = page.Next; err != nil || f.Cursor == "" {
				return mine, err
			}
		}
	}
	for _, job := range []int{149, 75, 0} {
		for _, kind := range []string{"job:", "state:"} {
			key := jobs.KeyPrefix(b.Settings().Backend) + kind + ids[job]
			b.rdb.Rename(ctx, key, key+"-away")
			b.rdb.RPush(ctx, key, "alien")
			b.LookForTypes()
			mine, _ := pages()
			if want := key + " is a list, not a "; mine == nil ||
				!strings.Contains(mine.Error(), want) {
				t.Errorf("job %d: the client's list says %v, want %q in it", job, mine, want)
			}
			b.LookForTypes()
			if _, failed := pages(); failed == nil ||
				!strings.Contains(failed.Error(), key+" is a list, not a ") {
				t.Errorf("job %d: the operators' list says %v", job, failed)
			}
			b.rdb.Del(ctx, key)
			b.rdb.Rename(ctx, key+"-away", key)
		}
	}
	if mine, failed := pages(); mine != nil || failed != nil {
		t.Error("both are as they were, and still:", mine, failed)
	}
}

// So does an offer that joins a job, for the keys that only shared jobs have.
func TestASubscriptionNamesTheKeyOfTheWrongType(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"joint:", "callers:", "shares:"} {
		b := newUnchecked(t, redistest.Client(t), nil)
		offer := func(client string) error {
			o := b.joint(client)
			o.MaxStored = 1 << 20
			_, err := b.Offer(t.Context(), o)
			return err
		}
		if err := offer("acme"); err != nil {
			t.Fatal(err)
		}
		key := jobs.KeyPrefix(b.Settings().Backend) + kind + b.joint("acme").Join
		if kind == "callers:" || kind == "shares:" {
			key = jobs.KeyPrefix(b.Settings().Backend) + kind + b.rdb.Get(t.Context(),
				jobs.KeyPrefix(b.Settings().Backend)+"joint:"+b.joint("acme").Join).Val()
		}
		b.rdb.Del(t.Context(), key)
		b.rdb.RPush(t.Context(), key, "alien")
		if err := offer("globex"); err == nil ||
			!strings.Contains(err.Error(), key+" is a list, not a ") {
			t.Errorf("%s: the subscription's error is %v", kind, err)
		}
	}
}
