package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/url"
	"strconv"

	"github.com/forebay/forebay/api"
)

// List selects some of the caller's jobs. The zero value selects all.
type List struct {
	Status    string // api.Queued or another status; "": any
	Operation string // "": any
	Limit     int    // jobs on a page, 1 to 200; 0: the server's default
	Cursor    string // NextCursor of the previous page; "": the first page
}

func (l List) call() call {
	query := url.Values{}
	fields := map[string]string{
		"status": l.Status, "operation": l.Operation, "cursor": l.Cursor,
	}
	for name, value := range fields {
		if value != "" {
			query.Set(name, value)
		}
	}
	if l.Limit != 0 {
		query.Set("limit", strconv.Itoa(l.Limit))
	}
	out := call{method: "GET", path: jobsPath}
	if len(query) > 0 {
		out.path += "?" + query.Encode()
	}
	return out
}

// List returns one page of the caller's jobs that the server still has, newest first. Only the last
// page has no NextCursor; another page may be short, but isn't empty: if the server stops before it
// has found a job, List continues. Each of its requests is tried again like any other. Jobs that
// end or are created while pages are fetched move no other job from page to page.
func (c *Client) List(ctx context.Context, list List) (*api.JobList, error) {
	for {
		page, err := c.page(ctx, list)
		if err != nil || len(page.Jobs) > 0 || page.NextCursor == "" {
			return page, err
		}
		list.Cursor = page.NextCursor
	}
}

func (c *Client) page(ctx context.Context, list List) (*api.JobList, error) {
	call := list.call()
	a, err := c.do(ctx, call)
	if err != nil {
		return nil, err
	}
	var page api.JobList
	if json.Unmarshal(a.body, &page) != nil || page.Jobs == nil ||
		page.NextCursor != "" && page.NextCursor == list.Cursor {
		return nil, a.foreign(call) // a repeated cursor would never end
	}
	return &page, nil
}

// Jobs iterates over the caller's jobs, newest first, from list.Cursor on, and fetches each page
// when it is needed. It ends after the last job, or with an error and the zero job.
func (c *Client) Jobs(ctx context.Context, list List) iter.Seq2[api.Job, error] {
	return func(yield func(api.Job, error) bool) {
		for list := list; ; {
			page, err := c.List(ctx, list)
			if err != nil {
				yield(api.Job{}, err)
				return
			}
			for _, job := range page.Jobs {
				if !yield(job, nil) {
					return
				}
			}
			if list.Cursor = page.NextCursor; list.Cursor == "" {
				return
			}
		}
	}
}
