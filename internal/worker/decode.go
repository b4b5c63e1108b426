package worker

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"io"
	"net/http"
	"strings"
)

// decode undoes the compression of a backend that compresses although asked not to: a result goes to clients that were never asked what
// they can read. What it can't undo stays as it came, and h, the answer's head, goes on saying so: other codings than gzip and deflate,
// several of them, and bytes that aren't what h says. most bounds the bytes that come out: a small answer may hold a huge one.
func (a *answer) decode(h http.Header, most int64) {
	coding := strings.ToLower(strings.TrimSpace(strings.Join(h["Content-Encoding"], ",")))
	if coding == "" {
		return
	}
	h.Set("Content-Encoding", coding) // one line, so that all of it is kept
	if coding != "identity" && len(a.Body) > 0 {
		r, err := decoder(coding, a.Body)
		if err != nil {
			return
		}
		plain, err := io.ReadAll(io.LimitReader(r, most+1))
		switch {
		case int64(len(plain)) > most:
			a.Body, a.Whole, a.TooLarge = nil, false, true
			return
		case err != nil:
			return
		}
		a.Body = plain
		if tag := h.Get("ETag"); strings.HasPrefix(tag, `"`) {
			h.Set("ETag", "W/"+tag) // RFC 9110, section 8.8.1: a strong one is of the bytes as they came
		}
	}
	h.Del("Content-Encoding")
}

func decoder(coding string, body []byte) (io.Reader, error) {
	switch coding {
	case "gzip", "x-gzip":
		return gzip.NewReader(bytes.NewReader(body))
	case "deflate": // RFC 9110, section 8.4.1.2: with zlib's wrapping, which some leave out
		if r, err := zlib.NewReader(bytes.NewReader(body)); err == nil {
			return r, nil
		}
		return flate.NewReader(bytes.NewReader(body)), nil
	}
	return nil, errors.ErrUnsupported
}
