// Command herd draws docs/clients-herd.svg: 1,000 clients that were refused together, coming back with each jitter of package client.
// Run it at the root of the repository:
//
//	go run ./docs/herd
//
// The waits are the client's own (client.Backoff), drawn from a fixed seed under simulated time, so the picture is the same each time. A test
// holds the one in docs/ against what this program draws.
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

// run has the clients come back in each way.
func run() []way {
	ways := []way{{name: "no jitter", jitter: client.None}, {name: "equal jitter", jitter: client.Equal}, {name: "full jitter", jitter: client.Full}}
	for i := range ways {
		ways[i].run()
	}
	return ways
}
