// Command api is Forebay's front: it answers clients and operators. With worker.embedded: true in
// its config, or without a config, it also drains the lines.
package main

import (
	"github.com/forebay/forebay/cmd/internal/front"
	"github.com/forebay/forebay/cmd/internal/wire"
)

func main() { wire.Main(front.Run) }
