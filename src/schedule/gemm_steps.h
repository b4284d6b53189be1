// The steps around matrix products, while those become kernels of a template: what a product reads
// is made by a step before it, and a step behind it may become its epilogue.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "abi/target.h"
#include "schedule/scheduled.h"

namespace inkle::schedule {

// The offset of a view's element, `batch` counting row-major over all but the last two.
[[nodiscard]] Expr offset_in(const View& view, Expr batch, Expr row, Expr column);
// The step that computes `operand` for step `reader` alone; it has no other reader.
[[nodiscard]] std::optional<std::size_t> only_maker(const ScheduledProgram& scheduled,
                                                    loop::BufferId operand, std::size_t reader);
[[nodiscard]] bool contains(const std::vector<loop::BufferId>& list, loop::BufferId b);

class GemmSteps {
 public:
  GemmSteps(ScheduledProgram& scheduled, const abi::Target& device)
      : scheduled_(scheduled), device_(device), context_(*scheduled.program.context) {}

 protected:
  void for_each_product(const std::function<void(std::size_t, const MatmulStep&)>& write);
  // Removes the steps that were fused into another, and inserts the new ones.
  void finish();

  [[nodiscard]] const loop::Buffer& buffer(loop::BufferId b) const {
    return scheduled_.program.buffers[b];
  }
  [[nodiscard]] Param param(loop::BufferId b, ParamRole role) const;
  // Sizes, variables and the left operand.
  [[nodiscard]] GemmKernel problem_of(const MatmulStep& m, bool pairs) const;
  // Writes the library call's post-ops and the store of the result as epilogue; false: a post-op
  // has no such form.
  bool write_epilogue(const MatmulStep& m, GemmKernel& g, KernelStep& step) const;

  // The first step that reads the product, if the product's operands are not overwritten before it.
  struct Reader {
    std::size_t step = 0;
    bool is_only = false;  // the product has no other reader
  };
  [[nodiscard]] std::optional<Reader> reader(std::size_t s, const MatmulStep& m,
                                             const std::vector<loop::BufferId>& read) const;
  // Whether one of these steps may write one of the buffers, or memory that aliases one.
  [[nodiscard]] bool changes(const std::vector<loop::BufferId>& buffers, std::size_t first,
                             std::size_t last) const;
  bool join(const Reader& next, const MatmulStep& m, KernelStep& step) const;
  // Replaces the product, or the kernel that is its epilogue now; returns the index of the step.
  std::size_t place(std::size_t s, KernelStep step, const Reader* joined);
  // Step `maker` is fused into step `at`.
  void absorb(std::size_t maker, std::size_t at);

  ScheduledProgram& scheduled_;
  const abi::Target& device_;
  sym::Context& context_;
  std::map<std::size_t, Step> before_;  // new steps, each before another
  std::set<std::size_t> gone_;
};

}  // namespace inkle::schedule
