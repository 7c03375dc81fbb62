//go:build slim

package providers

import "fmt"

// without is the error of a choice that the build tag slim has left out of this program.
func without(tag string) error {
	return fmt.Errorf("this worker was built without %s: build it with the tag %s, or without the tag slim", tag, tag)
}
