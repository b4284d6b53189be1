// Reference implementations of decomposed rows, written without the rows that they decompose into,
// so that a wrong decomposition is found.
#pragma once

#include <cstddef>

#include "ops/interpreter.h"

namespace inkle::ops::composite {

void ref_binary_cross_entropy(Evaluation& e);
void ref_binary_cross_entropy_with_logits(Evaluation& e);
void ref_channel_shuffle(Evaluation& e);
void ref_cross_entropy(Evaluation& e);
void ref_einsum(Evaluation& e);
void ref_expand_as(Evaluation& e);
void ref_instance_norm(Evaluation& e);
void ref_ldexp(Evaluation& e);
void ref_linear(Evaluation& e);
void ref_matmul(Evaluation& e);
void ref_matrix_transpose(Evaluation& e);
void ref_nansum(Evaluation& e);
void ref_nll(Evaluation& e);
void ref_outer(Evaluation& e);
void ref_pad(Evaluation& e);
void ref_pixel_shuffle(Evaluation& e);
void ref_pixel_unshuffle(Evaluation& e);
void ref_stack(Evaluation& e);
void ref_take(Evaluation& e);
void ref_type_as(Evaluation& e);
void ref_unpool(Evaluation& e);

// composite_float_reference.cpp
void ref_addr(Evaluation& e);
void ref_angle(Evaluation& e);
void ref_binary_cross_entropy_backward(Evaluation& e);
void ref_bucketize(Evaluation& e);
void ref_conv(Evaluation& e);
void ref_conv_transpose(Evaluation& e);
void ref_count_nonzero(Evaluation& e);
void ref_dist(Evaluation& e);
void ref_glu_backward(Evaluation& e);
void ref_isin(Evaluation& e);
void ref_logit_backward(Evaluation& e);
void ref_mvlgamma(Evaluation& e);
void ref_prelu_backward(Evaluation& e);
void ref_soft_margin_loss(Evaluation& e);
void ref_soft_margin_loss_backward(Evaluation& e);
void ref_trace(Evaluation& e);

}  // namespace inkle::ops::composite
