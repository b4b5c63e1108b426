package text_test

import (
	"testing"

	"github.com/forebay/forebay/internal/text"
)

// A name can't move the cursor, hide what stands beside it or turn a line around.
func TestNamesCanNotSteerATerminal(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"acme":               "acme",
		"Äpfel & 苹果":         "Äpfel & 苹果",
		"a\x1b[2Jb":          "a\ufffd[2Jb",
		"a\r\nb\tc":          "a\ufffd\ufffdb\ufffdc",
		"user\u202egnp.exe":  "user\ufffdgnp.exe",
		"zero\u200bwidth":    "zero\ufffdwidth",
		"bad\xffbyte\u0085x": "bad\ufffdbyte\ufffdx",
	} {
		if got := text.Clean(in); got != want {
			t.Errorf("Clean(%q) = %q, want %q", in, got, want)
		}
	}
}
