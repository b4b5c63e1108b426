package leaky_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/limits"
	"github.com/forebay/forebay/internal/redistest"
)

// limitedBatch returns an offer of each client, with a charge to so many limits of one request an
// hour each, and the parts of the charges.
func limitedBatch(
	t *testing.T, b *bench, clients, each int,
) (offers []leaky.Offer, parts []*limits.Part) {
	t.Helper()
	limiter := limits.New(redistest.Client(t), false)
	var rules []*limits.Rule
	for i := range each {
		rule, err := limits.Compile(limits.Limit{Name: "l" + strconv.Itoa(i),
			Owner: b.Settings().Backend, Algorithm: limits.FixedWindow,
			Per: limits.PerClient, Amount: 1, Window: 24 * time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		rules = append(rules, rule)
	}
	for i := range clients {
		o := b.job("client-" + strconv.Itoa(i))
		part, err := limiter.Part(limits.Request{Rules: rules,
			Subject: limits.Subject{Client: o.Job.Client}, Cost: 1, Job: o.Job.ID})
		if err != nil {
			t.Fatal(err)
		}
		o.Charge = part.Charge()
		offers, parts = append(offers, o), append(parts, part)
	}
	return offers, parts
}

// A batch whose limits have more keys than one call may read takes several calls. Each offer gets
// its own answer, including those without limits among them.
func TestABatchWithManyLimitsIsDividedByTheirKeys(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	b.Limited(limits.Script{})
	offers, parts := limitedBatch(t, b, 60, 10)
	offers = append(offers, b.job("free"))
	offers[3], offers[60] = offers[60], offers[3]
	places, err := b.OfferAll(t.Context(), offers)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range places {
		if p.Outcome != leaky.Accepted || p.Position != int64(i)+1 {
			t.Errorf("offer %d: %+v", i, p)
		}
	}
	for i, part := range parts {
		if v := part.Verdict(); !v.Allowed || v.Standings[9].Remaining != 0 {
			t.Errorf("limits of offer %d: %+v", i, v)
		}
	}
	again, parts := limitedBatch(t, b, 60, 10)
	places, err = b.OfferAll(t.Context(), again)
	for i, p := range places {
		if v := parts[i].Verdict(); p.Outcome != leaky.Limited || v.Allowed || v.RetryAfter <= 0 ||
			err != nil {
			t.Errorf("offer %d, whose limits are used up: %+v, %+v, %v", i, p, v, err)
		}
	}
}

// A line without limits returns an error for an offer with a charge, instead of admitting it.
func TestALineWithoutLimitsTakesNoCharge(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	o := b.job("acme")
	o.Charge = new(limits.Part)
	if p, err := b.Offer(t.Context(), o); err == nil {
		t.Errorf("%+v", p)
	}
}
