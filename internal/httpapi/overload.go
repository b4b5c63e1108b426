package httpapi

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"forebay/api"
	"forebay/internal/degrade"
	"forebay/internal/leaky"
)

// overloaded is the way of a request that got no job: the last good answer where the operation's config and the request allow one,
// else the refusal itself.
func (a *attempt) overloaded(refusal error) error {
	var p *api.Problem
	if !errors.As(refusal, &p) || p.Status != http.StatusTooManyRequests && p.Code != api.CodeStore {
		return refusal // no overload: this request can't ever be admitted
	}
	if p.Code == api.CodeStore && a.s.OnFailure == OnFailureReject {
		return refusal
	}
	ctx := a.ctx
	if p.Code == api.CodeStore {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(a.r.Context()), staleTime)
		defer cancel()
	}
	wish := degrade.ParseCacheControl(a.r.Header["Cache-Control"])
	stale, found, err := a.s.Degrader.Stale(ctx, a.o.Overload, a.o.Name, a.client.ID, a.client.Tier, a.payload, wish)
	if err != nil {
		a.s.storeLog.do(func() { a.s.Log.Warn("no stale answer", "request_id", a.requestID, "error", err) })
	}
	if !found {
		return refusal
	}
	a.decision, a.reason = api.Degraded, p.Reason
	if a.reason == "" {
		a.reason = p.Code
	}
	age := int64(stale.Age / time.Second)
	h := a.w.Header()
	h["Age"] = []string{strconv.FormatInt(age, 10)}
	h[api.HeaderCacheStatus] = []string{fmt.Sprintf("forebay; hit; ttl=%d; detail=degraded", -age)}
	h["Cache-Control"] = noStore
	h["X-Content-Type-Options"] = noSniff
	a.bytes(http.StatusOK, stale.ContentType, stale.Body)
	return nil
}

// lineRefused is the answer to a job that got no place.
func lineRefused(operation string, place leaky.Place) *api.Problem {
	p := &api.Problem{Type: api.TypeReducedCapacity, Title: "Temporary Reduced Capacity", Status: http.StatusTooManyRequests,
		Reason: string(place.Outcome), ViolatedPolicies: []string{"line"}}
	switch place.Outcome {
	case leaky.LineFull:
		p.Code, p.Detail = api.CodeLineFull, "The line for "+operation+" is full."
	case leaky.ClientShare:
		p.Type, p.Title = api.TypeQuotaExceeded, "Quota Exceeded"
		p.Code, p.Detail = api.CodeClientShare, "You hold your share of the line for "+operation+"."
	default:
		p.Code, p.Detail = api.CodeWaitTooLong, "The predicted wait for "+operation+" is too long."
	}
	// A prediction, not a promise; and those who were refused together shouldn't all be back at one moment.
	jitter := time.Duration(rand.Float64() * 0.1 * float64(place.RetryAfter))
	p.RetryAfter = wholeSeconds(place.RetryAfter + jitter)
	return p
}
