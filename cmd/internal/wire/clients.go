package wire

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"reflect"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forebay/forebay/internal/admission"
	"github.com/forebay/forebay/internal/clients"
	"github.com/forebay/forebay/internal/config"
	"github.com/forebay/forebay/internal/identity"
	"github.com/forebay/forebay/internal/webhook"
)

// Clients are the clients of the config and of the clients file, which can change at any time, with
// the settings that override those of their tiers. Safe for concurrent use, as clients.File is.
type Clients struct{ *clients.File[clientSet] }

// clientSet is all clients that are in force at one time.
type clientSet struct {
	identity  *identity.Identifier
	overrides map[string]*admission.Override
	callbacks map[string]config.Callback
	listed    map[string]config.Client // by name, as their files have them
}

// NewClients reads the clients file and the country database, if the config has them. Its errors
// name file, line and mend. It registers the file's metrics.
func NewClients(c *config.Config, lookup func(string) (string, bool),
	metrics prometheus.Registerer, log *slog.Logger) (*Clients, error) {
	all := &clientReader{config: c, lookup: lookup, log: log}
	if path := c.Identity.CountryDatabase; path != "" {
		countries, err := identity.OpenCountries(path)
		if err != nil {
			return nil, fmt.Errorf("identity.country_database: %w", err)
		}
		all.countries = countries
	}
	file, err := clients.Open(clients.Config[clientSet]{Path: c.Identity.ClientsFile,
		MaxSize: config.MaxClientsFile, Read: all.read, Metrics: metrics, Log: log})
	if err != nil {
		return nil, err
	}
	return &Clients{file}, nil
}

// Identify returns the client that sent r, as identity.Identifier.Identify does, by the clients in
// force.
func (cs *Clients) Identify(r *http.Request) (identity.Client, error) {
	return cs.Current().identity.Identify(r)
}

// FromProxy reports whether r comes from a trusted proxy.
func (cs *Clients) FromProxy(r *http.Request) bool { return cs.Current().identity.FromProxy(r) }

// Override returns the settings that a client has instead of its tier's; nil: none. The pointer
// stays the same until a reading changes them.
func (cs *Clients) Override(client string) *admission.Override {
	return cs.Current().overrides[client]
}

// Callback returns a client's URL for webhooks ("": only those of its jobs), and its secrets.
func (cs *Clients) Callback(client string) (url string, secrets []webhook.Secret) {
	c := cs.Current().callbacks[client]
	return c.URL, c.Secrets
}

// clientReader makes sets of clients of a config and the texts of its clients file.
type clientReader struct {
	config    *config.Config
	lookup    func(string) (string, bool)
	countries identity.CountryDatabase // nil: none
	log       *slog.Logger

	untrusted sync.Once // for the one line of log
}

// read is clients.Config.Read.
func (r *clientReader) read(text []byte, was *clientSet) (*clientSet, clients.Changes, error) {
	all := r.config.Identity.Clients
	if path := r.config.Identity.ClientsFile; path != "" {
		file, err := config.ParseClients(path, text, r.lookup, r.config)
		if err != nil {
			return nil, clients.Changes{}, err
		}
		all = slices.Concat(all, file.Clients)
	}
	if was == nil {
		was = &clientSet{}
	}
	set, err := r.compile(all, was)
	if err != nil {
		return nil, clients.Changes{}, err
	}
	return set, clients.Compare(was.listed, set.listed), nil
}

// compile brings all clients into the forms that requests need. An override that didn't change is
// that of the set that was.
func (r *clientReader) compile(all []config.Client, was *clientSet) (*clientSet, error) {
	c := r.config
	callers := identity.Config{
		Anonymous:      c.Identity.Anonymous,
		TrustedProxies: c.HTTP.TrustedProxies,
		Header:         c.HTTP.ClientIPHeader,
		IPv6Prefix:     c.HTTP.IPv6Prefix,
		CountryHeader:  c.Identity.CountryHeader,
		Countries:      r.countries,
		Untrusted:      r.warnUntrusted,
	}
	set := &clientSet{
		overrides: map[string]*admission.Override{},
		callbacks: map[string]config.Callback{},
		listed:    map[string]config.Client{},
	}
	for _, client := range all {
		callers.Clients = append(callers.Clients,
			identity.Registered{Name: client.Name, Tier: client.Tier, Keys: client.KeySHA256})
		set.listed[client.Name] = client
		if len(client.Callback.Secrets) > 0 {
			set.callbacks[client.Name] = client.Callback
		}
		if client.Weight == 0 && len(client.Limits) == 0 {
			continue
		}
		if old, known := was.listed[client.Name]; known && old.Weight == client.Weight &&
			reflect.DeepEqual(old.Limits, client.Limits) {
			set.overrides[client.Name] = was.overrides[client.Name]
			continue
		}
		limits, err := rules(c, "client:"+client.Name, client.Limits)
		if err != nil {
			return nil, err
		}
		set.overrides[client.Name] = &admission.Override{Weight: client.Weight, Limits: limits}
	}
	set.identity = identity.New(callers)
	return set, nil
}

// warnUntrusted logs, once, that a proxy is most likely missing from the config: its callers all
// count as one.
func (r *clientReader) warnUntrusted(peer netip.Addr, header string) {
	r.untrusted.Do(func() {
		r.log.Warn("a peer on a private address names callers, and isn't believed: "+
			"if it is your proxy, name it in http.trusted_proxies",
			"peer", peer.String(), "header", header)
	})
}
