package pubsub_test

import (
	"testing"

	"github.com/forebay/forebay/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }
