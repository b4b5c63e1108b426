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

// decode decompresses the answer of a backend that compresses although asked not to: not every
// client can read compressed bytes. It leaves the answer as it is, with Content-Encoding in its
// header h, for codings other than gzip and deflate, for several codings, and for malformed bytes.
// most bounds the decompressed bytes, because a small answer may expand to a huge one.
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
			// A strong one is for the bytes as sent (RFC 9110, section 8.8.1).
			h.Set("ETag", "W/"+tag)
		}
	}
	h.Del("Content-Encoding")
}

func decoder(coding string, body []byte) (io.Reader, error) {
	switch coding {
	case "gzip", "x-gzip":
		return gzip.NewReader(bytes.NewReader(body))
	case "deflate": // in zlib's format, which some omit (RFC 9110, section 8.4.1.2)
		if r, err := zlib.NewReader(bytes.NewReader(body)); err == nil {
			return r, nil
		}
		return flate.NewReader(bytes.NewReader(body)), nil
	}
	return nil, errors.ErrUnsupported
}
