package chaos

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/forebay/forebay/api"
)

// tiers are the clients' tiers: client-0 is of the first one, and so on.
var tiers = []string{"gold", "gold", "plain", "plain", "plain"}

func keyOf(client int) string { return fmt.Sprintf("chaos-client-%02d-0123456789abcdef", client) }

func clientsText() string {
	var b strings.Builder
	for i, tier := range tiers {
		fmt.Fprintf(&b, "    - {name: client-%d, tier: %s, key_sha256: [%x]}\n",
			i, tier, sha256.Sum256([]byte(keyOf(i))))
	}
	return strings.TrimRight(b.String(), "\n")
}

// wish is a job that a client insists on: the client repeats its request with the same key until it
// gets a clear answer.
type wish struct {
	client             int
	key, body, payload string
	unsure             bool // an answer got lost, or was a 503: there may be a job
}

// accepted is a job that has a 202.
type accepted struct {
	wish
	id       string
	final    api.Job   // as first seen; before that, its status is ""
	canceled time.Time // when the first DELETE was answered with 200; zero: none was
}

// crowd holds the clients, and the answers that they got.
type crowd struct {
	w    *world
	stop chan struct{}
	all  sync.WaitGroup

	mu      sync.Mutex
	jobs    map[string]*accepted // guarded by mu, with what they hold: by id
	ids     []string             // guarded by mu: in the order of their 202
	doubts  []wish               // guarded by mu: those that stayed unsure
	answers map[string]int       // guarded by mu: by method and status; 0: no answer
}

func newCrowd(w *world) *crowd {
	return &crowd{w: w, stop: make(chan struct{}), jobs: map[string]*accepted{},
		answers: map[string]int{}}
}

// come starts the clients: some submit, one cancels, one watches.
func (c *crowd) come() {
	for i := range tiers {
		c.all.Go(func() { c.submit(i, c.rng(fmt.Sprint("client ", i))) })
	}
	c.all.Go(func() { c.cancel(c.rng("cancel")) })
	c.all.Go(func() { c.watch(c.rng("watch")) })
}

func (c *crowd) rng(name string) *rand.Rand { return rand.New(rand.NewPCG(c.w.seed, hash(name))) }

func (c *crowd) leave() {
	close(c.stop)
	c.all.Wait()
}

func (c *crowd) left() bool {
	select {
	case <-c.stop:
		return true
	default:
		return false
	}
}

// rest waits for d, or until the crowd leaves.
func (c *crowd) rest(d time.Duration) {
	select {
	case <-c.stop:
	case <-time.After(d):
	}
}

// ask sends one request to an api; status 0 means no answer.
func (c *crowd) ask(site, method, path string, client int, key, body string) (
	status int, header http.Header, answer []byte) {
	base, _ := c.w.sites[site].urls()
	req, err := http.NewRequest(method, base+path, strings.NewReader(body))
	if err != nil {
		c.w.t.Errorf("%s %s: %v", method, path, err)
		return 0, nil, nil
	}
	req.Header.Set("Authorization", "Bearer "+keyOf(client))
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	res, err := c.w.http.Do(req)
	if err == nil {
		defer res.Body.Close()
		if answer, err = io.ReadAll(res.Body); err == nil {
			status, header = res.StatusCode, res.Header
		}
	}
	c.mu.Lock()
	c.answers[method+" "+strconv.Itoa(status)]++
	c.mu.Unlock()
	return status, header, answer
}

// insistently repeats a request until there is an answer other than 503, while there are no faults:
// on a busy machine, Redis may miss the timeout of a call. It gives up after startTime, and returns
// the last answer.
func (c *crowd) insistently(site, method, path string, client int) (status int, answer []byte) {
	for deadline := time.Now().Add(startTime); ; time.Sleep(100 * time.Millisecond) {
		status, _, answer = c.ask(site, method, path, client, "", "")
		if status != 0 && status != http.StatusServiceUnavailable || time.Now().After(deadline) {
			return status, answer
		}
	}
}

// submit makes one client submit one job after another.
func (c *crowd) submit(client int, rng *rand.Rand) {
	for n := 0; !c.left(); n++ {
		one := wish{client: client, key: fmt.Sprintf("key-%d-%d", client, n)}
		operation := "a"
		if rng.IntN(4) == 0 {
			operation = "b"
		}
		one.payload = fmt.Sprintf(`{"client":%d,"n":%d,"fill":%q}`,
			client, n, strings.Repeat("x", rng.IntN(300)))
		priority := []string{"high", "normal", "normal", "low"}[rng.IntN(4)]
		one.body = fmt.Sprintf(`{"operation":%q,"payload":%s,"priority":%q`,
			operation, one.payload, priority)
		if rng.IntN(4) == 0 {
			one.body += fmt.Sprintf(`,"start_within":"%ds"`, 1+rng.IntN(10))
		}
		one.body += "}"
		again := 1
		if rng.IntN(20) == 0 {
			again = 2 // the same wish again is the same job
		}
		for range again {
			c.fulfil(&one, rng)
		}
		c.rest(between(rng, 0, 100*time.Millisecond))
	}
}

// tries is how often a client asks before it leaves a wish in doubt.
const tries = 5

func (c *crowd) fulfil(one *wish, rng *rand.Rand) {
	for range tries {
		if c.once(one, apis[rng.IntN(len(apis))]) {
			return
		}
		c.rest(between(rng, 20*time.Millisecond, 300*time.Millisecond))
	}
	c.mu.Lock()
	c.doubts = append(c.doubts, *one)
	c.mu.Unlock()
}

// once requests a job once. It returns false if the client should ask again.
func (c *crowd) once(one *wish, site string) (clear bool) {
	status, header, answer := c.ask(site, "POST", "/v1/jobs", one.client, one.key, one.body)
	switch status {
	case http.StatusAccepted, http.StatusOK:
		var job api.Job
		if err := json.Unmarshal(answer, &job); err != nil || job.ID == "" {
			c.w.t.Errorf("%d for %s: %s", status, one.key, answer)
			return true
		}
		c.note(*one, job)
		one.unsure = false
		return true
	case http.StatusTooManyRequests:
		if header.Get("Retry-After") == "" {
			c.w.t.Errorf("429 without Retry-After: %s", answer)
		}
		return !one.unsure // an earlier request may still be under way, in a frozen process
	case 0, http.StatusServiceUnavailable:
		one.unsure = true
		return false
	}
	c.w.t.Errorf("%s: submitting %s was answered %d: %s",
		c.w.since(time.Now()), one.key, status, answer)
	return true
}

// note records the answer to a submission. A wish has one job, however often it is requested.
func (c *crowd) note(one wish, job api.Job) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.jobs[job.ID]
	if known == nil {
		c.jobs[job.ID] = &accepted{wish: one, id: job.ID}
		c.ids = append(c.ids, job.ID)
	} else if known.key != one.key {
		c.w.t.Errorf("%s and %s are one job: %s", known.key, one.key, job.ID)
	}
	c.see(c.jobs[job.ID], job)
}

// see compares a job's status with earlier ones: a final one never changes. The caller holds mu.
func (c *crowd) see(a *accepted, job api.Job) {
	switch {
	case a.final.Status == "":
		if job.Done {
			a.final = job
		}
	case job.Status != a.final.Status || !job.Done || job.Attempts != a.final.Attempts ||
		!job.FinishedAt.Equal(a.final.FinishedAt.Time):
		c.w.t.Errorf("%s: %s was %s after %d attempts at %v, and is %s after %d at %v",
			c.w.since(time.Now()), a.id, a.final.Status, a.final.Attempts, a.final.FinishedAt,
			job.Status, job.Attempts, job.FinishedAt)
	}
}

// pick returns one of the latest jobs.
func (c *crowd) pick(rng *rand.Rand, among int) *accepted {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.ids)
	if n == 0 {
		return nil
	}
	return c.jobs[c.ids[n-1-rng.IntN(min(n, among))]]
}

// cancel makes clients cancel some of their jobs.
func (c *crowd) cancel(rng *rand.Rand) {
	for ; !c.left(); c.rest(between(rng, 50*time.Millisecond, 500*time.Millisecond)) {
		a := c.pick(rng, 100)
		if a == nil {
			continue
		}
		site := apis[rng.IntN(len(apis))]
		status, _, answer := c.ask(site, "DELETE", "/v1/jobs/"+a.id, a.client, "", "")
		switch status {
		case http.StatusOK:
			c.mu.Lock()
			if a.canceled.IsZero() {
				a.canceled = time.Now()
			}
			c.mu.Unlock()
		case 0, http.StatusAccepted, http.StatusConflict, http.StatusServiceUnavailable:
		default:
			c.w.t.Errorf("%s: canceling %s was answered %d: %s",
				c.w.since(time.Now()), a.id, status, answer)
		}
	}
}

// watch requests the status of jobs over and over.
func (c *crowd) watch(rng *rand.Rand) {
	for ; !c.left(); c.rest(between(rng, 5*time.Millisecond, 40*time.Millisecond)) {
		if a := c.pick(rng, 2000); a != nil {
			c.look(a, apis[rng.IntN(len(apis))])
		}
	}
}

// look requests the status of a job. It returns false if it got none.
func (c *crowd) look(a *accepted, site string) bool {
	status, _, answer := c.ask(site, "GET", "/v1/jobs/"+a.id, a.client, "", "")
	switch status {
	case http.StatusOK:
		var job api.Job
		if err := json.Unmarshal(answer, &job); err != nil {
			c.w.t.Errorf("GET %s: %v: %s", a.id, err, answer)
			return false
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.see(a, job)
		return true
	case 0, http.StatusServiceUnavailable:
	default:
		c.w.t.Errorf("%s: the status of %s was answered %d: %s",
			c.w.since(time.Now()), a.id, status, answer)
	}
	return false
}

// makeSure requests the jobs that were left in doubt, now that there are no faults, until each wish
// has its job.
func (c *crowd) makeSure() {
	c.mu.Lock()
	doubts := c.doubts
	c.doubts = nil
	c.mu.Unlock()
	c.w.t.Logf("%s: %d wishes in doubt are asked for again", c.w.since(time.Now()), len(doubts))
	for deadline := time.Now().Add(drainTime); len(doubts) > 0; {
		one := doubts[0]
		one.unsure = false
		// 429: the line is full. A job whose start_within is too short fits once the line is
		// shorter.
		before := c.count()
		if c.once(&one, apis[0]) && (c.count() > before || c.has(one.key)) {
			doubts = doubts[1:]
			continue
		}
		if time.Now().After(deadline) {
			c.w.t.Errorf("%d wishes are still refused %v after all is well", len(doubts), drainTime)
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (c *crowd) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.ids)
}

func (c *crowd) has(key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.jobs {
		if a.key == key {
			return true
		}
	}
	return false
}
