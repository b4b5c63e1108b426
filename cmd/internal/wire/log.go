// Package wire has the parts that both commands share. It reads flags and config, turns the config
// into the packages' own types, and puts the packages together.
package wire

import (
	"fmt"
	"io"
	"log/slog"
	"os"

	"golang.org/x/term"
)

// Logger returns a logger that writes text to a terminal, otherwise JSON. level is debug, info,
// warn or error.
func Logger(w io.Writer, level string) (*slog.Logger, error) {
	var least slog.Level
	if err := least.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("-log %q: write debug, info, warn or error", level)
	}
	options := &slog.HandlerOptions{Level: least, ReplaceAttr: withUnits}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return slog.New(slog.NewTextHandler(w, options)), nil
	}
	return slog.New(slog.NewJSONHandler(w, options)), nil
}

// withUnits writes durations with their unit, such as 1.5s. In JSON they would be bare nanoseconds.
func withUnits(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}
