// Package adminapi is the admin API: the handlers of the listener that operators, collectors of
// metrics and probes use, and the guard before them. It knows the public server in the same process
// only as a Front.
package adminapi
