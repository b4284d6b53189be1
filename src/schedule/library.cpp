#include "schedule/library.h"

#include "schedule/linear.h"

namespace inkle::schedule {
namespace {

using abi::DType;
using abi::FusedWork;
using abi::PostOpKind;
using loop::Program;

DType dtype_of(const View& view, const Program& program) {
  return program.buffers[view.buffer].dtype;
}

bool is_row_major(const View& view) {
  const std::size_t rank = view.strides.size();
  return is_matrix(view) &&
         (view.strides[rank - 1].is_constant(1) || view.sizes[rank - 1].is_constant(1));
}

bool is_like(const View& a, const View& b) { return a.sizes == b.sizes && a.strides == b.strides; }

// A bias, then one addition of a tensor like the result, then one activation; all row-major.
bool is_residual_activation(const abi::GemmLibrary& library, const MatmulStep& step,
                            const Program& program) {
  // A GEMM with K = 0 is all zeros, which the library does not write: it cannot have an epilogue.
  const bool is_zero = step.a.sizes.back().is_constant(0);
  if (is_zero && (step.bias.has_value() || !step.epilogue.empty())) return false;
  const DType c = dtype_of(step.c, program);
  if (step.bias && !step.bias->strides.front().is_constant(1)) return false;
  if (step.bias && dtype_of(*step.bias, program) != c) return false;
  bool row_major = step.bias.has_value();
  bool has_residual = false;
  bool has_activation = false;
  for (const Epilogue& e : step.epilogue) {
    if (has_activation || !library.post_ops.has(e.kind)) return false;
    if (library.inexact_in_f32.has(e.kind) && !abi::is_reduced_float(c)) return false;
    if (e.kind != PostOpKind::add) {
      has_activation = true;
      continue;
    }
    // Other strides would split the GEMM into a batch.
    if (has_residual || !e.operand || dtype_of(*e.operand, program) != c ||
        !is_row_major(*e.operand) || !is_like(*e.operand, step.c)) {
      return false;
    }
    has_residual = row_major = true;
  }
  return !row_major || is_row_major(step.c);
}

// The same in one kernel of the library's own, or by the host, which wants an activation.
bool is_residual_activation(const abi::ConvolutionLibrary& library, const ConvolutionStep& step,
                            const Program& program) {
  const DType x = dtype_of(step.x, program);
  if (step.bias && dtype_of(*step.bias, program) != x) return false;
  if (dtype_of(step.y, program) != x) return false;
  const auto& e = step.epilogue;
  if (e.empty()) return true;
  const bool ends_with_relu = e.back().kind == PostOpKind::relu;
  if (!is_own(library, step, program)) {
    if (step.parameters.transposed || !ends_with_relu || step.x.sizes.size() != 4) return false;
  }
  if (e.size() == 1 && ends_with_relu) return true;
  if (e.size() > 2 || (e.size() == 2 && !ends_with_relu)) return false;
  if (e.front().kind != PostOpKind::add) return false;
  const View& z = *e.front().operand;
  return dtype_of(z, program) == x && is_like(z, step.y);
}

}  // namespace

bool multiplies(const abi::GemmLibrary& library, DType a, DType b, DType c) {
  if (a != b || !library.types.has(a)) return false;
  return c == a || (c == DType::f32 && library.f32_results.has(a));
}

bool takes(const abi::GemmLibrary& library, const MatmulStep& step, const Program& program) {
  // Epilogues are for the template, not for the library.
  const DType c = dtype_of(step.c, program);
  const bool is_ours = library.source == abi::GemmSource::templates &&
                       library.template_types.has(dtype_of(step.a, program));
  if (is_ours && (step.bias || !step.epilogue.empty())) return false;
  if (library.needs_matrices && !(is_matrix(step.a) && is_matrix(step.b) && is_matrix(step.c))) {
    return false;
  }
  if (library.fused == FusedWork::chain) return true;
  return multiplies(library, dtype_of(step.a, program), dtype_of(step.b, program), c) &&
         is_residual_activation(library, step, program);
}

bool takes(const abi::ConvolutionLibrary& library, const ConvolutionStep& step,
           const Program& program) {
  if (dtype_of(step.y, program) != dtype_of(step.x, program)) return false;
  return library.fused == FusedWork::chain || is_residual_activation(library, step, program);
}

bool is_own(const abi::ConvolutionLibrary& library, const ConvolutionStep& step,
            const Program& program) {
  const std::size_t rank = step.x.sizes.size();
  const bool is_plain = !step.parameters.transposed && !step.parameters.weight_gradient;
  return library.is_open && library.own.has(dtype_of(step.x, program)) && rank >= 3 && rank <= 5 &&
         (is_plain || (!step.bias && step.epilogue.empty()));
}

}  // namespace inkle::schedule
