//go:build armbe || arm64be || m68k || mips || mips64 || mips64p32 || ppc || ppc64 || s390 || s390x || shbe || sparc || sparc64

package dtype

// Buffers go to the wire as they lie in memory, little-endian. An undefined name is how a build can be refused.
const _ = goccl_needs_a_little_endian_host
