package limits

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Algorithm is how a limit counts.
type Algorithm string

// The algorithms; docs/limits.md says what each is good for.
const (
	FixedWindow          Algorithm = "fixed-window"
	SlidingWindowLog     Algorithm = "sliding-window-log"
	SlidingWindowCounter Algorithm = "sliding-window-counter"
	TokenBucket          Algorithm = "token-bucket"
	LeakyBucket          Algorithm = "leaky-bucket"
	Concurrency          Algorithm = "concurrency"
)

// Per is the kind of subject that a limit counts for. All requests with the same subject share one
// count.
type Per string

// The subjects of limits.
const (
	PerClient          Per = "client"
	PerIP              Per = "ip"
	PerOperation       Per = "operation"
	PerClientOperation Per = "client+operation"
	PerTier            Per = "tier"
	PerCountry         Per = "country"
	PerGlobal          Per = "global"
)

// Month is the Window of a fixed-window that counts by months of the UTC calendar. There is no such
// word for a day: fixed windows begin at multiples of their length since 1970 UTC, so windows of
// 24h are days.
const Month time.Duration = -1

// Bounds of a limit. The largest amount over the longest window still counts exactly in the 53 bits
// of Lua's numbers. No network is precise enough for windows under a millisecond.
const (
	MaxAmount = 1_000_000_000
	MinWindow = time.Millisecond
	MaxWindow = 366 * 24 * time.Hour
	maxName   = 64  // it is a part of every key
	maxOwner  = 256 // it is a part of every key's hash
)

// Limit is one rule as the operator wrote it.
type Limit struct {
	// Name is [a-z][a-z0-9-]*, at most 64 characters. Refused clients see it.
	Name string
	// Owner is the limit's place in the config: "tier:free", "limits", "operation:report". Limits
	// with the same name and different owners count separately.
	Owner string

	Algorithm Algorithm
	Per       Per
	// Amount is per Window, in units of cost, 1 to MaxAmount. For concurrency: jobs at one time.
	Amount int64
	// Window is a number of whole microseconds, MinWindow to MaxWindow. For fixed-window it may be
	// Month, and for concurrency it is 0.
	Window time.Duration
	// Burst is the most at once, 1 to MaxAmount; 0: Amount. For token-bucket and leaky-bucket only.
	Burst  int64
	Shadow bool // it counts, but never refuses
	Bytes  bool // it counts bytes of bodies, not costs; not for concurrency
}

// Capacity returns the most that one request can ever spend.
func (l Limit) Capacity() int64 {
	if l.saves() && l.Burst != 0 {
		return l.Burst
	}
	return l.Amount
}

// saves reports whether the algorithm has a burst.
func (l Limit) saves() bool { return l.Algorithm == TokenBucket || l.Algorithm == LeakyBucket }

// Validate returns an error if l can't be kept exactly. The error names the limit, the reason and
// the mend.
func (l Limit) Validate() error {
	_, err := l.arithmetic()
	return err
}

var namePattern = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)

// arithmetic checks l and returns how it counts.
func (l Limit) arithmetic() (arithmetic, error) {
	if len(l.Name) > maxName || !namePattern.MatchString(l.Name) {
		return nil, fmt.Errorf("limit %.80q: a name is a lower-case letter, "+
			"then letters, digits and dashes, at most %d", l.Name, maxName)
	}
	a, err := l.compute()
	if err != nil {
		return nil, fmt.Errorf("limit %s: %w", l.Name, err)
	}
	return a, nil
}

func (l Limit) compute() (arithmetic, error) {
	if len(l.Owner) > maxOwner {
		return nil, fmt.Errorf("owner of %d bytes: at most %d", len(l.Owner), maxOwner)
	}
	if !slices.Contains(everyPer, l.Per) {
		return nil, fmt.Errorf("per %q: use %s", l.Per, oneOf(everyPer))
	}
	if !slices.Contains(everyAlgorithm, l.Algorithm) {
		return nil, fmt.Errorf("algorithm %q: use %s", l.Algorithm, oneOf(everyAlgorithm))
	}
	if l.Amount < 1 || l.Amount > MaxAmount {
		return nil, fmt.Errorf("amount %d: use 1 to %d", l.Amount, MaxAmount)
	}
	if l.Burst != 0 && !l.saves() {
		return nil, fmt.Errorf("burst: a %s has none; leave it out or use a %s",
			l.Algorithm, TokenBucket)
	}
	if l.Burst < 0 || l.Burst > MaxAmount {
		return nil, fmt.Errorf("burst %d: use 1 to %d, or 0 for the amount", l.Burst, MaxAmount)
	}
	if l.Bytes && l.Algorithm == Concurrency {
		return nil, fmt.Errorf("bytes: a %s counts jobs; use another algorithm", Concurrency)
	}
	switch {
	case l.Algorithm == Concurrency:
		if l.Window != 0 {
			return nil, fmt.Errorf("window %v: a %s has none; leave it out", l.Window, Concurrency)
		}
		return concurrency{limit: l.Amount}, nil
	case l.Window == Month && l.Algorithm == FixedWindow:
		return fixed{limit: l.Amount}, nil
	case l.Window == Month:
		return nil, fmt.Errorf("window month: a %s has none; use a duration, or a %s",
			l.Algorithm, FixedWindow)
	case l.Window < MinWindow || l.Window > MaxWindow:
		return nil, fmt.Errorf("window %v: use %v to %v", l.Window, MinWindow, MaxWindow)
	case l.Window%time.Microsecond != 0:
		return nil, fmt.Errorf("window %v: use whole microseconds", l.Window)
	}
	window := l.Window.Microseconds()
	switch l.Algorithm {
	case FixedWindow:
		return fixed{limit: l.Amount, window: window}, nil
	case SlidingWindowLog:
		if l.Amount > MaxLog {
			return nil, fmt.Errorf("amount %d: a %s remembers each request, at most %d; use a %s",
				l.Amount, SlidingWindowLog, MaxLog, SlidingWindowCounter)
		}
		return log{limit: l.Amount, window: window}, nil
	case SlidingWindowCounter:
		return newCounter(l.Amount, window), nil
	default:
		return newBucket(l.Amount, window, l.Capacity())
	}
}

var (
	everyAlgorithm = []Algorithm{FixedWindow, SlidingWindowLog, SlidingWindowCounter,
		TokenBucket, LeakyBucket, Concurrency}
	everyPer = []Per{PerClient, PerIP, PerOperation, PerClientOperation,
		PerTier, PerCountry, PerGlobal}
)

func oneOf[T ~string](words []T) string {
	var text strings.Builder
	for i, w := range words {
		switch {
		case i == len(words)-1:
			text.WriteString(" or ")
		case i > 0:
			text.WriteString(", ")
		}
		text.WriteString(string(w))
	}
	return text.String()
}

// Rule is a compiled Limit: its integers and its part of the keys. Immutable, and safe to share
// between requests and goroutines.
type Rule struct {
	limit      Limit
	counted    Limit // its amounts are a part of the keys; see Scaled
	capacity   int64
	arithmetic arithmetic
	parameters [5]int64 // of the arithmetic
	widest     [5]int64 // of the larger amount of limit and counted: other regions debit by them
	kind       int64    // parameters[0]
	unit       int64
	digest     [sha256.Size]byte // of the owner and of all parameters
	suffix     string            // of its keys; "" if the operation is a part of it
}

// Compile checks l and prepares it for decisions.
func Compile(l Limit) (*Rule, error) { return newRule(l, l) }

func newRule(l, counted Limit) (*Rule, error) {
	a, err := l.arithmetic()
	if err != nil {
		return nil, err
	}
	// A changed parameter makes another key, so old counts are never held against new limits.
	h := sha256.New()
	for _, part := range []string{
		l.Owner, string(l.Algorithm), string(l.Per), strconv.FormatInt(counted.Amount, 10),
		strconv.FormatInt(int64(l.Window/time.Microsecond), 10),
		strconv.FormatInt(counted.Capacity(), 10), strconv.FormatBool(l.Shadow),
	} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	if l.Bytes {
		h.Write([]byte("bytes"))
	}
	r := &Rule{limit: l, counted: counted, capacity: l.Capacity(), arithmetic: a,
		parameters: a.parameters(), unit: a.unit(), digest: [sha256.Size]byte(h.Sum(nil))}
	r.kind, r.widest = r.parameters[0], r.parameters
	if counted.Amount > l.Amount {
		whole, err := counted.arithmetic()
		if err != nil {
			return nil, err
		}
		r.widest = whole.parameters()
	}
	if l.Per != PerClientOperation {
		r.suffix = keySuffix(l.Name, r.digest)
	}
	return r, nil
}

// Limit returns the limit that the rule was compiled from.
func (r *Rule) Limit() Limit { return r.limit }

// never reports whether a request that takes so much can't fit at any time.
func (r *Rule) never(takes int64) bool { return takes > r.capacity }

// keySuffix is the part of a key that identifies the limit.
func keySuffix(name string, digest [sha256.Size]byte) string {
	return "}:limit:" + name + ":" + hex.EncodeToString(digest[:hashBytes])
}
