package httpapi

import "testing"

func TestTheCostsPlaceInTheBodyIsTold(t *testing.T) {
	t.Parallel()
	for from, want := range map[string]string{"/pages": "#/payload/pages", "/a/0": "#/payload/a/0",
		"/a~1b/c d/ü": "#/payload/a~1b/c%20d/%C3%BC", "/": "#/payload/"} {
		if got := costPointer(from); got != want {
			t.Errorf("%s: %s, want %s", from, got, want)
		}
	}
}
