package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/url"
	"strconv"

	"github.com/forebay/forebay/api"
)

// List says which of the caller's jobs are wanted. The zero value says all.
type List struct {
	Status    string // api.Queued and its like; "": any
	Operation string // "": any
	Limit     int    // jobs on a page, 1 to 200; 0: as many as the server finds right
	Cursor    string // NextCursor of the page before; "": the first page
}

func (l List) call() call {
	query := url.Values{}
	for name, value := range map[string]string{"status": l.Status, "operation": l.Operation, "cursor": l.Cursor} {
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

// List returns one page of the caller's jobs, newest first, as long as the server keeps them. A page may
// be short and not be the last: the last has no NextCursor. A page without a job is the last, since
// List goes on where the server had to stop before it found one; each of its requests is tried again
// like any other. A job that ends or comes while pages are fetched shifts no other one over a page's end.
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
	if json.Unmarshal(a.body, &page) != nil || page.Jobs == nil || page.NextCursor != "" && page.NextCursor == list.Cursor {
		return nil, a.foreign(call) // a cursor that leads to itself would never end
	}
	return &page, nil
}

// Jobs goes over the caller's jobs, newest first, from list.Cursor on, and fetches a page when it gets there. It ends after the last job, or with an
// error and the zero job.
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
