package cache

const MaxInline = maxInline

// Canonical returns the text that Key hashes for a JSON payload.
var Canonical = canonical

// Keys of the lists.
const (
	ListOfOperations = operationsKey
	PurgedKey        = purgedKey
	ForgottenKey     = forgottenKey
	ForgottenCount   = countKey
	ForgottenNews    = forgottenNews
)

// ListOf returns the key of an operation's list.
func ListOf(operation string) string { return listBegin + operation }

// Holds returns how many answers m holds and their weight, after all clean-up that is due.
func (m *Memory) Holds() (answers int, weight uint64) {
	m.entries.CleanUp()
	return m.HoldsNow(), m.entries.WeightedSize()
}

// HoldsNow returns how many answers m holds, including those that wait for clean-up.
func (m *Memory) HoldsNow() int { return m.entries.EstimatedSize() }
