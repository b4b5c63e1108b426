//go:build !race

package httpapi

const raced = false
