package adminapi

import (
	"cmp"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/jobview"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/web"
	"github.com/forebay/forebay/internal/webhook"
)

// deliveriesOf answers GET /admin/v1/jobs/{id}/deliveries.
func (s *Server) deliveriesOf(c *web.Call) error {
	id, err := s.deliverable(c)
	if err != nil {
		return err
	}
	answer := api.Deliveries{Deliveries: []api.Delivery{}}
	switch d, err := s.Deliveries.Read(c.Ctx, id); {
	case err == nil: // it may have outlived its job
		answer.Deliveries = append(answer.Deliveries, deliveryView(d))
	case !errors.Is(err, webhook.ErrNone):
		return web.StoreError(err)
	default:
		if _, _, err := s.anyJob(c); err != nil {
			return err
		}
	}
	return c.JSON(http.StatusOK, answer)
}

// deliverable is the id in the path, of a job that may have a delivery.
func (s *Server) deliverable(c *web.Call) (id string, err error) {
	id = c.Var("id")
	if backend, ok := jobs.ParseID(id); !ok || s.Lines[backend] == nil || s.Deliveries == nil {
		return "", jobview.UnknownJob()
	}
	return id, nil
}

// redeliver answers POST /admin/v1/jobs/{id}/redeliver.
func (s *Server) redeliver(c *web.Call) error {
	id, err := s.deliverable(c)
	if err != nil {
		return err
	}
	was, err := s.Deliveries.Read(c.Ctx, id)
	if err != nil && !errors.Is(err, webhook.ErrNone) {
		return web.StoreError(err)
	}
	backend, _ := jobs.ParseID(id)
	switch look, err := s.Lines[backend].Look(c.Ctx, id); {
	case errors.Is(err, leaky.ErrUnknownJob) && was.URL != "":
		// The record of the delivery has outlived the job.
	case err != nil:
		return jobview.LookError(err)
	case look.Job.Callback == "":
		return web.Problem(http.StatusConflict, api.CodeNoCallback,
			"The job has no callback URL.")
	case !look.Standing.State.Final(): // perhaps again
		return web.Problem(http.StatusConflict, api.CodeNotFinished,
			"The job is "+look.Standing.State.Public()+": its webhook is sent when it has ended.")
	}
	err = s.Deliveries.Redeliver(c.Ctx, id)
	s.audit(c, "webhook redelivered", err, slog.String("job_id", id),
		slog.String("was", string(was.State)), slog.Int("attempts", was.Attempts))
	if err != nil {
		return web.StoreError(err)
	}
	d, err := s.Deliveries.Read(c.Ctx, id)
	if errors.Is(err, webhook.ErrNone) {
		// It was delivered meanwhile, and its record is gone.
		d, err = webhook.Delivery{JobID: id, State: webhook.Pending}, nil
	}
	if err != nil {
		return web.StoreError(err)
	}
	return c.JSON(http.StatusAccepted, deliveryView(d))
}

// listDeliveries answers GET /admin/v1/deliveries.
func (s *Server) listDeliveries(c *web.Call) error {
	l, err := s.parseDeliveries(c.R.URL.RawQuery)
	if err != nil {
		return err
	}
	leave, err := s.listTurn(c)
	if err != nil {
		return err
	}
	defer leave()
	answer := api.Deliveries{Deliveries: []api.Delivery{}}
	for range maxListCalls {
		if l.end() || len(answer.Deliveries) == l.limit {
			break
		}
		page, next, err := s.Deliveries.List(c.Ctx, l.backend, webhook.State(l.list), l.cursor,
			l.limit-len(answer.Deliveries))
		if errors.Is(err, webhook.ErrCursor) {
			return web.WrongCursor()
		}
		if err != nil {
			return web.StoreError(err)
		}
		for _, d := range page {
			answer.Deliveries = append(answer.Deliveries, deliveryView(d))
		}
		l.moved(next)
	}
	answer.NextCursor = l.next()
	return c.JSON(http.StatusOK, answer)
}

// deliveryListing is a walk over deliveries in one state.
type deliveryListing struct {
	walk
	limit int
}

func (s *Server) parseDeliveries(raw string) (*deliveryListing, error) {
	asked, err := web.ParseQuery(raw, "backend", "state", "cursor", "limit")
	if err != nil {
		return nil, err
	}
	state := cmp.Or(webhook.State(asked["state"]), webhook.Failed)
	if state != webhook.Failed && state != webhook.Pending {
		return nil, web.InvalidRequest("Deliveries are listed by state failed (disabled ones " +
			"too) or pending. Those that arrived are found by their job alone.")
	}
	l := &deliveryListing{}
	if l.walk, err = s.walkOver(asked["backend"], string(state)); err != nil {
		return nil, err
	}
	if s.Deliveries == nil {
		l.backends = nil
	}
	if l.limit, err = web.PageLimit(asked["limit"], webhook.MaxPage); err != nil {
		return nil, err
	}
	return l, l.begin(asked["cursor"])
}

// deliveryView is a delivery as an operator sees it.
func deliveryView(d webhook.Delivery) api.Delivery {
	backend, _ := jobs.ParseID(d.JobID)
	v := api.Delivery{JobID: d.JobID, Backend: backend, Client: d.Client, URL: d.URL,
		WebhookID: d.MessageID, Type: d.Type, State: string(d.State), Attempts: d.Attempts,
		NextAttemptAt: web.Time(d.NextAt), GivenUpAt: web.Time(d.GivenUpAt),
		ExpiresAt: web.Time(d.ExpiresAt), Log: []api.DeliveryAttempt{}}
	for _, a := range d.Log {
		v.Log = append(v.Log, api.DeliveryAttempt{At: api.Time{Time: a.At}, Status: a.Status,
			Seconds: a.Took.Round(time.Millisecond).Seconds(), Error: a.Word})
	}
	return v
}
