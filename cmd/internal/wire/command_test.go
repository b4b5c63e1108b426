package wire_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forebay/forebay/cmd/internal/wire"
	"github.com/forebay/forebay/internal/config"
)

// Both commands exit with 2 for what is wrong before they serve, and say what that is.
func TestACommandServesOnlyWithGoodFlagsAndConfig(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	text := strings.NewReplacer("%s]", "]", `"%s"`, `"5/s"`).Replace(minimal)
	good, bad := file("good.yaml", text), file("bad.yaml", text+"nonsense: 1\n")
	noClients := file("clients.yaml",
		strings.Replace(text, "identity: {", "identity: {clients_file: gone.yaml, ", 1))
	for _, c := range []struct {
		args     string
		required bool // NoConfig is set
		code     int
		said     string // part of stderr, or of stdout where code is 0
		served   bool
	}{
		{"-config " + good, false, 0, "", true},
		{"-config " + good, true, 0, "", true},
		{"", false, 0, "", true},
		{"", true, wire.ExitUsage, "it: a file is required\n", false},
		{"-check", true, wire.ExitUsage, "it: a file is required\n", false},
		{"-check", false, wire.ExitUsage, "it: -check needs -config FILE\n", false},
		{"-check -config " + good, false, 0, "is valid. In effect:", false},
		{"-check -config " + bad, true, wire.ExitUsage, "nonsense", false},
		{"-version", true, 0, wire.Version() + "\n", false},
		{"-config " + bad, false, wire.ExitUsage, "nonsense", false},
		{"-config " + noClients, false, wire.ExitUsage, "gone.yaml", false},
		{"more", true, wire.ExitUsage, "it: unexpected argument \"more\"; see -help\n", false},
		{"-log loud", false, wire.ExitUsage, "it: -log \"loud\": write debug", false},
		{"-confg x", false, wire.ExitUsage, "confg", false},
		{"-help", false, wire.ExitUsage, "-own", false},
		{"-own refused", false, wire.ExitUsage, "it: own is refused\n", false},
		{"-own failed", false, wire.ExitFailed, `"error":"own has failed"`, true},
	} {
		var own string
		served := false
		command := wire.Command{
			Name:  "it",
			Flags: func(f *flag.FlagSet) { f.StringVar(&own, "own", "", "") },
			Configure: func(s *wire.Start) (*config.Config, error) {
				switch {
				case own == "refused":
					return nil, errors.New("own is refused")
				case s.File == "":
					return config.Demo(), nil
				}
				return s.Load()
			},
			Serve: func(_ context.Context, s *wire.Start) error {
				served = s.Config != nil && s.Clients != nil && s.Metrics != nil
				if own == "failed" {
					return errors.New("own has failed")
				}
				return nil
			},
		}
		if c.required {
			command.NoConfig = errors.New("a file is required")
		}
		var stdout, stderr bytes.Buffer
		code := command.Run(t.Context(), wire.Process{Args: strings.Fields(c.args), Env: noEnv,
			Stdout: &stdout, Stderr: &stderr})
		said := &stderr
		if c.code == wire.ExitOK {
			said = &stdout
		}
		if code != c.code || served != c.served || !strings.Contains(said.String(), c.said) {
			t.Errorf("%q (required: %v): code %d, served %v\n%s%s", c.args, c.required, code,
				served, stdout.String(), stderr.String())
		}
	}
}

func TestClosersCloseInReverse(t *testing.T) {
	t.Parallel()
	var opened wire.Closers
	var closed []int
	errs := []error{errors.New("first"), nil, errors.New("third")}
	for n, err := range errs {
		opened.Add(func() error {
			closed = append(closed, n)
			return err
		})
	}
	err := opened.Close()
	if !errors.Is(err, errs[0]) || !errors.Is(err, errs[2]) ||
		!slices.Equal(closed, []int{2, 1, 0}) {
		t.Errorf("closed %v: %v", closed, err)
	}
	if err := opened.Close(); err != nil || len(closed) != 3 {
		t.Errorf("closed again: %v, %v", closed, err)
	}
	opened.Add(func() error { return errs[0] })
	opened.Abandon()
	if err := opened.Close(); err != nil {
		t.Error(err)
	}
}

// A start that fails leaves no port open, whatever it had opened before.
func TestACutSiteListensNoMore(t *testing.T) {
	t.Parallel()
	for _, serves := range []bool{false, true} {
		log := slog.New(slog.NewTextHandler(io.Discard, nil))
		site, err := wire.Open("admin", "127.0.0.1:0", http.NotFoundHandler(), wire.AdminBounds(),
			prometheus.NewRegistry(), log)
		if err != nil {
			t.Fatal(err)
		}
		if serves {
			site.Serve(func(err error) { t.Error(err) })
			answer, err := http.Get("http://" + site.Addr())
			if err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
			site.Close(0)
		}
		if err := site.Cut(); err != nil {
			t.Error(err)
		}
		if c, err := net.Dial("tcp", site.Addr()); err == nil {
			c.Close()
			t.Errorf("it listens (served: %v)", serves)
		}
	}
}
