package wire_test

import (
	"testing"

	"forebay/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }
