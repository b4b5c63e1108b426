package wire

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forebay/forebay/internal/admission"
	"github.com/forebay/forebay/internal/config"
	"github.com/forebay/forebay/internal/httpapi"
	"github.com/forebay/forebay/internal/identity"
	"github.com/forebay/forebay/internal/webhook"
)

// Clients are those who may ask, with what each has instead of its tier's: the config's, and those of the clients file, which may
// come and go. Safe for concurrent use.
type Clients struct {
	config    *config.Config
	lookup    func(string) (string, bool)
	countries identity.CountryDatabase // nil: none
	log       *slog.Logger

	untrusted sync.Once // for the one line of log
	live      *identity.Live
	overrides atomic.Pointer[map[string]*admission.Override] // by client
	callbacks atomic.Pointer[map[string]callback]            // by client

	reloads *prometheus.CounterVec
	ok      prometheus.Gauge

	// What follows is NewClients', and then Watch's alone.
	listed map[string]config.Client // by name: all that are in force
	last   reading
}

// reading is a look at the clients file.
type reading struct {
	info  os.FileInfo
	at    time.Time
	found string // the digest of what was in it, or why it could not be read
}

// NewClients reads what the config says of clients: the clients file, where there is one, and the country database. Its errors name
// file, line and mend. It registers its metrics with metrics, which tell of the file.
func NewClients(c *config.Config, lookup func(string) (string, bool), metrics prometheus.Registerer, log *slog.Logger) (*Clients, error) {
	cs := &Clients{config: c, lookup: lookup, log: log}
	if path := c.Identity.CountryDatabase; path != "" {
		countries, err := identity.OpenCountries(path)
		if err != nil {
			return nil, fmt.Errorf("identity.country_database: %w", err)
		}
		cs.countries = countries
	}
	var extra []config.Client
	if c.Identity.ClientsFile != "" {
		cs.register(metrics)
		text, err := cs.read()
		if err == nil {
			extra, err = cs.parse(text)
		}
		if err != nil {
			return nil, err
		}
		cs.ok.Set(1)
	}
	set, err := cs.compile(extra)
	if err != nil {
		return nil, err
	}
	cs.live = identity.NewLive(identity.New(set.identity))
	cs.overrides.Store(&set.overrides)
	cs.callbacks.Store(&set.callbacks)
	cs.listed = set.listed
	return cs, nil
}

func (cs *Clients) register(metrics prometheus.Registerer) {
	cs.reloads = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "forebay_clients_reloads_total",
		Help: "Readings of a clients file that had changed, or of any on SIGHUP: ok put it in force, failed left the clients as they were."}, []string{"outcome"})
	cs.ok = prometheus.NewGauge(prometheus.GaugeOpts{Name: "forebay_clients_file_ok",
		Help: "1: the clients in force are those of the clients file as it is; 0: the file is broken, and they are those of an earlier one."})
	metrics.MustRegister(cs.reloads, cs.ok)
	for _, outcome := range []string{"ok", "failed"} {
		cs.reloads.WithLabelValues(outcome)
	}
}

// Identity tells callers apart, always by the clients in force.
func (cs *Clients) Identity() httpapi.Identifier { return cs.live }

// Override is what a client has instead of its tier's; nil: nothing. The pointer stays the same over readings that don't change it.
func (cs *Clients) Override(client string) *admission.Override { return (*cs.overrides.Load())[client] }

// Callback is where a client wants to be told the ends of its jobs ("": only of those that say where), and its secrets, by the clients in
// force.
func (cs *Clients) Callback(client string) (url string, secrets []webhook.Secret) {
	c := (*cs.callbacks.Load())[client]
	return c.url, c.secrets
}

// lookEvery is how late a changed clients file may be noticed. A look costs one stat.
const lookEvery = time.Second

// Follow keeps up with the clients file, where there is one, until ctx ends: it looks each second,
// and on each SIGHUP of told. Any other signal, and any where there is no such file, is logged and
// does nothing else.
func (cs *Clients) Follow(ctx context.Context, told <-chan os.Signal) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	cs.Watch(ctx, tick.C, told)
}

// Watch is Follow with a clock of the caller's: at each tick it looks whether the file has changed,
// at each SIGHUP it reads it in any case. A broken file leaves the clients as they are, and is
// logged once.
func (cs *Clients) Watch(ctx context.Context, tick <-chan time.Time, told <-chan os.Signal) {
	file := cs.config.Identity.ClientsFile != ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick:
			if file && !cs.untouched() {
				cs.reload(false)
			}
		case s := <-told:
			if file && s == syscall.SIGHUP {
				cs.reload(true)
			} else {
				cs.log.Info("the signal changes nothing: no file is read again on it", "signal", s.String())
			}
		}
	}
}

// settled is how old a file's time must be at a reading to prove later that nothing was written since: file systems tell times
// as coarse as a second or two, and a file may be written twice within.
const settled = 2 * time.Second

// untouched reports whether the file is surely the one that was read last. Behind a symbolic link, as Kubernetes mounts it, it is
// the link's end that counts.
func (cs *Clients) untouched() bool {
	now, err := os.Stat(cs.config.Identity.ClientsFile)
	then := cs.last.info
	return err == nil && then != nil && os.SameFile(now, then) && now.Size() == then.Size() && now.ModTime().Equal(then.ModTime()) &&
		cs.last.at.Sub(then.ModTime()) > settled
}

// reload reads the file and puts it in force, if it says something new or must is set.
func (cs *Clients) reload(must bool) {
	was := cs.last.found
	text, err := cs.read()
	if cs.last.found == was && !must {
		return
	}
	var set clientSet
	if err == nil {
		set, err = cs.set(text)
	}
	path := cs.config.Identity.ClientsFile
	if err != nil {
		cs.reloads.WithLabelValues("failed").Inc()
		cs.ok.Set(0)
		cs.log.Error("clients file refused: the clients stay as they were", "file", path, "error", err)
		return
	}
	added, removed, changed := differences(cs.listed, set.listed)
	// A request sees both, or for a moment the old identity with the new overrides: never a new client without its own limits.
	cs.overrides.Store(&set.overrides)
	cs.callbacks.Store(&set.callbacks)
	cs.live.Replace(identity.New(set.identity))
	cs.listed = set.listed
	cs.reloads.WithLabelValues("ok").Inc()
	cs.ok.Set(1)
	cs.log.Info("clients file read", "file", path, "clients", len(set.identity.Clients), "added", added, "removed", removed, "changed", changed)
}

// read returns what the file holds, and notes what it found.
func (cs *Clients) read() (text []byte, err error) {
	cs.last = reading{at: time.Now()}
	f, err := os.Open(cs.config.Identity.ClientsFile)
	if err == nil {
		defer f.Close()
		if cs.last.info, err = f.Stat(); err == nil {
			text, err = io.ReadAll(io.LimitReader(f, config.MaxClientsFile+1))
		}
	}
	if err != nil {
		cs.last.info, cs.last.found = nil, err.Error()
		return nil, fmt.Errorf("identity.clients_file: %w", err)
	}
	sum := sha256.Sum256(text)
	cs.last.found = string(sum[:])
	return text, nil
}

func (cs *Clients) parse(text []byte) ([]config.Client, error) {
	file, err := config.ParseClients(cs.config.Identity.ClientsFile, text, cs.lookup, cs.config, conditions)
	if err != nil {
		return nil, err
	}
	return file.Clients, nil
}

func (cs *Clients) set(text []byte) (clientSet, error) {
	extra, err := cs.parse(text)
	if err != nil {
		return clientSet{}, err
	}
	return cs.compile(extra)
}

// clientSet is what is put in force together.
type clientSet struct {
	identity  identity.Config
	overrides map[string]*admission.Override
	callbacks map[string]callback
	listed    map[string]config.Client
}

// compile brings the config's clients and extra ones into the forms of those who ask for them.
func (cs *Clients) compile(extra []config.Client) (clientSet, error) {
	c := cs.config
	set := clientSet{
		identity: identity.Config{Anonymous: c.Identity.Anonymous, TrustedProxies: c.HTTP.TrustedProxies, Header: c.HTTP.ClientIPHeader,
			IPv6Prefix: c.HTTP.IPv6Prefix, CountryHeader: c.Identity.CountryHeader, Countries: cs.countries, Untrusted: cs.warnUntrusted},
		overrides: map[string]*admission.Override{},
		callbacks: map[string]callback{},
		listed:    map[string]config.Client{},
	}
	for _, client := range slices.Concat(c.Identity.Clients, extra) {
		registered := identity.Registered{Name: client.Name, Tier: client.Tier}
		for _, digest := range client.KeySHA256 {
			registered.Keys = append(registered.Keys, identity.Digest(digest))
		}
		set.identity.Clients = append(set.identity.Clients, registered)
		set.listed[client.Name] = client
		if own, err := callbackOf(client); err != nil {
			return clientSet{}, err
		} else if len(own.secrets) > 0 {
			set.callbacks[client.Name] = own
		}
		if client.Weight == 0 && len(client.Limits) == 0 {
			continue
		}
		if was, ok := cs.listed[client.Name]; ok && was.Weight == client.Weight && reflect.DeepEqual(was.Limits, client.Limits) {
			set.overrides[client.Name] = cs.Override(client.Name)
			continue
		}
		limits, err := rules(c, "client:"+client.Name, client.Limits)
		if err != nil {
			return clientSet{}, err
		}
		set.overrides[client.Name] = &admission.Override{Weight: client.Weight, Limits: limits}
	}
	return set, nil
}

// warnUntrusted logs, once, that a proxy is most likely missing from the config: its callers all count as one.
func (cs *Clients) warnUntrusted(peer netip.Addr, header string) {
	cs.untrusted.Do(func() {
		cs.log.Warn("a peer on a private address names callers, and isn't believed: if it is your proxy, name it in http.trusted_proxies",
			"peer", peer.String(), "header", header)
	})
}

// differences counts the clients that came, went and are not as they were.
func differences(was, is map[string]config.Client) (added, removed, changed int) {
	for name, client := range is {
		switch old, known := was[name]; {
		case !known:
			added++
		case !reflect.DeepEqual(old, client):
			changed++
		}
	}
	for name := range was {
		if _, still := is[name]; !still {
			removed++
		}
	}
	return added, removed, changed
}
