package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/admission"
	"github.com/forebay/forebay/internal/limits"
)

// everyAlgorithm is a limit of n a day, a month, or at one time, by each algorithm. Days and months
// are long, so that no test runs into the next one but at midnight.
func everyAlgorithm(n int64) map[string]limits.Limit {
	all := map[string]limits.Limit{}
	for _, l := range []limits.Limit{
		{Algorithm: limits.TokenBucket, Window: 24 * time.Hour},
		{Algorithm: limits.LeakyBucket, Window: 24 * time.Hour},
		{Algorithm: limits.SlidingWindowCounter, Window: 24 * time.Hour},
		{Algorithm: limits.SlidingWindowLog, Window: 24 * time.Hour},
		{Algorithm: limits.FixedWindow, Window: 24 * time.Hour},
		{Algorithm: limits.FixedWindow, Window: limits.Month},
		{Algorithm: limits.Concurrency},
	} {
		name := string(l.Algorithm)
		if l.Window == limits.Month {
			name = "month"
		}
		l.Name, l.Per, l.Amount = name, limits.PerClient, n
		all[name] = l
	}
	return all
}

// stated are RateLimit-Policy and RateLimit of an answer, by limit.
type stated struct {
	policy string
	r, t   int64 // t -1: none
}

var (
	policyPattern = regexp.MustCompile(`^"([a-z0-9-]+)";(.*)$`)
	limitPattern  = regexp.MustCompile(`^"([a-z0-9-]+)";r=([0-9]+)(;t=([0-9]+))?$`)
)

func (w *world) stated(a answer) map[string]stated {
	w.Helper()
	all := map[string]stated{}
	if a.Header.Get("RateLimit") == "" {
		return all
	}
	policies, limits := strings.Split(a.Header.Get("RateLimit-Policy"), ", "),
		strings.Split(a.Header.Get("RateLimit"), ", ")
	if len(policies) != len(limits) {
		w.Fatalf("%d policies and %d limits: %v", len(policies), len(limits), a.Header)
	}
	for i := range limits {
		p, l := policyPattern.FindStringSubmatch(policies[i]),
			limitPattern.FindStringSubmatch(limits[i])
		if p == nil || l == nil || p[1] != l[1] {
			w.Fatalf("%q beside %q", policies[i], limits[i])
		}
		s := stated{policy: p[2], t: -1}
		s.r, _ = strconv.ParseInt(l[2], 10, 64)
		if l[4] != "" {
			s.t, _ = strconv.ParseInt(l[4], 10, 64)
		}
		all[l[1]] = s
	}
	return all
}

// rateLimits is GET /v1/rate-limits, by name and operation.
func (w *world) rateLimits(fields ...[2]string) map[string]api.Limit {
	w.Helper()
	var got api.RateLimits
	strictly(w, "rate-limits", w.Want(w.Get("/v1/rate-limits", fields...), 200).Text, &got)
	all := map[string]api.Limit{}
	for _, l := range got.Limits {
		all[strings.TrimSpace(l.Name+" "+l.Operation)] = l
	}
	return all
}

func TestEveryAlgorithmIsStatedAsItIs(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC()
	month := time.Date(now.Year(), now.Month()+1, 1, 0, 0, 0, 0,
		time.UTC).Sub(time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC))
	w := newWorld(t, func(s *setup) {
		for _, l := range everyAlgorithm(5) {
			s.Pro = append(s.Pro, l)
		}
	})
	a := w.Want(w.Submit(w.Plain, `1`, key(keyA)), http.StatusAccepted)
	got := w.stated(a)
	for name := range everyAlgorithm(5) {
		policy := map[string]string{"month": fmt.Sprintf("q=5;w=%.0f", month.Seconds()),
			"concurrency": `q=5;qu="concurrent-requests"`}[name]
		if policy == "" {
			policy = "q=5;w=86400"
		}
		s := got[name]
		if s.policy != policy || s.r != 4 || (s.t < 0) != (name == "concurrency") ||
			s.t > int64(month.Seconds()) {
			t.Errorf("%s is stated as %+v, want policy %s and 4 left", name, s, policy)
		}
	}
	for name, l := range w.rateLimits(key(keyA)) {
		want := map[string]string{"month": "month", "concurrency": ""}[name]
		if want == "" && name != "concurrency" {
			want = "24h"
		}
		if l.Limit != 5 || l.Remaining != 4 || l.Window != want ||
			(l.Reset == 0) != (name == "concurrency") || !l.Enforced {
			t.Errorf("%s: %+v", name, l)
		}
	}
}

// On 429: for each algorithm Retry-After, X-RateLimit-Reset, violated-policies, reason and words
// agree.
func TestEveryAlgorithmsRefusalSaysWhichLimitAndHowLong(t *testing.T) {
	t.Parallel()
	for name, limit := range everyAlgorithm(2) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(s *setup) {
				s.Pro = []limits.Limit{{Name: "wide", Algorithm: limits.TokenBucket,
					Per: limits.PerClient, Amount: 1000, Window: time.Hour}, limit}
			})
			w.Pause()
			for range 2 {
				w.Want(w.Submit(w.Plain, `1`, key(keyA)), http.StatusAccepted)
			}
			a := w.Submit(w.Plain, `1`, key(keyA))
			p := w.Problem(a, http.StatusTooManyRequests, api.CodeRateLimit)
			wait, err := strconv.ParseInt(a.Header.Get("Retry-After"), 10, 64)
			if err != nil || wait < 1 || p.RetryAfter != int(wait) {
				t.Errorf("Retry-After %q, retry_after %d", a.Header.Get("Retry-After"),
					p.RetryAfter)
			}
			if p.Reason != limit.Name || fmt.Sprint(p.ViolatedPolicies) != "["+limit.Name+"]" ||
				a.Header.Get("Forebay-Decision") != `rejected;reason="`+limit.Name+`"` {
				t.Errorf("%s", a.Text)
			}
			detail := map[string]string{"concurrency": "allows 2 jobs at one time.",
				"month": "allows 2 requests per month."}[name]
			if detail == "" {
				detail = "allows 2 requests per day."
			}
			if !strings.HasSuffix(p.Detail, detail) {
				t.Errorf("detail %q, want %q", p.Detail, detail)
			}
			at, err := http.ParseTime(a.Header.Get("Date"))
			if err != nil {
				t.Fatal(err)
			}
			reset, err := strconv.ParseInt(a.Header.Get("X-RateLimit-Reset"), 10, 64)
			if off := at.Unix() + wait - reset; err != nil || off < -1 || off > 1 {
				t.Errorf("X-RateLimit-Reset is %d s off Retry-After", off)
			}
			if s := w.stated(a)[limit.Name]; s.r != 0 || limit.Algorithm != limits.Concurrency &&
				(s.t-wait > 1 || wait-s.t > 1) {
				t.Errorf("stated %+v beside Retry-After %d", s, wait)
			}
			if got := a.Header.Get("X-RateLimit-Limit"); got != "2" {
				t.Errorf("X-RateLimit-Limit %s", got)
			}
		})
	}
}

// The property that clients plan by: what GET /v1/rate-limits says is what the next answer says,
// for all algorithms at once, over random histories of costs, refusals, and jobs that end in
// between.
func TestRateLimitsSayWhatTheNextAnswerWill(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 1))
			every := everyAlgorithm(0)
			w := newWorld(t, func(s *setup) {
				s.Cost = admission.Cost{From: "/n", Default: 1, Max: 6}
				for _, l := range every {
					l.Amount = 10 + random.Int64N(20)
					s.Pro = append(s.Pro, l)
				}
				trial := perClient("trial", 5, 24*time.Hour)
				trial.Shadow = true
				s.Pro = append(s.Pro, trial)
			})
			w.Pause()
			refused := 0
			for range 25 {
				asked := time.Now()
				shown := w.rateLimits(key(keyA))
				if len(shown) != len(every)+1 || shown["trial"].Enforced {
					t.Fatalf("told of %v", shown)
				}
				look := w.Get("/v1/jobs/none", key(keyA)) // spends nothing
				for name, s := range w.stated(look) {
					if shown[name].Remaining != s.r {
						t.Errorf("%s: told %+v, and the next answer says %+v", name, shown[name], s)
					}
				}
				if reset, _ := strconv.ParseInt(look.Header.Get("X-RateLimit-Reset"), 10,
					64); !within(shown, look.Header.Get("X-RateLimit-Remaining"), reset,
					2+int64(time.Since(asked)/time.Second)) {
					t.Errorf("%v speaks for none of %v", look.Header, shown)
				}
				cost := 1 + random.Int64N(6)
				a := w.Submit(w.Plain, fmt.Sprintf(`{"n":%d}`, cost), key(keyA))
				for name, s := range w.stated(a) {
					want := shown[name].Remaining
					switch {
					case a.StatusCode != http.StatusAccepted:
					case name == "concurrency":
						want--
					default:
						want -= cost
					}
					if s.r != want {
						t.Errorf("%s: told %+v, and a request of cost %d → %d says r=%d", name,
							shown[name], cost, a.StatusCode, s.r)
					}
				}
				if a.StatusCode == http.StatusTooManyRequests {
					refused++
				}
			}
			if refused == 0 || refused == 25 {
				t.Errorf("%d of 25 were refused: nothing was tried", refused)
			}
		})
	}
}

// within reports whether some limit has so much left and resets then, give or take some seconds:
// the reset of a limit that isn't used at all moves with the time.
func within(shown map[string]api.Limit, remaining string, reset, seconds int64) bool {
	for _, l := range shown {
		if off := l.Reset - reset; fmt.Sprint(l.Remaining) == remaining && off <= seconds &&
			off >= -seconds {
			return true
		}
	}
	return false
}

// The fields in the example of the design: a limit on jobs at one time has the least left, and the
// X-RateLimit fields are about windows.
func TestTheXRateLimitFieldsSpeakForTheStrictestWindow(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Pro = []limits.Limit{perClient("wide", 60, time.Hour),
			{Name: "jobs", Algorithm: limits.Concurrency, Per: limits.PerClient, Amount: 2}}
		s.Free = []limits.Limit{{Name: "jobs", Algorithm: limits.Concurrency, Per: limits.PerClient,
			Amount: 2}}
	})
	w.Pause()
	a := w.Want(w.Submit(w.Plain, `1`, key(keyA)), http.StatusAccepted)
	if a.Header.Get("X-RateLimit-Limit") != "60" || a.Header.Get("X-RateLimit-Remaining") != "59" ||
		!strings.HasSuffix(a.Header.Get("RateLimit"), `"jobs";r=1`) {
		t.Errorf("%v", a.Header)
	}
	w.Submit(w.Plain, `1`, key(keyA))
	a = w.Submit(w.Plain, `1`, key(keyA))
	if w.Problem(a, http.StatusTooManyRequests,
		api.CodeRateLimit); a.Header.Get("X-RateLimit-Limit") != "2" ||
		a.Header.Get("X-RateLimit-Reset") == "" {
		t.Errorf("a refusal: %v", a.Header)
	}
	a = w.Want(w.Submit(w.Plain, `1`, from("192.0.2.9")), http.StatusAccepted)
	if a.Header.Get("X-RateLimit-Limit") != "2" || a.Header.Get("X-RateLimit-Remaining") != "1" ||
		a.Header.Get("X-RateLimit-Reset") != "" {
		t.Errorf("the only limit: %v", a.Header)
	}
}

// The fields state the limits in force: while the store or a center is unavailable, the standings
// are of parts.
func TestPoliciesStateWhatTheStandingsHold(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Pro = []limits.Limit{perClient("wide", 60, time.Hour)}
		s.Limiter = func(l admission.Limiter) admission.Limiter { return shareLimiter{l} }
	})
	a := w.Want(w.Submit(w.Plain, `1`, key(keyA)), http.StatusAccepted)
	if got := w.stated(a)["wide"]; got.policy != "q=15;w=3600" || got.r != 14 ||
		a.Header.Get("X-RateLimit-Limit") != "15" {
		t.Errorf("stated %+v, %v", got, a.Header)
	}
	w.Unchecked()
	var shown api.RateLimits
	if err := json.Unmarshal(w.Get("/v1/rate-limits", key(keyA)).Text, &shown); err != nil ||
		len(shown.Limits) != 1 || shown.Limits[0].Limit != 15 {
		t.Errorf("told %+v, %v", shown, err)
	}
}

// shareLimiter decides by a quarter of each limit.
type shareLimiter struct{ admission.Limiter }

func (l shareLimiter) Decide(ctx context.Context, r limits.Request) (limits.Verdict, error) {
	return l.Limiter.Decide(ctx, quarter(r))
}

func (l shareLimiter) Along(ctx context.Context, r limits.Request,
	step func(*limits.Part) (limits.Ending, error)) (limits.Verdict, error) {
	return l.Limiter.Along(ctx, quarter(r), step)
}

func (l shareLimiter) Peek(ctx context.Context, r limits.Request) (limits.Verdict, error) {
	return l.Limiter.Peek(ctx, quarter(r))
}

func quarter(r limits.Request) limits.Request {
	rules := make([]*limits.Rule, len(r.Rules))
	for i := range rules {
		rules[i], _ = r.Rules[i].Scaled(0.25)
	}
	r.Rules = rules
	return r
}
