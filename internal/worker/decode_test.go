package worker

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"io"
	"net/http"
	"testing"

	"github.com/forebay/forebay/internal/jobs"
)

func packed(t *testing.T, pack io.WriteCloser, into *bytes.Buffer, text string) string {
	t.Helper()
	if _, err := io.WriteString(pack, text); err != nil {
		t.Fatal(err)
	}
	if err := pack.Close(); err != nil {
		t.Fatal(err)
	}
	return into.String()
}

func gzipped(t *testing.T, text string) string {
	var b bytes.Buffer
	return packed(t, gzip.NewWriter(&b), &b, text)
}

// Case N25.
//
// An answer that is compressed although asked not to is kept readable: decompressed, or with its
// Content-Encoding.
func TestACompressedAnswerIsKeptReadable(t *testing.T) {
	t.Parallel()
	const hello = `{"hello":"world"}`
	var zlibbed, flated bytes.Buffer
	raw, err := flate.NewWriter(&flated, 9)
	if err != nil {
		t.Fatal(err)
	}
	zipped := gzipped(t, hello)
	packed(t, zlib.NewWriter(&zlibbed), &zlibbed, hello)
	packed(t, raw, &flated, hello)
	for name, c := range map[string]struct {
		codings       []string
		sent          string
		body, says    string
		tag, tagAfter string
	}{
		"gzip":                 {[]string{"gzip"}, zipped, hello, "", `"v1"`, `W/"v1"`},
		"gzip by another name": {[]string{" X-GZip "}, zipped, hello, "", `W/"v1"`, `W/"v1"`},
		"deflate":              {[]string{"deflate"}, zlibbed.String(), hello, "", "", ""},
		"deflate, bare":        {[]string{"deflate"}, flated.String(), hello, "", "", ""},
		"identity":             {[]string{"identity"}, hello, hello, "", `"v1"`, `"v1"`},
		"nothing, compressed":  {[]string{"gzip"}, "", "", "", "", ""},
		"br": {[]string{"br"}, "\x0b\x02\x80\x03", "\x0b\x02\x80\x03", "br",
			`"v1"`, `"v1"`},
		"compressed twice":      {[]string{"br", "gzip"}, zipped, zipped, "br,gzip", "", ""},
		"plain, though it says": {[]string{"gzip"}, hello, hello, "gzip", "", ""},
		"cut off": {[]string{"gzip"}, zipped[:len(zipped)-9], zipped[:len(zipped)-9],
			"gzip", "", ""},
	} {
		for _, status := range []int{200, 404} {
			a, err := call(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header()["Content-Encoding"] = c.codings
				w.Header().Set("ETag", c.tag)
				w.WriteHeader(status)
				io.WriteString(w, c.sent)
			}, nil)
			fields := a.Fields.Map()
			if err != nil || !a.Whole || string(a.Body) != c.body ||
				fields["Content-Encoding"] != c.says || fields["Etag"] != c.tagAfter {
				t.Errorf("%s: %q, with %v, %v; want %q with %q", name, a.Body, fields, err, c.body,
					c.says)
			}
			if v := judge(a, err, 1, testPolicy, 0); v.Result.Fields != a.Fields ||
				v.Result.Size != int64(len(c.body)) {
				t.Errorf("%s: kept %+v", name, v.Result)
			}
		}
	}
}

// max_result bounds the decompressed bytes.
func TestACompressedAnswerIsBoundedByItsDecompressedBytes(t *testing.T) {
	t.Parallel()
	for size, tooLarge := range map[int]bool{1000: false, 1001: true, 500_000: true} {
		sent := gzipped(t, string(make([]byte, size)))
		a, err := call(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			io.WriteString(w, sent)
		}, func(op *operation) { op.maxResult = 1000 })
		if err != nil || a.TooLarge != tooLarge || a.Whole == tooLarge ||
			(a.Body == nil) != tooLarge {
			t.Errorf("%d bytes: %d kept, too large %v, %v", size, len(a.Body), a.TooLarge, err)
		}
		if v := judge(a, err, 1, testPolicy, 0); tooLarge &&
			v.Failure.Code != jobs.CodeResultTooLarge {
			t.Errorf("%d bytes: %+v", size, v)
		}
	}
}
