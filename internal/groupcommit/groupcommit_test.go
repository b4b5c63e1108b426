package groupcommit_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/forebay/forebay/internal/groupcommit"
	"github.com/forebay/forebay/internal/transfer"
)

func TestALoneQuestionIsSentAtOnce(t *testing.T) {
	t.Parallel()
	c := groupcommit.New(8, time.Second, func(_ context.Context, batch []int) ([]int, error) {
		return []int{batch[0] * 2}, nil
	})
	if got, err := c.Do(t.Context(), 21); got != 42 || err != nil {
		t.Fatalf("Do(21) = %d, %v; want 42", got, err)
	}
}

// Questions that arrive during a call go out together as the next one, in order, at most max at a
// time.
func TestQuestionsDuringACallShareTheNext(t *testing.T) {
	t.Parallel()
	started, release := make(chan struct{}), make(chan struct{})
	var sizes []int
	var once sync.Once
	c := groupcommit.New(4, time.Second, func(_ context.Context, batch []int) ([]int, error) {
		once.Do(func() { close(started); <-release })
		sizes = append(sizes, len(batch)) // one call at a time, so no lock is needed
		return batch, nil
	})
	var all sync.WaitGroup
	ask := func(q int) {
		all.Go(func() {
			if got, err := c.Do(t.Context(), q); got != q || err != nil {
				t.Errorf("Do(%d) = %d, %v", q, got, err)
			}
		})
	}
	ask(0)
	<-started
	for q := 1; q <= 6; q++ {
		ask(q)
	}
	for c.Waiting() < 6 {
		time.Sleep(time.Millisecond)
	}
	close(release)
	all.Wait()
	if len(sizes) != 3 || sizes[0] != 1 || sizes[1] != 4 || sizes[2] != 2 {
		t.Fatalf("batches of %v, want [1 4 2]", sizes)
	}
}

func TestAnErrorReachesEveryCaller(t *testing.T) {
	t.Parallel()
	down := errors.New("store unavailable")
	c := groupcommit.New(4, time.Second, func(context.Context, []int) ([]int, error) {
		return nil, down
	})
	for range 3 { // and the collector goes on after it
		if _, err := c.Do(t.Context(), 1); !errors.Is(err, down) {
			t.Fatalf("err = %v, want %v", err, down)
		}
	}
}

// A caller whose context ends gets the context's error at once. The call that is under way runs to
// its end. A question that still waits for a call is never sent.
func TestACallerThatLeavesDoesNotCancelTheCall(t *testing.T) {
	t.Parallel()
	started, release := make(chan struct{}, 2), make(chan struct{})
	ended := make(chan error, 2)
	var mu sync.Mutex
	var asked []int
	c := groupcommit.New(4, time.Minute, func(ctx context.Context, batch []int) ([]int, error) {
		mu.Lock()
		asked = append(asked, batch...)
		mu.Unlock()
		started <- struct{}{}
		<-release
		ended <- ctx.Err()
		return batch, nil
	})
	leaving, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := c.Do(leaving, 1)
		left <- err
	}()
	<-started
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Fatalf("err = %v, want canceled", err)
	}
	if _, err := c.Do(leaving, 2); !errors.Is(err, context.Canceled) {
		t.Fatalf("err = %v, want canceled", err)
	}
	close(release)
	if err := <-ended; err != nil {
		t.Fatalf("the call's context ended with %v", err)
	}
	if got, err := c.Do(t.Context(), 3); got != 3 || err != nil {
		t.Fatalf("Do(3) = %d, %v", got, err)
	}
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(asked, []int{1, 3}) {
		t.Fatalf("asked %v, want [1 3]: nobody waited for 2", asked)
	}
}

// A call that hangs ends at the timeout and doesn't block those after it.
func TestAHungCallEnds(t *testing.T) {
	t.Parallel()
	c := groupcommit.New(4, 10*time.Millisecond, func(ctx context.Context, _ []int) ([]int, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	for range 2 {
		if _, err := c.Do(t.Context(), 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("err = %v, want deadline exceeded", err)
		}
	}
}

// With Overlap(2) a second call goes out once enough questions wait, and no third.
func TestASecondCallGoesOutForManyQuestions(t *testing.T) {
	t.Parallel()
	begun, release := make(chan int), make(chan struct{})
	c := groupcommit.New(8, 10*time.Second, func(_ context.Context, batch []int) ([]int, error) {
		begun <- len(batch)
		<-release
		return batch, nil
	}).Overlap(2)
	var all sync.WaitGroup
	ask := func(n int) {
		for range n {
			all.Go(func() {
				if _, err := c.Do(t.Context(), 1); err != nil {
					t.Error(err)
				}
			})
		}
	}
	waiting := func(n int) {
		for c.Waiting() != n {
			time.Sleep(time.Millisecond)
		}
	}
	ask(1)
	if n := <-begun; n != 1 {
		t.Fatalf("a lone question went out with %d", n)
	}
	ask(1)
	waiting(1)
	select {
	case n := <-begun:
		t.Fatalf("a second call for %d", n)
	default:
	}
	ask(1) // a quarter of 8
	if n := <-begun; n != 2 {
		t.Fatalf("a second call for %d, want 2", n)
	}
	ask(8)
	waiting(8)
	select {
	case n := <-begun:
		t.Fatalf("a third call for %d", n)
	default:
	}
	go func() {
		for range begun {
		}
	}()
	close(release)
	all.Wait()
	close(begun)
}

// A shared call is bounded in bytes. A large question goes alone, and small ones don't wait behind
// it; its call may take longer.
func TestLargeQuestionsGoAlone(t *testing.T) {
	t.Parallel()
	const large = transfer.Small + 1
	begun, release := make(chan []int), make(chan struct{})
	c := groupcommit.New(1000, time.Minute, func(ctx context.Context, batch []int) ([]int, error) {
		if end, _ := ctx.Deadline(); batch[0] > 1<<20 && time.Until(end) < 65*time.Second {
			t.Errorf("a call with %d bytes ends in %v", batch[0], time.Until(end))
		}
		begun <- batch
		<-release
		return batch, nil
	}).Weigh(func(bytes int) int { return bytes })
	var all sync.WaitGroup
	ask := func(n, bytes int) {
		for range n {
			all.Go(func() {
				if _, err := c.Do(t.Context(), bytes); err != nil {
					t.Error(err)
				}
			})
		}
	}
	ask(1, 20<<20)
	<-begun
	ask(5, large)
	if batch := <-begun; len(batch) != 1 || batch[0] != large {
		t.Fatalf("a large question went with others: %v", batch)
	}
	for c.Waiting() != 4 { // the rest wait: two large calls are in flight
		time.Sleep(time.Millisecond)
	}
	ask(1, 10)
	if batch := <-begun; !slices.Equal(batch, []int{10}) {
		t.Fatalf("next came %v, want the small question", batch)
	}
	ask(40, transfer.Small)
	for c.Waiting() != 44 {
		time.Sleep(time.Millisecond)
	}
	close(release)
	var sum int
	for sum < 4*large+40*transfer.Small {
		batch, bytes := <-begun, 0
		for _, b := range batch {
			bytes += b
		}
		if sum += bytes; bytes > transfer.Together || batch[0] == large && len(batch) > 1 {
			t.Errorf("a call of %d questions with %d bytes", len(batch), bytes)
		}
	}
	all.Wait()
}
