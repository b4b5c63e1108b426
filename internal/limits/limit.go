package limits

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
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

// HasBurst reports whether a limit by the algorithm has a burst.
func (a Algorithm) HasBurst() bool { return a == TokenBucket || a == LeakyBucket }

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

// OfClient reports whether each client is counted by itself.
func (p Per) OfClient() bool { return p == PerClient || p == PerClientOperation }

// OfOperation reports whether each operation is counted by itself.
func (p Per) OfOperation() bool { return p == PerOperation || p == PerClientOperation }

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
	// Amount is what is allowed per Window, in units of cost, 1 to MaxAmount. For concurrency: jobs
	// at one time.
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
	if l.Algorithm.HasBurst() && l.Burst != 0 {
		return l.Burst
	}
	return l.Amount
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
	if problems := l.Problems(); len(problems) > 0 {
		return nil, problems[0]
	}
	if len(l.Owner) > maxOwner {
		return nil, fmt.Errorf("owner of %d bytes: at most %d", len(l.Owner), maxOwner)
	}
	if l.Window != Month && l.Window%time.Microsecond != 0 {
		return nil, fmt.Errorf("window %v: use whole microseconds", l.Window)
	}
	window := l.Window.Microseconds()
	switch l.Algorithm {
	case Concurrency:
		return concurrency{limit: l.Amount}, nil
	case FixedWindow:
		if l.Window == Month {
			window = 0
		}
		return fixed{limit: l.Amount, window: window}, nil
	case SlidingWindowLog:
		return log{limit: l.Amount, window: window}, nil
	case SlidingWindowCounter:
		return newCounter(l.Amount, window), nil
	default:
		return newBucket(l.Amount, window, l.Capacity())
	}
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

// never reports whether a request for so much can't fit at any time.
func (r *Rule) never(takes int64) bool { return takes > r.capacity }

// keySuffix returns the part of a key that identifies the limit.
func keySuffix(name string, digest [sha256.Size]byte) string {
	return "}:limit:" + name + ":" + hex.EncodeToString(digest[:hashBytes])
}
