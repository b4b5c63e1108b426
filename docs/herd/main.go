// Command herd draws docs/clients-herd.svg: 1,000 clients, refused together, that come back with
// each jitter of package client. Run it at the root of the repository:
//
//	go run ./docs/herd
//
// The waits are the client's own (client.Backoff), drawn from a fixed seed under simulated time. So
// the picture is the same each time. A test compares the one in docs/ with the output of this
// program.
package main

import (
	"fmt"
	"os"

	"github.com/forebay/forebay/client"
)

const picture = "docs/clients-herd.svg"

func main() {
	if err := os.WriteFile(picture, draw(run()), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, "herd:", err)
		os.Exit(1)
	}
}

// run simulates each way.
func run() []way {
	ways := []way{
		{name: "no jitter", jitter: client.None},
		{name: "equal jitter", jitter: client.Equal},
		{name: "full jitter", jitter: client.Full},
	}
	for i := range ways {
		ways[i].run()
	}
	return ways
}
