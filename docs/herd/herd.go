package main

import (
	"container/heap"
	"math/rand/v2"
	"time"

	"github.com/forebay/forebay/client"
)

const (
	clients  = 1000
	perToken = 20 * time.Millisecond // the server admits 50 a second
	burst    = 10                    // and this many at once
	asked    = time.Second           // Retry-After of each refusal
	bin      = 100 * time.Millisecond
	seed     = 1
)

// way is a way in which clients come back, with its outcome.
type way struct {
	name   string
	jitter client.Jitter

	calls, admitted []int // in each bin
	most            int   // most calls in a bin; not the first, where all ways are alike
	total           int
	served          time.Duration // when the last client was served
}

// visit is a client's next call.
type visit struct {
	at    time.Duration
	try   int
	order int // breaks ties between visits at one moment
}

type visits []visit

func (v visits) Len() int { return len(v) }
func (v visits) Less(i, j int) bool {
	return v[i].at < v[j].at || v[i].at == v[j].at && v[i].order < v[j].order
}
func (v visits) Swap(i, j int) { v[i], v[j] = v[j], v[i] }
func (v *visits) Push(x any)   { *v = append(*v, x.(visit)) }
func (v *visits) Pop() any {
	last := (*v)[len(*v)-1]
	*v = (*v)[:len(*v)-1]
	return last
}

// run makes all clients call at one moment. Refused ones come back as the client package does,
// until all are served.
func (w *way) run() {
	random := rand.New(rand.NewPCG(seed, seed))
	var next visits
	for i := range clients {
		next = append(next, visit{try: 1, order: i})
	}
	heap.Init(&next)
	order := clients
	tokens, since := int64(0), time.Duration(0) // the bucket is empty: all are refused at first
	for len(next) > 0 {
		v := heap.Pop(&next).(visit)
		fresh := int64((v.at - since) / perToken)
		since += time.Duration(fresh) * perToken
		tokens = min(tokens+fresh, burst)
		admitted := tokens > 0
		w.count(v.at, admitted)
		if admitted {
			tokens--
			w.served = v.at
			continue
		}
		delay := client.Backoff{Jitter: w.jitter}.Delay(v.try, asked, random.Float64())
		heap.Push(&next, visit{v.at + delay, v.try + 1, order})
		order++
	}
}

func (w *way) count(at time.Duration, admitted bool) {
	i := int(at / bin)
	for len(w.calls) <= i {
		w.calls, w.admitted = append(w.calls, 0), append(w.admitted, 0)
	}
	w.calls[i]++
	w.total++
	if admitted {
		w.admitted[i]++
	}
	if i > 0 {
		w.most = max(w.most, w.calls[i])
	}
}
