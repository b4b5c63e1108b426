package adminapi_test

import (
	"testing"

	"github.com/forebay/forebay/internal/testforebay"
)

// world is testforebay's, with what these tests ask of it besides.
type world struct{ *testforebay.World }

func newWorld(t testing.TB, adjust func(*setup)) *world {
	t.Helper()
	return &world{testforebay.New(t, adjust)}
}

type (
	setup  = testforebay.Setup
	answer = testforebay.Answer
)

const (
	keyA = testforebay.KeyA
	keyB = testforebay.KeyB
)

var (
	key      = testforebay.Key
	from     = testforebay.From
	field    = testforebay.Field
	strictly = testforebay.Strictly
)
