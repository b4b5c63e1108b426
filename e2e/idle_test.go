package e2e

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"time"
)

// idle N URL
//
// opens N connections to the host of the URL and sends nothing on them until the story ends.
func idleCommand(s *story, args []string) error {
	if len(args) != 2 {
		return errors.New("usage: idle N URL")
	}
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	u, err := url.Parse(args[1])
	if err != nil {
		return err
	}
	for i := range n {
		conn, err := net.DialTimeout("tcp", u.Host, 10*time.Second)
		if err != nil {
			return fmt.Errorf("connection %d: %w", i+1, err)
		}
		s.t.Cleanup(func() { conn.Close() })
	}
	return nil
}
