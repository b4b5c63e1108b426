package webhook

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// result is the result of one attempt.
type result struct {
	at         time.Time
	took       time.Duration
	status     int           // 0: there was no answer
	word       string        // why there was none
	retryAfter time.Duration // what the receiver asked for
}

// post makes one attempt. It doesn't follow redirects, because their targets were never permitted.
// It discards the answer's body, and reads only so much of it that the connection can be reused.
func (s *Sender) post(ctx context.Context, r record, secrets []Secret) result {
	out := result{at: time.Now()}
	ctx, cancel := context.WithTimeout(ctx, s.Policy.Timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url, bytes.NewReader(r.body))
	if err != nil {
		out.word = wordURL
		return out
	}
	request.Header = http.Header{
		"Content-Type":      {"application/json"},
		"User-Agent":        {"Forebay-Webhook"},
		"Webhook-Id":        {r.message},
		"Webhook-Timestamp": {strconv.FormatInt(out.at.Unix(), 10)},
		"Webhook-Signature": {Sign(secrets, r.message, out.at, r.body)},
	}
	answer, err := s.transport.RoundTrip(request)
	out.took = time.Since(out.at)
	if err != nil {
		out.word = word(err)
		return out
	}
	out.status, out.retryAfter = answer.StatusCode,
		retryAfter(answer.Header.Get("Retry-After"), time.Now())
	_, _ = io.CopyN(io.Discard, answer.Body, maxAnswer)
	answer.Body.Close()
	return out
}

func (r result) delivered() bool { return r.status >= 200 && r.status <= 299 }

// retryAfter reads a Retry-After field: seconds or a date. It returns 0 for any other text.
func retryAfter(text string, now time.Time) time.Duration {
	text = strings.TrimSpace(text)
	if n, err := strconv.ParseUint(text, 10, 32); err == nil {
		return time.Duration(n) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(at.Sub(now), 0)
	}
	return 0
}
