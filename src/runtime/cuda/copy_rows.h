// Code of the runtime's own, as PTX that the driver compiles: there is no compiler here.
#pragma once

namespace inkle::runtime::cuda {

// to[i] = from[i / n * pitch + i % n] for i < count, elements of two bytes, 256 threads a block,
// eight elements a thread; `to`, `from` and the rows of `from` are 16-byte aligned. What is read
// lies in cache, and what is written is not read soon. gpt2's head, 8192 rows of 50257 in parts,
// took 447 us with eight loads of two bytes a thread. Made by nvcc 13.0 -ptx -arch=compute_80 from
//
//   __global__ void copy_rows(u16* to, const u16* from, u32 n, u32 pitch, u64 count) {
//     const u64 i = (blockIdx.x * 256ull + threadIdx.x) * 8;
//     if (i >= count) return;
//     const u64 row = i / n;
//     u32 column = i - row * n;
//     const u16* start = from + row * pitch;
//     if (column + 8 <= n) {  // all of one row: one or two aligned loads, shifted
//       const u32 shift = column % 8;
//       const uint4* p = (const uint4*)(start + (column - shift));
//       const uint4 a = __ldg(p);
//       uint4 v = a;
//       if (shift != 0) {
//         const uint4 b = __ldg(p + 1);  // starts within the row, and rows are padded to its end
//         u32 w[5] = five words of a, b from shift / 2 on;
//         v.x = __funnelshift_r(w[0], w[1], shift % 2 * 16);  // and so on
//       }
//       __stcs((uint4*)(to + i), v);
//       return;
//     }
//     for (u32 e = 0; e < 8 && i + e < count; ++e) {
//       to[i + e] = __ldg(start + column);
//       if (++column == n) { column = 0; start += pitch; }
//     }
//   }
inline constexpr char kCopyRowsPtx[] = R"ptx(
.version 8.0
.target sm_80
.address_size 64
.visible .entry copy_rows(
	.param .u64 copy_rows_param_0,
	.param .u64 copy_rows_param_1,
	.param .u32 copy_rows_param_2,
	.param .u32 copy_rows_param_3,
	.param .u64 copy_rows_param_4
)
.maxntid 256, 1, 1
{
	.reg .pred 	%p<12>;
	.reg .b16 	%rs<2>;
	.reg .b32 	%r<77>;
	.reg .b64 	%rd<40>;
	ld.param.u64 	%rd14, [copy_rows_param_0];
	ld.param.u64 	%rd15, [copy_rows_param_1];
	ld.param.u32 	%r18, [copy_rows_param_2];
	ld.param.u32 	%r19, [copy_rows_param_3];
	ld.param.u64 	%rd16, [copy_rows_param_4];
	mov.u32 	%r20, %ctaid.x;
	mul.wide.u32 	%rd17, %r20, 256;
	mov.u32 	%r21, %tid.x;
	cvt.u64.u32 	%rd18, %r21;
	add.s64 	%rd19, %rd17, %rd18;
	shl.b64 	%rd1, %rd19, 3;
	setp.ge.u64 	%p1, %rd1, %rd16;
	@%p1 bra 	$L__BB0_10;
	cvt.u64.u32 	%rd2, %r18;
	and.b64  	%rd20, %rd1, -4294967296;
	setp.eq.s64 	%p2, %rd20, 0;
	@%p2 bra 	$L__BB0_3;
	div.u64 	%rd37, %rd1, %rd2;
	bra.uni 	$L__BB0_4;
$L__BB0_3:
	cvt.u32.u64 	%r22, %rd2;
	cvt.u32.u64 	%r23, %rd1;
	div.u32 	%r24, %r23, %r22;
	cvt.u64.u32 	%rd37, %r24;
$L__BB0_4:
	mul.lo.s64 	%rd21, %rd37, %rd2;
	sub.s64 	%rd22, %rd1, %rd21;
	cvt.u32.u64 	%r76, %rd22;
	cvt.u64.u32 	%rd6, %r19;
	mul.lo.s64 	%rd23, %rd37, %rd6;
	shl.b64 	%rd24, %rd23, 1;
	add.s64 	%rd39, %rd15, %rd24;
	add.s32 	%r25, %r76, 8;
	setp.gt.u32 	%p3, %r25, %r18;
	@%p3 bra 	$L__BB0_8;
	bra.uni 	$L__BB0_5;
$L__BB0_8:
	cvta.to.global.u64 	%rd9, %rd14;
	mov.u32 	%r75, 0;
	mov.u64 	%rd38, %rd1;
$L__BB0_9:
	mul.wide.u32 	%rd31, %r76, 2;
	add.s64 	%rd30, %rd39, %rd31;
	// begin inline asm
	ld.global.nc.u16 %rs1, [%rd30];
	// end inline asm
	shl.b64 	%rd32, %rd38, 1;
	add.s64 	%rd33, %rd9, %rd32;
	st.global.u16 	[%rd33], %rs1;
	add.s32 	%r70, %r76, 1;
	setp.eq.s32 	%p8, %r70, %r18;
	selp.b32 	%r76, 0, %r70, %p8;
	shl.b64 	%rd34, %rd6, 1;
	add.s64 	%rd35, %rd39, %rd34;
	selp.b64 	%rd39, %rd35, %rd39, %p8;
	add.s32 	%r75, %r75, 1;
	setp.lt.u32 	%p9, %r75, 8;
	cvt.u64.u32 	%rd36, %r75;
	add.s64 	%rd38, %rd1, %rd36;
	setp.lt.u64 	%p10, %rd38, %rd16;
	and.pred  	%p11, %p9, %p10;
	@%p11 bra 	$L__BB0_9;
	bra.uni 	$L__BB0_10;
$L__BB0_5:
	and.b32  	%r30, %r76, 7;
	sub.s32 	%r31, %r76, %r30;
	mul.wide.u32 	%rd26, %r31, 2;
	add.s64 	%rd25, %rd39, %rd26;
	// begin inline asm
	ld.global.nc.v4.u32 {%r71,%r72,%r73,%r74}, [%rd25];
	// end inline asm
	setp.eq.s32 	%p4, %r30, 0;
	@%p4 bra 	$L__BB0_7;
	add.s64 	%rd27, %rd25, 16;
	// begin inline asm
	ld.global.nc.v4.u32 {%r32,%r33,%r34,%r35}, [%rd27];
	// end inline asm
	shr.u32 	%r53, %r30, 1;
	setp.lt.u32 	%p5, %r30, 4;
	setp.eq.s32 	%p6, %r53, 0;
	selp.b32 	%r54, %r71, %r72, %p6;
	setp.eq.s32 	%p7, %r53, 2;
	selp.b32 	%r55, %r73, %r74, %p7;
	selp.b32 	%r37, %r54, %r55, %p5;
	selp.b32 	%r56, %r72, %r73, %p6;
	selp.b32 	%r57, %r74, %r32, %p7;
	selp.b32 	%r41, %r56, %r57, %p5;
	selp.b32 	%r58, %r73, %r74, %p6;
	selp.b32 	%r59, %r32, %r33, %p7;
	selp.b32 	%r45, %r58, %r59, %p5;
	selp.b32 	%r60, %r74, %r32, %p6;
	selp.b32 	%r61, %r33, %r34, %p7;
	selp.b32 	%r49, %r60, %r61, %p5;
	selp.b32 	%r62, %r32, %r33, %p6;
	selp.b32 	%r63, %r34, %r35, %p7;
	selp.b32 	%r50, %r62, %r63, %p5;
	shl.b32 	%r64, %r76, 4;
	and.b32  	%r39, %r64, 16;
	// begin inline asm
	shf.r.wrap.b32 %r71, %r37, %r41, %r39;
	// end inline asm
	// begin inline asm
	shf.r.wrap.b32 %r72, %r41, %r45, %r39;
	// end inline asm
	// begin inline asm
	shf.r.wrap.b32 %r73, %r45, %r49, %r39;
	// end inline asm
	// begin inline asm
	shf.r.wrap.b32 %r74, %r49, %r50, %r39;
	// end inline asm
$L__BB0_7:
	shl.b64 	%rd29, %rd1, 1;
	add.s64 	%rd28, %rd14, %rd29;
	// begin inline asm
	st.global.cs.v4.u32 [%rd28], {%r71,%r72,%r73,%r74};
	// end inline asm
$L__BB0_10:
	ret;
}
)ptx";

}  // namespace inkle::runtime::cuda
