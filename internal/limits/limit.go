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

// Per is what a limit counts for: everyone with the same subject shares one count.
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

// Month is the Window of a fixed-window that counts by months of the UTC calendar. A day is 24h: fixed windows begin at
// multiples of their length since 1970 UTC, and so does each day.
const Month time.Duration = -1

// Bounds of a limit. The largest amount over the longest window still counts exactly in
// the 53 bits that Lua's numbers hold; under a millisecond no network is that punctual.
const (
	MaxAmount = 1_000_000_000
	MinWindow = time.Millisecond
	MaxWindow = 366 * 24 * time.Hour
	maxName   = 64  // goes into every key
	maxOwner  = 256 // goes into every key's hash
)

// Limit is one rule as the operator wrote it.
type Limit struct {
	Name  string // [a-z][a-z0-9-]*, at most 64 characters; what a refused client reads
	Owner string // where it stands: "tier:free", "limits", "operation:report"; same names of different owners count apart

	Algorithm Algorithm
	Per       Per
	Amount    int64         // per Window, in units of cost; 1 to MaxAmount. concurrency: jobs at one time
	Window    time.Duration // whole microseconds, MinWindow to MaxWindow; fixed-window: or Month; concurrency: 0
	Burst     int64         // token-bucket and leaky-bucket only: the most at once, 1 to MaxAmount; 0: Amount
	Shadow    bool          // counted, but never refuses
	Bytes     bool          // it counts bytes of bodies, not costs; not for concurrency
}

// Capacity is the most that one request can ever spend.
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
		return nil, fmt.Errorf("limit %.80q: a name is a lower-case letter, then letters, digits and dashes, at most %d", l.Name, maxName)
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

// Rule is a compiled Limit: its integers and its part of the keys. Immutable, and safe to
// share between requests and goroutines.
type Rule struct {
	limit      Limit
	counted    Limit // whose amounts the key is of; see Scaled
	capacity   int64
	arithmetic arithmetic
	parameters [5]int64 // of the arithmetic
	widest     [5]int64 // those of the larger amount, of this rule's and of counted: by them others may debit the key
	kind       int64    // their first
	unit       int64
	digest     [sha256.Size]byte // of the owner and of all parameters
	suffix     string            // of its keys; "" where the operation is a part of it
}

// Compile checks l and prepares it for decisions.
func Compile(l Limit) (*Rule, error) { return newRule(l, l) }

func newRule(l, counted Limit) (*Rule, error) {
	a, err := l.arithmetic()
	if err != nil {
		return nil, err
	}
	// A changed parameter makes another key, so that old counts never meet new limits.
	h := sha256.New()
	for _, part := range []string{
		l.Owner, string(l.Algorithm), string(l.Per), strconv.FormatInt(counted.Amount, 10),
		strconv.FormatInt(int64(l.Window/time.Microsecond), 10), strconv.FormatInt(counted.Capacity(), 10), strconv.FormatBool(l.Shadow),
	} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	if l.Bytes {
		h.Write([]byte("bytes"))
	}
	r := &Rule{limit: l, counted: counted, capacity: l.Capacity(), arithmetic: a, parameters: a.parameters(), unit: a.unit(), digest: [sha256.Size]byte(h.Sum(nil))}
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

// Limit is what the rule was compiled from.
func (r *Rule) Limit() Limit { return r.limit }

// never reports whether what a request takes can't fit at any time.
func (r *Rule) never(takes int64) bool { return takes > r.capacity }

// keySuffix is the part of a key that says which limit it is.
func keySuffix(name string, digest [sha256.Size]byte) string {
	return "}:limit:" + name + ":" + hex.EncodeToString(digest[:hashBytes])
}
