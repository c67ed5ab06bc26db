package tcp

// A network is what start-up asks the machine for; tests put a fake in its place.
type network struct{}
