package httpapi_test

import (
	"testing"

	"github.com/forebay/forebay/internal/testforebay"
)

// world is testforebay's, with further helpers for these tests.
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
	key        = testforebay.Key
	from       = testforebay.From
	idempotent = testforebay.Idempotent
	field      = testforebay.Field
	perClient  = testforebay.PerClient
	strictly   = testforebay.Strictly
	mustRate   = testforebay.MustRate
	noise      = testforebay.Noise
	listen     = testforebay.Listen
	lateness   = testforebay.Lateness
)
