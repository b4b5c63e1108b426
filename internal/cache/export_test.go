package cache

const MaxInline = maxInline

// Canonical is what Key hashes of a JSON payload.
var Canonical = canonical

// Keys of the lists.
const (
	ListOfOperations = operationsKey
	PurgedKey        = purgedKey
	ForgottenKey     = forgottenKey
	ForgottenCount   = countKey
	ForgottenNews    = forgottenNews
)

// ListOf is the key of an operation's list.
func ListOf(operation string) string { return listBegin + operation }

// Holds is how many answers m holds and what they weigh, once all clean-up that is due is done.
func (m *Memory) Holds() (answers int, weight uint64) {
	m.entries.CleanUp()
	return m.HoldsNow(), m.entries.WeightedSize()
}

// HoldsNow is how many answers m holds, with those that wait for clean-up.
func (m *Memory) HoldsNow() int { return m.entries.EstimatedSize() }
