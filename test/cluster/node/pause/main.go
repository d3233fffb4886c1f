// Command pause is the first process of a process namespace: of the cluster's own and of every pod sandbox.
// It holds the namespace open and collects processes whose parents have gone.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	wake := make(chan os.Signal, 8)
	signal.Notify(wake, syscall.SIGCHLD, syscall.SIGTERM, syscall.SIGINT)
	for (<-wake) == syscall.SIGCHLD {
		for pid := 1; pid > 0; { // several exits may share one signal
			pid, _ = syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		}
	}
}
