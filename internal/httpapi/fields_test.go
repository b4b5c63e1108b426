package httpapi_test

import (
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/limits"
)

// fieldsTable is what docs/limits.md says of the fields of each answer.
var fieldsTable = `
| answer | RateLimit | Retry-After | Forebay-Decision | Cache-Control | others |
|---|---|---|---|---|---|
| 202 job | yes | yes | accepted | no-store | |
| 200 job that is done already | yes | | accepted | no-store | |
| 200 gateway's check | yes | | accepted | no-store | |
| 200 status, done | yes | | | private, no-cache | |
| 200 status, not done | yes | yes | | private, no-cache | |
| 200 result | yes | | | no-store | |
| 200 list | yes | | | no-store | |
| 204 purged | yes | | | no-store | |
| 304 status | yes | | | private, no-cache | |
| 400 of a job's request | yes | | rejected | no-store | |
| 400 of other requests | yes | | | no-store | |
| 401 of a job's request | yes | | rejected | no-store | WWW-Authenticate |
| 401 of other requests | yes | | | no-store | WWW-Authenticate |
| 403 operation | yes | | rejected | no-store | WWW-Authenticate |
| 404 operation | yes | | rejected | no-store | |
| 404 job | yes | | | no-store | |
| 404 path | | | | no-store | |
| 405 | yes | | | no-store | Allow |
| 409 no result yet | yes | yes | | no-store | |
| 410 | yes | | | no-store | |
| 413 | yes | | rejected | no-store | |
| 415 | yes | | rejected | no-store | |
| 422 | yes | | rejected | no-store | |
| 424 result of a job that failed | yes | | | no-store | |
| 429 of a job's request | yes | yes | rejected | no-store | |
| 429 of a list | yes | yes | | no-store | |
| 503 Redis is unavailable | | yes | rejected | no-store | |
| 503 shutting down | yes | yes | rejected | no-store | |
| 504 not cached | yes | | rejected | no-store | |
`

func TestEveryAnswerHasTheFieldsThatTheTableSays(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), strings.TrimSpace(fieldsTable)) {
		t.Error("docs/limits.md has another table")
	}
	w := newWorld(t, func(su *setup) {
		reads(hourly(102))(su)
		su.Pro = append(su.Pro,
			limits.Limit{Name: "rare", Algorithm: limits.FixedWindow, Per: limits.PerClient,
				Amount: 20, Window: 365 * 24 * time.Hour})
		su.Global = []limits.Limit{{Name: "per-address", Algorithm: limits.TokenBucket,
			Per: limits.PerIP, Amount: 1000, Window: time.Hour}}
	})
	post := func(body string, fields ...[2]string) answer {
		return w.Call("POST", w.URL+"/v1/jobs", body, append(fields, key(keyA))...)
	}
	request := func(operation, payload string) string {
		return `{"operation":"` + operation + `","payload":` + payload + `}`
	}

	got := map[string]answer{}
	got["202 job"] = post(request(w.Plain, `1`), idempotent("k"))
	done := w.Job(got["202 job"]).ID
	got["200 status, not done"] = w.Get("/v1/jobs/"+done, key(keyA))
	got["409 no result yet"] = w.Get("/v1/jobs/"+done+"/result", key(keyA))
	w.Succeed(done, 200, "text/plain", []byte("yes"))
	got["200 job that is done already"] = post(request(w.Plain, `1`), idempotent("k"))
	got["422"] = post(request(w.Plain, `2`), idempotent("k"))
	got["200 status, done"] = w.Get("/v1/jobs/"+done, key(keyA))
	got["304 status"] = w.Get("/v1/jobs/"+done, key(keyA), field("If-None-Match", "*"))
	got["200 result"] = w.Get("/v1/jobs/"+done+"/result", key(keyA))
	got["200 gateway's check"] = w.check("operation="+w.Plain, key(keyA))
	got["200 list"] = w.Get("/v1/jobs", key(keyA))
	for range 2 {
		w.Want(w.Get("/v1/jobs?status=failed", key(keyA)), 200)
	}
	got["429 of a list"] = w.Get("/v1/jobs", key(keyA))
	got["405"] = w.Call("PUT", w.URL+"/v1/jobs/"+done, "", key(keyA))
	got["204 purged"] = w.Call("DELETE", w.URL+"/v1/jobs/"+done+"?purge=1", "", key(keyA))
	got["410"] = w.Get("/v1/jobs/"+done, key(keyA))
	failed := w.Job(w.Want(post(request(w.Plain, `1`)), http.StatusAccepted)).ID
	w.FailJob(failed, jobs.CodeBackendStatus, 404, "text/plain", nil)
	got["424 result of a job that failed"] = w.Get("/v1/jobs/"+failed+"/result", key(keyA))
	got["400 of a job's request"] = post(`{`)
	got["400 of other requests"] = w.Get("/v1/jobs?limit=x", key(keyA))
	got["401 of a job's request"] = w.Submit(w.Plain, `1`, key("unknown"))
	got["401 of other requests"] = w.Get("/v1/jobs/"+failed, key("unknown"))
	got["403 operation"] = w.Submit(w.Inner, `1`, from("192.0.2.1"))
	got["404 operation"] = post(request("none", `1`))
	got["404 job"] = w.Get("/v1/jobs/"+jobs.NewID(w.Backend), key(keyA))
	got["404 path"] = w.Get("/v1/job", key(keyA))
	got["413"] = post(request(w.Plain, `"`+strings.Repeat("x", int(w.Config.MaxBody))+`"`))
	got["415"] = post(request(w.Plain, `1`), field("Content-Type", "text/plain"))
	got["504 not cached"] = post(request(w.Report, `1`), field("Cache-Control", "only-if-cached"))
	for range 20 {
		if got["429 of a job's request"] = post(request(w.Plain,
			`1`)); got["429 of a job's request"].StatusCode != http.StatusAccepted {
			break
		}
	}
	w.Store.Down.Store(true)
	got["503 Redis is unavailable"] = post(request(w.Plain, `1`))
	w.Store.Down.Store(false)
	w.Server.Refuse()
	got["503 shutting down"] = post(request(w.Plain, `1`))

	rows := strings.Split(strings.TrimSpace(fieldsTable), "\n")[2:]
	for _, row := range rows {
		cells := strings.Split(strings.Trim(row, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		name := cells[0]
		a, asked := got[name]
		if delete(got, name); !asked || a.Header == nil {
			t.Errorf("%s was never answered", name)
			continue
		}
		decision, _, _ := strings.Cut(a.Header.Get("Forebay-Decision"), ";")
		has := func(name, word string) string {
			if len(a.Header.Values(name)) == 0 {
				return ""
			}
			return word
		}
		is := []string{name, has("RateLimit", "yes"), has("Retry-After", "yes"), decision,
			strings.Join(a.Header.Values("Cache-Control"), ", "),
			has("WWW-Authenticate", "WWW-Authenticate") + has("Allow", "Allow")}
		if status, _, _ := strings.Cut(name, " "); !strings.HasPrefix(a.Status, status) ||
			!slices.Equal(is, cells) {
			t.Errorf("%s is %s, %q\nwant %q\n%s", name, a.Status, is, cells, a.Text)
		}
		for _, field := range []string{api.HeaderRateLimitPolicy, api.HeaderLegacyLimit,
			api.HeaderLegacyRemaining, api.HeaderLegacyReset} {
			if has(field, "yes") != is[1] {
				t.Errorf("%s: %s: %q", name, field, a.Header.Values(field))
			}
		}
		if a.Header.Get("X-Request-Id") == "" {
			t.Errorf("%s: no X-Request-Id", name)
		}
	}
	for name := range got {
		t.Errorf("%s isn't in the table", name)
	}
}
