// Package clients follows the clients file, and knows which clients are new.
//
// A [File] is read at the start, and again when it has changed or on SIGHUP. Its clients take
// effect together or not at all: a broken file leaves the clients as they were, and is logged and
// counted. This package doesn't parse a file: Config.Read does.
//
// [Newcomers] remember when each client was first seen, for all processes together.
package clients

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"os"
	"reflect"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Config has the settings and functions of a File. Set is what the program makes of all clients
// together.
type Config[Set any] struct {
	// Path is the file's path. "": there is no file, and Read is called once, without a text.
	Path string
	// MaxSize bounds the file, in bytes. Of a larger file Read gets one byte more than that, and
	// must refuse it.
	MaxSize int64
	// Read returns the clients to put in force for a file with this text, and how they differ from
	// was, the clients in force (nil at first), which it doesn't change. After an error those stay
	// in force. It is never called concurrently.
	Read func(text []byte, was *Set) (*Set, Changes, error)

	Metrics prometheus.Registerer // takes the file's metrics, if there is a file
	Log     *slog.Logger
}

// Changes counts the clients by which two sets differ.
type Changes struct {
	Clients                 int // of the new set
	Added, Removed, Changed int
}

// Compare counts the clients by which two sets differ; each set has them by name.
func Compare[Client any](was, is map[string]Client) Changes {
	changes := Changes{Clients: len(is)}
	for name, client := range is {
		switch old, known := was[name]; {
		case !known:
			changes.Added++
		case !reflect.DeepEqual(old, client):
			changes.Changed++
		}
	}
	for name := range was {
		if _, still := is[name]; !still {
			changes.Removed++
		}
	}
	return changes
}

// File is the clients file and the set of clients in force. Safe for concurrent use, but only one
// Follow or Watch may run at a time.
type File[Set any] struct {
	// Reloaded, if it isn't nil, is called after each reading that put clients in force, or failed
	// to. It is set before Follow or Watch.
	Reloaded func(Changes, error)

	config Config[Set]
	now    atomic.Pointer[Set]

	reloads *prometheus.CounterVec
	ok      prometheus.Gauge

	last reading // Open's, then Watch's alone
}

// reading is a look at the file.
type reading struct {
	info  os.FileInfo
	at    time.Time
	found string // the digest of the text, or why it could not be read
}

// Open reads the file, if there is one, and puts its clients in force. Errors about the file begin
// with its key in the config, or are Read's.
func Open[Set any](c Config[Set]) (*File[Set], error) {
	f := &File[Set]{config: c}
	var text []byte
	if c.Path != "" {
		f.register()
		var err error
		if text, err = f.read(); err != nil {
			return nil, err
		}
	}
	set, _, err := c.Read(text, nil)
	if err != nil {
		return nil, err
	}
	f.now.Store(set)
	if c.Path != "" {
		f.ok.Set(1)
	}
	return f, nil
}

func (f *File[Set]) register() {
	f.reloads = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "forebay_clients_reloads_total",
		Help: "Readings of a clients file that had changed, or of any on SIGHUP: " +
			"ok put it in force, failed left the clients as they were.",
	}, []string{"outcome"})
	f.ok = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "forebay_clients_file_ok",
		Help: "1: the clients in force are those of the clients file as it is; " +
			"0: the file is broken, and they are those of an earlier one.",
	})
	f.config.Metrics.MustRegister(f.reloads, f.ok)
	for _, outcome := range []string{"ok", "failed"} {
		f.reloads.WithLabelValues(outcome)
	}
}

// Current returns the clients in force. They must not be changed.
func (f *File[Set]) Current() *Set { return f.now.Load() }

// lookEvery is how late a changed file may be noticed. Each check costs one stat.
const lookEvery = time.Second

// Follow follows the file, if there is one, until ctx ends: it checks each second whether the file
// has changed, and reads it on each SIGHUP of signals. Other signals, and all signals if there is
// no file, are only logged.
func (f *File[Set]) Follow(ctx context.Context, signals <-chan os.Signal) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	f.Watch(ctx, tick.C, signals)
}

// Watch is Follow with a clock of the caller's: at each tick it checks whether the file has
// changed. A broken file leaves the clients as they are, and is logged once for each change and
// each SIGHUP.
func (f *File[Set]) Watch(ctx context.Context, tick <-chan time.Time, signals <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick:
			if f.config.Path != "" && !f.untouched() {
				f.reload(false)
			}
		case s := <-signals:
			if f.config.Path != "" && s == syscall.SIGHUP {
				f.reload(true)
			} else {
				f.config.Log.Info("the signal changes nothing: no file is read again on it",
					"signal", s.String())
			}
		}
	}
}

// settled is how old a file's time must be at a reading to prove later that nothing was written
// since. File systems keep times as coarse as a second or two, and a file may be written twice
// within that.
const settled = 2 * time.Second

// untouched reports whether the file is surely the one that was read last. If the path is a
// symbolic link, as Kubernetes mounts it, the file at its end counts.
func (f *File[Set]) untouched() bool {
	now, err := os.Stat(f.config.Path)
	then := f.last.info
	return err == nil && then != nil && os.SameFile(now, then) && now.Size() == then.Size() &&
		now.ModTime().Equal(then.ModTime()) && f.last.at.Sub(then.ModTime()) > settled
}

// reload reads the file and puts it in force, if its content is new or must is set.
func (f *File[Set]) reload(must bool) {
	was := f.last.found
	text, err := f.read()
	if f.last.found == was && !must {
		return
	}
	var set *Set
	var changes Changes
	if err == nil {
		set, changes, err = f.config.Read(text, f.Current())
	}
	if err != nil {
		f.reloads.WithLabelValues("failed").Inc()
		f.ok.Set(0)
		f.config.Log.Error("clients file refused: the clients stay as they were",
			"file", f.config.Path, "error", err)
		f.reloaded(changes, err)
		return
	}
	f.now.Store(set)
	f.reloads.WithLabelValues("ok").Inc()
	f.ok.Set(1)
	f.config.Log.Info("clients file read", "file", f.config.Path, "clients", changes.Clients,
		"added", changes.Added, "removed", changes.Removed, "changed", changes.Changed)
	f.reloaded(changes, nil)
}

func (f *File[Set]) reloaded(changes Changes, err error) {
	if f.Reloaded != nil {
		f.Reloaded(changes, err)
	}
}

// read returns the file's text, and notes what it found.
func (f *File[Set]) read() (text []byte, err error) {
	f.last = reading{at: time.Now()}
	file, err := os.Open(f.config.Path)
	if err == nil {
		defer file.Close()
		if f.last.info, err = file.Stat(); err == nil {
			text, err = io.ReadAll(io.LimitReader(file, f.config.MaxSize+1))
		}
	}
	if err != nil {
		f.last.info, f.last.found = nil, err.Error()
		return nil, fmt.Errorf("identity.clients_file: %w", err)
	}
	sum := sha256.Sum256(text)
	f.last.found = string(sum[:])
	return text, nil
}
