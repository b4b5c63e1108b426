package adminapi_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/redistest"
)

func (w *world) forecast(query string) (f api.Forecast) {
	w.Helper()
	a := w.AdminCall("GET", "backends/"+w.Backend+"/forecast"+query)
	strictly(w, query, w.Want(a, 200).Text, &f)
	return f
}

// An operator sees what a rate would bring beside what is, before it is set, and nothing changes.
func TestAnOperatorSeesWhatAChangeWouldBring(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for range 20 {
		w.Want(w.Submit(w.Plain, `1`, key(keyA)), 202)
	}
	f := w.forecast("?rate=2/s")
	if f.Waiting != 20 || f.Now.Rate != "10/s" || *f.Now.WaitSeconds != 2 ||
		f.Now.BoundBy != leaky.OnRate || f.Proposed.Rate != "2/s" ||
		*f.Proposed.WaitSeconds != 10 || f.Arrivals.Known || f.Now.EmptyAt != nil {
		t.Errorf("forecast = %+v\nproposed = %+v", f, f.Proposed)
	}
	if f = w.forecast(""); f.Proposed != nil {
		t.Errorf("nothing is proposed: %+v", f.Proposed)
	}
	f = w.forecast("?paused=true&concurrency=3")
	if !f.Proposed.Paused || f.Proposed.WaitSeconds != nil || f.Proposed.Concurrency != 3 ||
		f.Proposed.BoundBy != leaky.OnPaused {
		t.Errorf("paused: %+v", f.Proposed)
	}
	st, err := w.Line.Status(context.Background())
	if err != nil || st.Paused || len(st.Override.Names()) != 0 {
		t.Errorf("a forecast has changed something: %+v, %v", st.Override, err)
	}
	a := w.Want(w.AdminCall("GET", "backends/"+w.Backend+"/forecast?rate=2/s&format=text"), 200)
	if text := string(a.Text); !strings.Contains(text, "now 10/s   at 2/s") ||
		!strings.Contains(text, "wait          2 s        10 s") {
		t.Errorf("as text:\n%s", text)
	}
}

// A proposal is refused as the change itself would be.
func TestAProposalIsReadAsAChangeIs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for query, body := range map[string]string{
		"rate=5":                                 `{"rate":"5"}`,
		"rate=0/s":                               `{"rate":"0/s"}`,
		"rate=%22":                               `{"rate":"\""}`,
		"concurrency=0":                          `{"concurrency":0}`,
		"concurrency=10001":                      `{"concurrency":10001}`,
		"paused=perhaps":                         `{"paused":"perhaps"}`,
		"rate=" + strings.Repeat("9", 40) + "/s": `{"rate":"` + strings.Repeat("9", 40) + `/s"}`,
	} {
		path := "backends/" + w.Backend
		forecast := w.Problem(w.AdminCall("GET", path+"/forecast?"+query),
			http.StatusUnprocessableEntity, api.CodeInvalidFields)
		change := w.Problem(w.Call("PATCH", w.Admin+"/admin/v1/"+path, body),
			http.StatusUnprocessableEntity, api.CodeInvalidFields)
		if fmt.Sprint(forecast.Errors) != fmt.Sprint(change.Errors) {
			t.Errorf("%s: %v; the change: %v", query, forecast.Errors, change.Errors)
		}
	}
	for _, query := range []string{"burst=1", "rate=", "format=xml", "rate=1/s&rate=2/s"} {
		w.Problem(w.AdminCall("GET", "backends/"+w.Backend+"/forecast?"+query),
			http.StatusBadRequest, api.CodeInvalidRequest)
	}
	w.Problem(w.AdminCall("GET", "backends/none/forecast"), http.StatusNotFound,
		api.CodeUnknownBackend)
}

// Fifty who watch health and forecast cost Redis no more than a few commands a second.
func TestManyWatchersCostRedisAsMuchAsOne(t *testing.T) {
	t.Parallel()
	own := redistest.Start(t, "--appendonly", "no").Client(t)
	w := newWorld(t, func(s *setup) { s.Redis = own })
	w.Unchecked()
	commands := func() (n int64) {
		info, err := own.InfoMap(context.Background(), "commandstats").Result()
		if err != nil {
			t.Fatal(err)
		}
		for name, text := range info["Commandstats"] {
			if calls, found := strings.CutPrefix(strings.Split(text, ",")[0], "calls="); found &&
				strings.HasPrefix(name, "cmdstat_eval") {
				var k int64
				fmt.Sscan(calls, &k)
				n += k
			}
		}
		return n
	}
	watch := func() {
		w.forecast("?rate=4/s")
		w.Want(w.AdminCall("GET", "health"), 200)
	}
	watch() // Redis gets the scripts
	before, began := commands(), time.Now()
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			for time.Since(began) < 2*time.Second {
				watch()
			}
		})
	}
	all.Wait()
	n, seconds := commands()-before, time.Since(began).Seconds()
	if perSecond := float64(n) / seconds; perSecond > 5 {
		t.Errorf("%.1f script calls a second", perSecond)
	}
}
