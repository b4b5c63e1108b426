package httpapi

import (
	"time"

	"github.com/forebay/forebay/internal/web"
)

// The parts of the package that the tests of package httpapi_test use.

const (
	HeldWait    = heldWait
	HeldStream  = heldStream
	Piece       = piece
	SmallAnswer = smallAnswer
	BoundAll    = boundAll
	BoundClient = boundClient
	MaxWait     = maxWait
	StreamLife  = web.StreamLife
	FewerFrom   = web.FewerFrom
	FewerTo     = web.FewerTo
)

func UUIDOf(id string) string { return uuidOf(id) }

// HeldAnswers is how many answers of a kind are held back.
func (s *Server) HeldAnswers(kind string) int { return s.waits.held(kind) }

// Holders is how many names held answers count under.
func (s *Server) Holders() int { return len(s.waits.holders) }

// BoundHeldAnswers replaces the bounds on held answers.
func (s *Server) BoundHeldAnswers(all, client, anonymous, address, network int) {
	s.waits = newWaits(heldBounds{all, client, anonymous, address, network})
}

// UnreadBytes is how many bytes of answers are unread.
func (s *Server) UnreadBytes() int { return s.unread.under(everyone) }

// QuarterUnread replaces the bounds on unread answers: there is room for one of n bytes of each
// client and address, and for four of all.
func (s *Server) QuarterUnread(n int) {
	s.unread.bounds = heldBounds{all: 4 * n, client: n, anonymous: 8 * n, address: n,
		network: 8 * n}
}

// BodyBytes is how many bytes are reserved for bodies.
func (s *Server) BodyBytes() int64 { return s.bodies.Held() }

// Parsing has a value for each large body that is being parsed.
func (s *Server) Parsing() chan struct{} { return s.parsing }

// ListReaders is how many requests for lists have a turn or wait for one.
func (s *Server) ListReaders() int { return s.lists.Users() }

// SetStreams replaces how often a silent stream sends a comment, and how long one may last.
func (s *Server) SetStreams(beat, life time.Duration) { s.beat, s.life = beat, life }

// SetPatience replaces how long a client may take for a piece of a result.
func (s *Server) SetPatience(d time.Duration) {
	s.patience = func(int) time.Duration { return d }
}
