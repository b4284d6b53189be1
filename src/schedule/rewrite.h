// Rewrites of single nests on the way to kernels.
#pragma once

#include <cstddef>
#include <vector>

#include "abi/target.h"
#include "base/unsupported.h"
#include "loop/program.h"

namespace inkle::schedule {

// Loops of one iteration carry nothing: their variable becomes 0 in every index.
void drop_unit_variables(loop::Program& program);

// Loop `at` of `dims`, which are loops of the nest, becomes two, the inner one of `inner`
// iterations, of which it has a multiple.
void divide_loop(loop::Nest& nest, std::vector<loop::Dim>& dims, std::size_t at, sym::Expr inner,
                 sym::Context& context);

// A loop of a reduction that reads a reshaped tensor becomes the loops of the tensor:
//
//   n: reduce.sum [i: 8 | r: 1024] -> t1[i] { yield load t0[floordiv(r,128),mod(r,128),i] }
// becomes
//   n: reduce.sum [i: 8 | r: 8, q: 128] -> t1[i] { yield load t0[r,q,i] }
//
// so that it can share them with what makes the tensor, and is split in parts that are parts of the
// tensor. Values come in the same order. Not where the tensor has been padded for others: it could
// not share them then. Not for a reduction with more than `most_sums` results, if that is not 0:
// beside what makes the rows of the tensor they would leave the caches between two rows.
void unfold_reshapes(loop::Program& program, std::int64_t most_sums);

// Dead code elimination: removes values that no yield and no store needs, loads included.
void drop_dead_values(loop::Program& program);

// Products of one row with a matrix (GEMVs) that stay contractions.
struct OneRow {
  bool f32 = false;  // the template adds in one order however many rows there are
  // By wide parameters of these. By panels they take 0.64 (f32) and 0.56 (bf16) of a loop's time,
  // of the shapes of bench/gemm_shapes.txt with one row (Zen 4 with AVX512-BF16, one thread).
  abi::SetOf<abi::DType> weights;
};

// Contractions that run better or only as loops of our own: products of one row with a matrix but
// for those that are to stay, those of one column of the library's column_loops, and dtypes that
// the library does not take. They become sum reductions. What cannot is `found`.
void contractions_to_loops(loop::Program& program, const abi::Libraries& libraries, OneRow stay,
                           UnsupportedNodes& found);

// Convolutions of f16 and bf16, and their gradients, become ones of f32 with a rounding after them
// where the library has only those (x86 processors with AVX2 alone): sums and bias are of f32 in
// both, so that results are rounded once. Operands are widened once, weights ahead of all calls.
void widen_convolutions(loop::Program& program, const abi::ConvolutionLibrary& library);

// The gradient of a convolution's weights of 1x1 that reads an image of fewer than `channels`
// channels by steps: what it reads is copied together first. oneDNN 2.6.3 writes beyond its scratch
// memory there if channels are last and fewer than a vector has (found with AVX2).
void gather_points(loop::Program& program, std::int64_t channels);

// Convolutions of f16 and bf16 images with fewer than `channels` channels whose windows do not
// overlap (the first layer of a vision transformer) become a copy of the image as patches and a
// product with the weights. Runs on logical indices. 128 images of 3x224x224 by 768x3x16x16 on an
// H200: 880 us as a padded convolution.
void convolutions_of_patches(loop::Program& program, std::int64_t channels);

// Convolutions of f16 and bf16 images with fewer than `channels` channels are padded with zeros, in
// image and weights: a library has fast kernels for whole groups of 8 only (128 images of 3x224x224
// by 64x3x7x7 on an H200: 1560 us unpadded).
void pad_channels(loop::Program& program, std::int64_t channels);

// A convolution of an f32 sequence whose results are sums of more than `longest` terms becomes
// one in groups of channels, each with all outputs, and the sum of the groups: a library that adds
// term after term loses accuracy with every one. Seven layers of 512 channels and 3 taps (a speech
// encoder), 384 terms instead of 1536: RMS error 3.7e-7 of the scale instead of 5.2e-7
// (torch's: 2.1e-7), in the same time. 0: none.
void split_channels(loop::Program& program, std::int64_t longest);

// The bias of a transposed convolution becomes an addition to its rounded result, as in eager. For
// a library that runs one as the gradient of an image, which has no bias (cuDNN).
//
//   y = conv_transpose(x, w, b)   =>   t = conv_transpose(x, w);  y = t + b[c]
void separate_biases(loop::Program& program);

// Pads the rows of f16 and bf16 GEMM operands with zeros to a multiple of row_bytes, and extends
// the GEMM's loops likewise, since a library has fast kernels for aligned rows only (gpt2's
// 8192x50257 by 50257x768 on an H200: 4450 us unpadded). Runs before inlining, so that the producer
// of an operand writes the padding.
void pad_gemms(loop::Program& program, const abi::GemmLibrary& library);

// A convolution whose result is multiplied by a factor for each channel, where factor and weights
// come from parameters alone: the factor is folded into the weights (once, see
// Step::prepare), and a value for each channel that is added next becomes the bias.
//
//   t = conv(x, w);  y = relu(t * s[c] + b[c])   =>   w2 = w * s[o];  t = conv(x, w2, b);  y =
//   relu(t)
//
// Not when training: weights change with every step.
void fold_channel_factors(loop::Program& program);

// Of reductions of the same values in the same way (the sums of a bias's gradient and of a mean)
// only the first is computed; runs before inlining, which makes their bodies large.
void share_reductions(loop::Program& program);

// A reduction with too few results to keep all threads busy, over much data, becomes two: partial
// results over the outermost reduced loops (the last of them divided), and their reduction. Moments
// are merged from those of equally long parts. Those that write or read `parts_made` are split
// already.
void split_long_reductions(loop::Program& program, const abi::Target& device,
                           const std::vector<loop::BufferId>& parts_made = {});

}  // namespace inkle::schedule
