package admission

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"time"
)

// Algorithm is how a limit counts.
type Algorithm string

// The algorithms; docs/limits.md says what each is good for.
const (
	TokenBucket          Algorithm = "token-bucket"
	SlidingWindowCounter Algorithm = "sliding-window-counter"
)

// Per is what a limit counts for: everyone with the same subject shares one count.
type Per string

// The subjects of limits.
const (
	PerClient          Per = "client"
	PerIP              Per = "ip"
	PerOperation       Per = "operation"
	PerClientOperation Per = "client+operation"
	PerGlobal          Per = "global"
)

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
	Amount    int64         // per Window, in units of cost; 1 to MaxAmount
	Window    time.Duration // whole microseconds, MinWindow to MaxWindow
	Burst     int64         // token-bucket only: most that can be saved up, 1 to MaxAmount; 0: Amount
}

// Capacity is the most that one request can ever spend.
func (l Limit) Capacity() int64 {
	if l.Algorithm == TokenBucket && l.Burst != 0 {
		return l.Burst
	}
	return l.Amount
}

// Validate says what makes l impossible to keep exactly, and the mend. Errors name the limit.
func (l Limit) Validate() error {
	_, err := l.arithmetic()
	return err
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
	if len(l.Owner) > maxOwner {
		return nil, fmt.Errorf("owner of %d bytes: at most %d", len(l.Owner), maxOwner)
	}
	switch l.Per {
	case PerClient, PerIP, PerOperation, PerClientOperation, PerGlobal:
	default:
		return nil, fmt.Errorf("per %q: use %s, %s, %s, %s or %s", l.Per, PerClient, PerIP, PerOperation, PerClientOperation, PerGlobal)
	}
	if l.Amount < 1 || l.Amount > MaxAmount {
		return nil, fmt.Errorf("amount %d: use 1 to %d", l.Amount, MaxAmount)
	}
	if l.Window < MinWindow || l.Window > MaxWindow {
		return nil, fmt.Errorf("window %v: use %v to %v", l.Window, MinWindow, MaxWindow)
	}
	if l.Window%time.Microsecond != 0 {
		return nil, fmt.Errorf("window %v: use whole microseconds", l.Window)
	}
	switch l.Algorithm {
	case TokenBucket:
		if l.Burst < 0 || l.Burst > MaxAmount {
			return nil, fmt.Errorf("burst %d: use 1 to %d, or 0 for the amount", l.Burst, MaxAmount)
		}
		return newBucket(l.Amount, l.Window.Microseconds(), l.Capacity())
	case SlidingWindowCounter:
		if l.Burst != 0 {
			return nil, errors.New("burst: a sliding-window-counter has none; leave it out or use a token-bucket")
		}
		return newCounter(l.Amount, l.Window.Microseconds()), nil
	default:
		return nil, fmt.Errorf("algorithm %q: use %s or %s", l.Algorithm, TokenBucket, SlidingWindowCounter)
	}
}

// Rule is a compiled Limit: its integers and its part of the keys. Immutable, and safe to
// share between requests and goroutines.
type Rule struct {
	limit      Limit
	capacity   int64
	arithmetic arithmetic
	unit       int64             // of the arithmetic
	digest     [sha256.Size]byte // of the owner and of all parameters
	suffix     string            // of its keys; "" where the operation is a part of it
}

// Compile checks l and prepares it for decisions.
func Compile(l Limit) (*Rule, error) {
	a, err := l.arithmetic()
	if err != nil {
		return nil, err
	}
	// A changed parameter makes another key, so that old counts never meet new limits.
	h := sha256.New()
	for _, part := range []string{
		l.Owner, string(l.Algorithm), string(l.Per),
		strconv.FormatInt(l.Amount, 10), strconv.FormatInt(l.Window.Microseconds(), 10), strconv.FormatInt(l.Capacity(), 10),
	} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	r := &Rule{limit: l, capacity: l.Capacity(), arithmetic: a, unit: a.unit(), digest: [sha256.Size]byte(h.Sum(nil))}
	if l.Per != PerClientOperation {
		r.suffix = keySuffix(l.Name, r.digest)
	}
	return r, nil
}

// Limit is what the rule was compiled from.
func (r *Rule) Limit() Limit { return r.limit }

// keySuffix is the part of a key that says which limit it is.
func keySuffix(name string, digest [sha256.Size]byte) string {
	return "}:limit:" + name + ":" + hex.EncodeToString(digest[:hashBytes])
}
