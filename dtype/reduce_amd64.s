//go:build !purego

#include "textflag.h"

// Every function trusts its caller: n is a multiple of 16 and not 0. reduce_amd64.go shows the Go loop that each one equals.
// Pointers may be unaligned; dst may be a or b. Constants are broadcast before the loop, results blended with the canonical
// NaN where they compare unordered with themselves.

#define BROADCAST32(value, X, Y) \
	MOVL $value, AX; \
	VMOVD AX, X; \
	VPBROADCASTD X, Y

#define BROADCAST64(value, X, Y) \
	MOVQ $value, AX; \
	VMOVQ AX, X; \
	VPBROADCASTQ X, Y

// CANONICAL32(v, m) replaces the NaNs of v by those of Y15; m is lost.
#define CANONICAL32(v, m) \
	VCMPPS $3, v, v, m; \
	VBLENDVPS m, Y15, v, v

#define CANONICAL64(v, m) \
	VCMPPD $3, v, v, m; \
	VBLENDVPD m, Y15, v, v

// func sumF32AVX2(dst, a, b *float32, n int)
TEXT ·sumF32AVX2(SB), NOSPLIT, $0-32
	MOVQ dst+0(FP), DI
	MOVQ a+8(FP), SI
	MOVQ b+16(FP), DX
	MOVQ n+24(FP), CX
	BROADCAST32(0x7fc00000, X15, Y15)
loop:
	VMOVUPS (SI), Y0
	VMOVUPS 32(SI), Y1
	VADDPS (DX), Y0, Y0
	VADDPS 32(DX), Y1, Y1
	CANONICAL32(Y0, Y2)
	CANONICAL32(Y1, Y3)
	VMOVUPS Y0, (DI)
	VMOVUPS Y1, 32(DI)
	ADDQ $64, SI
	ADDQ $64, DX
	ADDQ $64, DI
	SUBQ $16, CX
	JNE loop
	VZEROUPPER
	RET

// func sumF64AVX2(dst, a, b *float64, n int)
TEXT ·sumF64AVX2(SB), NOSPLIT, $0-32
	MOVQ dst+0(FP), DI
	MOVQ a+8(FP), SI
	MOVQ b+16(FP), DX
	MOVQ n+24(FP), CX
	BROADCAST64(0x7ff8000000000000, X15, Y15)
loop:
	VMOVUPD (SI), Y0
	VMOVUPD 32(SI), Y1
	VADDPD (DX), Y0, Y0
	VADDPD 32(DX), Y1, Y1
	CANONICAL64(Y0, Y2)
	CANONICAL64(Y1, Y3)
	VMOVUPD Y0, (DI)
	VMOVUPD Y1, 32(DI)
	ADDQ $64, SI
	ADDQ $64, DX
	ADDQ $64, DI
	SUBQ $8, CX
	JNE loop
	VZEROUPPER
	RET

// func sumF16F16C(dst, a, b *uint16, n int)
TEXT ·sumF16F16C(SB), NOSPLIT, $0-32
	MOVQ dst+0(FP), DI
	MOVQ a+8(FP), SI
	MOVQ b+16(FP), DX
	MOVQ n+24(FP), CX
	BROADCAST32(0x7fc00000, X15, Y15)
loop:
	VCVTPH2PS (SI), Y0
	VCVTPH2PS 16(SI), Y1
	VCVTPH2PS (DX), Y2
	VCVTPH2PS 16(DX), Y3
	VADDPS Y2, Y0, Y0
	VADDPS Y3, Y1, Y1
	CANONICAL32(Y0, Y2)
	CANONICAL32(Y1, Y3)
	VCVTPS2PH $0, Y0, (DI)
	VCVTPS2PH $0, Y1, 16(DI)
	ADDQ $32, SI
	ADDQ $32, DX
	ADDQ $32, DI
	SUBQ $16, CX
	JNE loop
	VZEROUPPER
	RET

// ROUNDBF16(v, t, one, half) leaves the rounded bf16 in the upper half of each 32-bit lane of v, with garbage below; t is
// lost. Of NaNs only the canonical one survives. one and half are broadcasts of 1 and 0x7fff.
#define ROUNDBF16(v, t, one, half) \
	VPSRLD $16, v, t; \
	VPAND one, t, t; \
	VPADDD half, t, t; \
	VPADDD t, v, v

// Elements with even and with odd index are added apart, each as the upper half of a float32 lane: no shuffles.
//
// func sumBF16AVX2(dst, a, b *uint16, n int)
TEXT ·sumBF16AVX2(SB), NOSPLIT, $0-32
	MOVQ dst+0(FP), DI
	MOVQ a+8(FP), SI
	MOVQ b+16(FP), DX
	MOVQ n+24(FP), CX
	BROADCAST32(0x7fc00000, X15, Y15)
	BROADCAST32(0xffff0000, X14, Y14)
	BROADCAST32(1, X13, Y13)
	BROADCAST32(0x7fff, X12, Y12)
loop:
	VMOVDQU (SI), Y0
	VMOVDQU (DX), Y1
	VPSLLD $16, Y0, Y2
	VPSLLD $16, Y1, Y3
	VPAND Y14, Y0, Y0
	VPAND Y14, Y1, Y1
	VADDPS Y3, Y2, Y2
	VADDPS Y1, Y0, Y0
	CANONICAL32(Y2, Y3)
	CANONICAL32(Y0, Y1)
	ROUNDBF16(Y2, Y3, Y13, Y12)
	ROUNDBF16(Y0, Y1, Y13, Y12)
	VPSRLD $16, Y2, Y2
	VPBLENDW $0xaa, Y0, Y2, Y2
	VMOVDQU Y2, (DI)
	ADDQ $32, SI
	ADDQ $32, DX
	ADDQ $32, DI
	SUBQ $16, CX
	JNE loop
	VZEROUPPER
	RET

// func addF32AVX2(acc *float64, src *float32, n int)
TEXT ·addF32AVX2(SB), NOSPLIT, $0-24
	MOVQ acc+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	BROADCAST64(0x7ff8000000000000, X15, Y15)
loop:
	VCVTPS2PD (SI), Y0
	VCVTPS2PD 16(SI), Y1
	VADDPD (DI), Y0, Y0
	VADDPD 32(DI), Y1, Y1
	CANONICAL64(Y0, Y2)
	CANONICAL64(Y1, Y3)
	VMOVUPD Y0, (DI)
	VMOVUPD Y1, 32(DI)
	ADDQ $32, SI
	ADDQ $64, DI
	SUBQ $8, CX
	JNE loop
	VZEROUPPER
	RET

// func addF16F16C(acc *float64, src *uint16, n int)
TEXT ·addF16F16C(SB), NOSPLIT, $0-24
	MOVQ acc+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	BROADCAST64(0x7ff8000000000000, X15, Y15)
loop:
	VCVTPH2PS (SI), X0
	VCVTPH2PS 8(SI), X1
	VCVTPS2PD X0, Y0
	VCVTPS2PD X1, Y1
	VADDPD (DI), Y0, Y0
	VADDPD 32(DI), Y1, Y1
	CANONICAL64(Y0, Y2)
	CANONICAL64(Y1, Y3)
	VMOVUPD Y0, (DI)
	VMOVUPD Y1, 32(DI)
	ADDQ $16, SI
	ADDQ $64, DI
	SUBQ $8, CX
	JNE loop
	VZEROUPPER
	RET

// func addBF16AVX2(acc *float64, src *uint16, n int)
TEXT ·addBF16AVX2(SB), NOSPLIT, $0-24
	MOVQ acc+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	BROADCAST64(0x7ff8000000000000, X15, Y15)
loop:
	VPMOVZXWD (SI), X0
	VPMOVZXWD 8(SI), X1
	VPSLLD $16, X0, X0
	VPSLLD $16, X1, X1
	VCVTPS2PD X0, Y0
	VCVTPS2PD X1, Y1
	VADDPD (DI), Y0, Y0
	VADDPD 32(DI), Y1, Y1
	CANONICAL64(Y0, Y2)
	CANONICAL64(Y1, Y3)
	VMOVUPD Y0, (DI)
	VMOVUPD Y1, 32(DI)
	ADDQ $16, SI
	ADDQ $64, DI
	SUBQ $8, CX
	JNE loop
	VZEROUPPER
	RET

// func divF64AVX2(acc *float64, n int, divisor float64)
TEXT ·divF64AVX2(SB), NOSPLIT, $0-24
	MOVQ acc+0(FP), DI
	MOVQ n+8(FP), CX
	VBROADCASTSD divisor+16(FP), Y14
	BROADCAST64(0x7ff8000000000000, X15, Y15)
loop:
	VMOVUPD (DI), Y0
	VMOVUPD 32(DI), Y1
	VDIVPD Y14, Y0, Y0
	VDIVPD Y14, Y1, Y1
	CANONICAL64(Y0, Y2)
	CANONICAL64(Y1, Y3)
	VMOVUPD Y0, (DI)
	VMOVUPD Y1, 32(DI)
	ADDQ $64, DI
	SUBQ $8, CX
	JNE loop
	VZEROUPPER
	RET

// func f32FromF16F16C(dst *float32, src *uint16, n int)
TEXT ·f32FromF16F16C(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
loop:
	VCVTPH2PS (SI), Y0
	VCVTPH2PS 16(SI), Y1
	VMOVUPS Y0, (DI)
	VMOVUPS Y1, 32(DI)
	ADDQ $32, SI
	ADDQ $64, DI
	SUBQ $16, CX
	JNE loop
	VZEROUPPER
	RET

// func f16FromF32F16C(dst *uint16, src *float32, n int)
TEXT ·f16FromF32F16C(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
loop:
	VMOVUPS (SI), Y0
	VMOVUPS 32(SI), Y1
	VCVTPS2PH $0, Y0, (DI)
	VCVTPS2PH $0, Y1, 16(DI)
	ADDQ $64, SI
	ADDQ $32, DI
	SUBQ $16, CX
	JNE loop
	VZEROUPPER
	RET

// func f32FromBF16AVX2(dst *float32, src *uint16, n int)
TEXT ·f32FromBF16AVX2(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
loop:
	VPMOVZXWD (SI), Y0
	VPMOVZXWD 16(SI), Y1
	VPSLLD $16, Y0, Y0
	VPSLLD $16, Y1, Y1
	VMOVDQU Y0, (DI)
	VMOVDQU Y1, 32(DI)
	ADDQ $32, SI
	ADDQ $64, DI
	SUBQ $16, CX
	JNE loop
	VZEROUPPER
	RET

// BF16(v, t, u, w, one, half, quiet) rounds float32s to bf16 in the lower half of each lane. NaNs are not rounded: they are
// set aside with the quiet bit and blended back in. t, u and w are lost.
#define BF16(v, t, u, w, one, half, quiet) \
	VCMPPS $3, v, v, t; \
	VPOR quiet, v, u; \
	ROUNDBF16(v, w, one, half); \
	VBLENDVPS t, u, v, v; \
	VPSRLD $16, v, v

#define BROADCAST_BF16 \
	BROADCAST32(0x00400000, X15, Y15); \
	BROADCAST32(1, X13, Y13); \
	BROADCAST32(0x7fff, X12, Y12)

// func bf16FromF32AVX2(dst *uint16, src *float32, n int)
TEXT ·bf16FromF32AVX2(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	BROADCAST_BF16
loop:
	VMOVUPS (SI), Y0
	VMOVUPS 32(SI), Y1
	BF16(Y0, Y2, Y4, Y6, Y13, Y12, Y15)
	BF16(Y1, Y3, Y5, Y7, Y13, Y12, Y15)
	VPACKUSDW Y1, Y0, Y0
	VPERMQ $0xd8, Y0, Y0
	VMOVDQU Y0, (DI)
	ADDQ $64, SI
	ADDQ $32, DI
	SUBQ $16, CX
	JNE loop
	VZEROUPPER
	RET

// func f64FromF32AVX2(dst *float64, src *float32, n int)
TEXT ·f64FromF32AVX2(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
loop:
	VCVTPS2PD (SI), Y0
	VCVTPS2PD 16(SI), Y1
	VMOVUPD Y0, (DI)
	VMOVUPD Y1, 32(DI)
	ADDQ $32, SI
	ADDQ $64, DI
	SUBQ $8, CX
	JNE loop
	VZEROUPPER
	RET

// func f64FromF16F16C(dst *float64, src *uint16, n int)
TEXT ·f64FromF16F16C(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
loop:
	VCVTPH2PS (SI), X0
	VCVTPH2PS 8(SI), X1
	VCVTPS2PD X0, Y0
	VCVTPS2PD X1, Y1
	VMOVUPD Y0, (DI)
	VMOVUPD Y1, 32(DI)
	ADDQ $16, SI
	ADDQ $64, DI
	SUBQ $8, CX
	JNE loop
	VZEROUPPER
	RET

// func f64FromBF16AVX2(dst *float64, src *uint16, n int)
TEXT ·f64FromBF16AVX2(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
loop:
	VPMOVZXWD (SI), X0
	VPMOVZXWD 8(SI), X1
	VPSLLD $16, X0, X0
	VPSLLD $16, X1, X1
	VCVTPS2PD X0, Y0
	VCVTPS2PD X1, Y1
	VMOVUPD Y0, (DI)
	VMOVUPD Y1, 32(DI)
	ADDQ $16, SI
	ADDQ $64, DI
	SUBQ $8, CX
	JNE loop
	VZEROUPPER
	RET

// func f32FromF64AVX2(dst *float32, src *float64, n int)
TEXT ·f32FromF64AVX2(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
loop:
	VCVTPD2PSY (SI), X0
	VCVTPD2PSY 32(SI), X1
	VMOVUPS X0, (DI)
	VMOVUPS X1, 16(DI)
	ADDQ $64, SI
	ADDQ $32, DI
	SUBQ $8, CX
	JNE loop
	VZEROUPPER
	RET

// ODD32(v, x, t) rounds the float64s of v to odd, as oddF32 does, into the float32s of x, the lower half of v. Y14 holds
// the bits below the odd one; t is lost.
#define ODD32(v, x, t) \
	VPAND Y14, v, t; \
	VPADDQ Y14, t, t; \
	VPOR t, v, v; \
	VPANDN v, Y14, v; \
	VCVTPD2PSY v, x

// func f16FromF64F16C(dst *uint16, src *float64, n int)
TEXT ·f16FromF64F16C(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	BROADCAST64(0xffffffffff, X14, Y14)
loop:
	VMOVDQU (SI), Y0
	VMOVDQU 32(SI), Y1
	ODD32(Y0, X0, Y2)
	ODD32(Y1, X1, Y3)
	VCVTPS2PH $0, X0, (DI)
	VCVTPS2PH $0, X1, 8(DI)
	ADDQ $64, SI
	ADDQ $16, DI
	SUBQ $8, CX
	JNE loop
	VZEROUPPER
	RET

// func bf16FromF64AVX2(dst *uint16, src *float64, n int)
TEXT ·bf16FromF64AVX2(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	BROADCAST64(0xffffffffff, X14, Y14)
	BROADCAST_BF16
loop:
	VMOVDQU (SI), Y0
	VMOVDQU 32(SI), Y1
	ODD32(Y0, X0, Y2)
	ODD32(Y1, X1, Y3)
	BF16(X0, X2, X4, X6, X13, X12, X15)
	BF16(X1, X3, X5, X7, X13, X12, X15)
	VPACKUSDW X1, X0, X0
	VMOVDQU X0, (DI)
	ADDQ $64, SI
	ADDQ $16, DI
	SUBQ $8, CX
	JNE loop
	VZEROUPPER
	RET
