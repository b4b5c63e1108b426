package admission

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/forebay/forebay/internal/rawjson"
)

// Cost is the amount that one request takes of each limit that counts costs: Fixed, or a number in
// its payload.
type Cost struct {
	Fixed   int64  // ≥ 1, if From is ""
	From    string // JSON Pointer (RFC 6901) into the payload, such as "/pages"
	Default int64  // ≥ 1; the cost of a payload without the number
	Max     int64  // the most that the payload may say
}

// CostError reports that a payload doesn't have its cost where Cost.From points.
type CostError struct {
	Cost      Cost
	Ambiguous *rawjson.Ambiguous // the path can be read in two ways; nil: the value is wrong
}

func (e *CostError) Error() string {
	if e.Ambiguous != nil {
		return fmt.Sprintf("cost at %s: %v", e.Cost.From, e.Ambiguous)
	}
	return fmt.Sprintf("cost at %s: not a whole number from 1 to %d", e.Cost.From, e.Cost.Max)
}

// A payload that names its own cost isn't trusted. Every backend's JSON library must read the
// number that is read here; otherwise a request could be charged for one page and print a thousand.
// So on the path to the number, a name that comes twice is refused, and so is one that differs from
// the wanted name only in case, because some libraries treat both alike. The number must be digits
// only: libraries disagree about 1e2 and 2.0.

// Of returns the cost of a request with this payload, which is valid JSON. An error is a
// *CostError.
func (c Cost) Of(payload []byte) (int64, error) {
	if c.From == "" {
		return c.Fixed, nil
	}
	value, err := rawjson.Find(payload, c.From)
	if twoWays, ok := errors.AsType[*rawjson.Ambiguous](err); ok {
		return 0, &CostError{Cost: c, Ambiguous: twoWays}
	}
	if value == nil || string(value) == "null" { // many clients write absent values as null
		return c.Default, nil
	}
	n, ok := WholeNumber(string(value))
	if !ok || n > c.Max {
		return 0, &CostError{Cost: c}
	}
	return n, nil
}

// Standard returns the cost of a request whose payload isn't known.
func (c Cost) Standard() int64 {
	if c.From == "" {
		return c.Fixed
	}
	return c.Default
}

// WholeNumber reads a number ≥ 1 that is written in digits only, without leading zeros.
func WholeNumber(text string) (int64, bool) {
	if text == "" || text[0] < '1' || text[0] > '9' {
		return 0, false
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil
}
