// Code of the runtime's own, as PTX that the driver compiles: there is no compiler here.
#pragma once

namespace inkle::runtime::cuda {

// to[i] = from[i / n * pitch + i % n] for i < count, elements of two bytes, 256 threads a block,
// eight elements a thread; `to` is 16-byte aligned. Made by nvcc 13.0 -ptx -arch=compute_80 from
//
//   __global__ void copy_rows(u16* to, const u16* from, u32 n, u32 pitch, u64 count) {
//     const u64 i = (blockIdx.x * 256ull + threadIdx.x) * 8;
//     if (i >= count) return;
//     u64 row = i / n;
//     u32 column = i - row * n;
//     const u16* p = from + row * pitch + column;
//     u16 v[8];
//     for (int e = 0; e < 8; ++e) {  // unrolled
//       v[e] = i + e < count ? __ldg(p) : 0;
//       ++p;
//       if (++column == n) { column = 0; p += pitch - n; }
//     }
//     if (i + 8 <= count) *(uint4*)(to + i) = all of v;
//     else for (int e = 0; e < 8; ++e) if (i + e < count) to[i + e] = v[e];
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
	.reg .pred 	%p<31>;
	.reg .b16 	%rs<38>;
	.reg .b32 	%r<33>;
	.reg .b64 	%rd<77>;
	ld.param.u64 	%rd20, [copy_rows_param_0];
	ld.param.u64 	%rd21, [copy_rows_param_1];
	ld.param.u32 	%r8, [copy_rows_param_2];
	ld.param.u32 	%r9, [copy_rows_param_3];
	ld.param.u64 	%rd22, [copy_rows_param_4];
	mov.u32 	%r10, %ctaid.x;
	mul.wide.u32 	%rd23, %r10, 256;
	mov.u32 	%r11, %tid.x;
	cvt.u64.u32 	%rd24, %r11;
	add.s64 	%rd25, %rd23, %rd24;
	shl.b64 	%rd1, %rd25, 3;
	setp.ge.u64 	%p1, %rd1, %rd22;
	@%p1 bra 	$L__BB0_34;
	cvt.u64.u32 	%rd2, %r8;
	and.b64  	%rd26, %rd1, -4294967296;
	setp.eq.s64 	%p2, %rd26, 0;
	@%p2 bra 	$L__BB0_3;
	div.u64 	%rd76, %rd1, %rd2;
	bra.uni 	$L__BB0_4;
$L__BB0_3:
	cvt.u32.u64 	%r12, %rd2;
	cvt.u32.u64 	%r13, %rd1;
	div.u32 	%r14, %r13, %r12;
	cvt.u64.u32 	%rd76, %r14;
$L__BB0_4:
	mul.lo.s64 	%rd28, %rd76, %rd2;
	sub.s64 	%rd29, %rd1, %rd28;
	cvt.u32.u64 	%r1, %rd29;
	cvt.u64.u32 	%rd30, %r9;
	mul.lo.s64 	%rd31, %rd76, %rd30;
	and.b64  	%rd32, %rd29, 4294967295;
	add.s64 	%rd33, %rd32, %rd31;
	shl.b64 	%rd34, %rd33, 1;
	add.s64 	%rd27, %rd21, %rd34;
	sub.s32 	%r15, %r9, %r8;
	cvt.u64.u32 	%rd35, %r15;
	add.s64 	%rd6, %rd35, 1;
	ld.global.nc.u16 %rs16, [%rd27];
	add.s32 	%r2, %r1, 1;
	setp.eq.s32 	%p3, %r2, %r8;
	selp.b64 	%rd36, %rd6, 1, %p3;
	shl.b64 	%rd37, %rd36, 1;
	add.s64 	%rd7, %rd27, %rd37;
	add.s64 	%rd38, %rd1, 1;
	setp.ge.u64 	%p4, %rd38, %rd22;
	mov.u16 	%rs32, 0;
	mov.u16 	%rs31, %rs32;
	@%p4 bra 	$L__BB0_6;
	ld.global.nc.u16 %rs31, [%rd7];
$L__BB0_6:
	add.s32 	%r16, %r1, 2;
	selp.b32 	%r3, 1, %r16, %p3;
	setp.eq.s32 	%p6, %r3, %r8;
	selp.b64 	%rd40, %rd6, 1, %p6;
	shl.b64 	%rd41, %rd40, 1;
	add.s64 	%rd8, %rd7, %rd41;
	add.s64 	%rd42, %rd1, 2;
	setp.ge.u64 	%p7, %rd42, %rd22;
	@%p7 bra 	$L__BB0_8;
	ld.global.nc.u16 %rs32, [%rd8];
$L__BB0_8:
	add.s32 	%r17, %r3, 1;
	selp.b32 	%r4, 1, %r17, %p6;
	setp.eq.s32 	%p9, %r4, %r8;
	selp.b64 	%rd44, %rd6, 1, %p9;
	shl.b64 	%rd45, %rd44, 1;
	add.s64 	%rd9, %rd8, %rd45;
	add.s64 	%rd10, %rd1, 3;
	setp.ge.u64 	%p10, %rd10, %rd22;
	mov.u16 	%rs34, 0;
	mov.u16 	%rs33, %rs34;
	@%p10 bra 	$L__BB0_10;
	ld.global.nc.u16 %rs33, [%rd9];
$L__BB0_10:
	add.s32 	%r18, %r4, 1;
	selp.b32 	%r5, 1, %r18, %p9;
	setp.eq.s32 	%p12, %r5, %r8;
	selp.b64 	%rd47, %rd6, 1, %p12;
	shl.b64 	%rd48, %rd47, 1;
	add.s64 	%rd11, %rd9, %rd48;
	add.s64 	%rd12, %rd1, 4;
	setp.ge.u64 	%p13, %rd12, %rd22;
	@%p13 bra 	$L__BB0_12;
	ld.global.nc.u16 %rs34, [%rd11];
$L__BB0_12:
	add.s32 	%r19, %r5, 1;
	selp.b32 	%r6, 1, %r19, %p12;
	setp.eq.s32 	%p15, %r6, %r8;
	selp.b64 	%rd50, %rd6, 1, %p15;
	shl.b64 	%rd51, %rd50, 1;
	add.s64 	%rd13, %rd11, %rd51;
	add.s64 	%rd14, %rd1, 5;
	setp.ge.u64 	%p16, %rd14, %rd22;
	mov.u16 	%rs36, 0;
	mov.u16 	%rs35, %rs36;
	@%p16 bra 	$L__BB0_14;
	ld.global.nc.u16 %rs35, [%rd13];
$L__BB0_14:
	add.s32 	%r20, %r6, 1;
	selp.b32 	%r7, 1, %r20, %p15;
	setp.eq.s32 	%p18, %r7, %r8;
	selp.b64 	%rd55, %rd6, 1, %p18;
	shl.b64 	%rd56, %rd55, 1;
	add.s64 	%rd15, %rd13, %rd56;
	add.s64 	%rd16, %rd1, 6;
	setp.ge.u64 	%p19, %rd16, %rd22;
	@%p19 bra 	$L__BB0_16;
	ld.global.nc.u16 %rs36, [%rd15];
$L__BB0_16:
	add.s32 	%r22, %r7, 1;
	selp.b32 	%r23, 1, %r22, %p18;
	setp.eq.s32 	%p21, %r23, %r8;
	selp.b64 	%rd60, %rd6, 1, %p21;
	shl.b64 	%rd61, %rd60, 1;
	add.s64 	%rd17, %rd15, %rd61;
	add.s64 	%rd18, %rd1, 7;
	setp.ge.u64 	%p22, %rd18, %rd22;
	mov.u16 	%rs37, 0;
	@%p22 bra 	$L__BB0_18;
	ld.global.nc.u16 %rs37, [%rd17];
$L__BB0_18:
	add.s64 	%rd63, %rd1, 8;
	setp.gt.u64 	%p23, %rd63, %rd22;
	cvta.to.global.u64 	%rd64, %rd20;
	shl.b64 	%rd65, %rd1, 1;
	add.s64 	%rd19, %rd64, %rd65;
	@%p23 bra 	$L__BB0_20;
	bra.uni 	$L__BB0_19;
$L__BB0_20:
	or.b64  	%rd70, %rd1, 1;
	setp.ge.u64 	%p24, %rd70, %rd22;
	st.global.u16 	[%rd19], %rs16;
	@%p24 bra 	$L__BB0_22;
	st.global.u16 	[%rd19+2], %rs31;
$L__BB0_22:
	or.b64  	%rd75, %rd1, 2;
	setp.ge.u64 	%p25, %rd75, %rd22;
	@%p25 bra 	$L__BB0_24;
	st.global.u16 	[%rd19+4], %rs32;
$L__BB0_24:
	@%p10 bra 	$L__BB0_26;
	st.global.u16 	[%rd19+6], %rs33;
$L__BB0_26:
	@%p13 bra 	$L__BB0_28;
	st.global.u16 	[%rd19+8], %rs34;
$L__BB0_28:
	@%p16 bra 	$L__BB0_30;
	st.global.u16 	[%rd19+10], %rs35;
$L__BB0_30:
	@%p19 bra 	$L__BB0_32;
	st.global.u16 	[%rd19+12], %rs36;
$L__BB0_32:
	@%p22 bra 	$L__BB0_34;
	st.global.u16 	[%rd19+14], %rs37;
	bra.uni 	$L__BB0_34;
$L__BB0_19:
	mov.b32 	%r25, {%rs36, %rs37};
	mov.b32 	%r26, {%rs34, %rs35};
	mov.b32 	%r27, {%rs32, %rs33};
	mov.b32 	%r28, {%rs16, %rs31};
	st.global.v4.u32 	[%rd19], {%r28, %r27, %r26, %r25};
$L__BB0_34:
	ret;
}
)ptx";

}  // namespace inkle::runtime::cuda
