// Package faults is a campaign of real faults against real processes. It has tests only.
//
// Each test starts ranks with the code of goccl launch, does something to them, and checks what they report: who they blame
// and how soon, whether the survivors go on with right results, and whether anything is left behind.
//
// By default each scenario runs a few times. Flags, after the package's name, make it long, and -v shows what was measured:
//
//	go test ./faults -run TestKill -trials 300 -timeout 1h -v            # how long detection took
//	go test ./faults -run 'Stop|BlackHole|Death|Exit' -trials 50 -timeout 1h
//	go test ./faults -run TestCut -trials 200 -timeout 1h
//	go test ./faults -run TestStaggered -trials 1000 -timeout 1h
//	go test ./faults -run 'Link|Packets|Partition' -namespaces -trials 20 -timeout 1h
//	go test ./faults -run TestHostile -strangers 10000 -timeout 1h -v
//	go test ./faults -run TestSoak -calls 100000 -groups 1000 -timeout 1h -v
//	go test ./faults -run TestIdle -idle 60s -v
//
// The tests in network namespaces need root, ip and nft; where these are missing they are left out unless -namespaces says that
// this is a failure.
package faults
