// Weight gradients of strided 1x1 convolutions.
#include <algorithm>
#include <utility>

#include "loop/builder.h"
#include "schedule/buffers.h"
#include "schedule/rewrite.h"

namespace inkle::schedule {
namespace {

using loop::BodyBuilder;
using loop::Nest;
using loop::Program;

class PointGatherer {
 public:
  PointGatherer(Program& program, std::int64_t channels) : program_(program), channels_(channels) {}

  void run() {
    std::vector<Nest> result;
    for (Nest& nest : program_.nests) {
      if (auto* c = std::get_if<loop::Convolution>(&nest.detail);
          c != nullptr && is_wanted(nest, *c)) {
        result.push_back(gathered(nest.source, *c));
      }
      result.push_back(std::move(nest));
    }
    program_.nests = std::move(result);
  }

 private:
  bool is_wanted(const Nest& nest, const loop::Convolution& c) const {
    if (!c.weight_gradient) return false;
    const auto is_one = [](std::int64_t step) { return step == 1; };
    const auto is_none = [](std::int64_t padding) { return padding == 0; };
    if (std::ranges::all_of(c.stride, is_one) || !std::ranges::all_of(c.padding, is_none))
      return false;
    const auto channels = program_.buffers[c.x].sizes[1].constant();
    if (channels && *channels >= channels_) return false;
    const auto& weights = program_.buffers[nest.stores.front().buffer].sizes;
    return std::all_of(weights.begin() + 2, weights.end(),
                       [](Expr size) { return size.is_constant(1); });
  }

  // The copy; the convolution then reads it by single steps.
  Nest gathered(const std::string& source, loop::Convolution& c) {
    Nest copy;
    copy.label = "gather_points";
    copy.source = source;
    std::vector<Expr> sizes = program_.buffers[c.w].sizes;
    sizes[1] = program_.buffers[c.x].sizes[1];
    std::vector<Expr> place = add_loops(copy, sizes, *program_.context);
    std::vector<Expr> from = place;
    for (std::size_t d = 0; d < c.stride.size(); ++d) from[d + 2] = from[d + 2] * c.stride[d];
    BodyBuilder b(copy.body, *program_.context);
    b.yield(b.load(c.x, program_.buffers[c.x].dtype, std::move(from)));
    const loop::BufferId made = program_.add_buffer(
        temporary(program_, c.x, program_.buffers[c.x].dtype, std::move(sizes)));
    copy.stores.push_back({made, std::move(place), loop::StoreMode::overwrite, 0});
    c.x = made;
    std::ranges::fill(c.stride, 1);
    return copy;
  }

  Program& program_;
  std::int64_t channels_;
};

}  // namespace

void gather_points(Program& program, std::int64_t channels) {
  PointGatherer(program, channels).run();
}

}  // namespace inkle::schedule
