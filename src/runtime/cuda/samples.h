// Words of memory that are kept and compared later, to see that weights have changed although
// nothing says so. As PTX that the driver compiles, like copy_rows.h.
#pragma once

#include <cstdint>

namespace inkle::runtime::cuda {

// Of each tensor so many words of four bytes, all of them where it has no more.
inline constexpr std::uint32_t kSamples = 64;

struct SampledMemory {
  std::uint64_t at = 0;     // a multiple of 4
  std::uint64_t words = 0;  // of 4 bytes
};

// Which word is looked at by sample number `sample`, counted over all tensors; as many or more than
// there are words: none.
constexpr std::uint64_t sampled_word(std::uint32_t sample, std::uint64_t words) {
  const std::uint64_t j = sample % kSamples;
  if (words <= kSamples) return j;
  std::uint64_t hash = (sample + 1ULL) * 0x9e3779b97f4a7c15ULL;
  hash ^= hash >> 29;
  const std::uint64_t slice = words / kSamples;
  return j * slice + hash % slice;
}

// 256 threads a block, one for each sample. Made by nvcc 13.0 -ptx -arch=compute_80 from
//
//   __global__ void samples(const u64* table, u32 count, u32* kept, u32* changed, u32 keep) {
//     const u32 t = blockIdx.x * 256 + threadIdx.x;
//     if (t >= count * 64) return;
//     const u64 at = table[t / 64 * 2], words = table[t / 64 * 2 + 1];
//     const u64 position = sampled_word(t, words);
//     if (position >= words) return;
//     const u32 word = *(volatile const u32*)(at + position * 4);
//     if (keep) kept[t] = word;
//     else if (word != kept[t]) *changed = 1;
//   }
inline constexpr char kSamplesPtx[] = R"ptx(
.version 8.0
.target sm_80
.address_size 64
.visible .entry samples(
	.param .u64 samples_param_0,
	.param .u32 samples_param_1,
	.param .u64 samples_param_2,
	.param .u64 samples_param_3,
	.param .u32 samples_param_4
)
.maxntid 256, 1, 1
{
	.reg .pred 	%p<6>;
	.reg .b32 	%r<26>;
	.reg .b64 	%rd<27>;
	ld.param.u64 	%rd7, [samples_param_0];
	ld.param.u32 	%r3, [samples_param_1];
	ld.param.u64 	%rd8, [samples_param_2];
	ld.param.u64 	%rd9, [samples_param_3];
	ld.param.u32 	%r2, [samples_param_4];
	mov.u32 	%r4, %ctaid.x;
	shl.b32 	%r5, %r4, 8;
	mov.u32 	%r6, %tid.x;
	add.s32 	%r7, %r5, %r6;
	shl.b32 	%r8, %r3, 6;
	setp.ge.u32 	%p1, %r7, %r8;
	@%p1 bra 	$L__BB0_8;
	shr.u32 	%r13, %r7, 5;
	and.b32  	%r14, %r13, 134217726;
	cvta.to.global.u64 	%rd10, %rd7;
	mul.wide.u32 	%rd11, %r14, 8;
	add.s64 	%rd12, %rd10, %rd11;
	ld.global.u64 	%rd1, [%rd12];
	and.b32  	%r15, %r7, 63;
	cvt.u64.u32 	%rd26, %r15;
	ld.global.u64 	%rd3, [%rd12+8];
	setp.gt.u64 	%p2, %rd3, 64;
	@%p2 bra 	$L__BB0_3;
	bra.uni 	$L__BB0_2;
$L__BB0_3:
	cvt.u64.u32 	%rd13, %r7;
	mul.lo.s64 	%rd14, %rd13, -7046029254386353131;
	add.s64 	%rd15, %rd14, -7046029254386353131;
	shr.u64 	%rd16, %rd15, 29;
	xor.b64  	%rd17, %rd16, %rd15;
	shr.u64 	%rd18, %rd3, 6;
	mul.lo.s64 	%rd19, %rd18, %rd26;
	rem.u64 	%rd20, %rd17, %rd18;
	add.s64 	%rd26, %rd20, %rd19;
	bra.uni 	$L__BB0_4;
$L__BB0_2:
	setp.le.u64 	%p3, %rd3, %rd26;
	@%p3 bra 	$L__BB0_8;
$L__BB0_4:
	shl.b64 	%rd21, %rd26, 2;
	add.s64 	%rd22, %rd21, %rd1;
	ld.volatile.u32 	%r1, [%rd22];
	cvta.to.global.u64 	%rd23, %rd8;
	mul.wide.u32 	%rd24, %r7, 4;
	add.s64 	%rd6, %rd23, %rd24;
	setp.eq.s32 	%p4, %r2, 0;
	@%p4 bra 	$L__BB0_6;
	st.global.u32 	[%rd6], %r1;
	bra.uni 	$L__BB0_8;
$L__BB0_6:
	ld.global.u32 	%r24, [%rd6];
	setp.eq.s32 	%p5, %r1, %r24;
	@%p5 bra 	$L__BB0_8;
	cvta.to.global.u64 	%rd25, %rd9;
	mov.u32 	%r25, 1;
	st.global.u32 	[%rd25], %r25;
$L__BB0_8:
	ret;
}
)ptx";

}  // namespace inkle::runtime::cuda
