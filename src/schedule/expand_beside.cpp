#include "schedule/expand_beside.h"

#include "schedule/expand_last_block.h"

namespace inkle::schedule::expansion {
namespace {

using kernel::AxisKind;

struct Part {
  const LoopKernel* loops;
  const BlockSchedule* blocks;
  const std::optional<LastBlock>* last_block;
};

class BesideExpander {
 public:
  explicit BesideExpander(Expansion& first) : first_(first), b_(first.b) {
    const Kernel& kernel = first.scheduled;
    parts_.push_back({&first.loops, first.blocks, &kernel.last_block});
    for (const Beside& beside : kernel.beside) {
      parts_.push_back({&beside.loops, &beside.blocks, &beside.last_block});
    }
  }

  void run() {
    Expr all = constant(0);
    std::vector<BlockSchedule> schedules;
    for (const Part& part : parts_) {
      all = all + extent(part);
      schedules.push_back(*part.blocks);
      if (!*part.last_block) continue;
      for (const BlockSchedule& blocks : last_block_parts(**part.last_block, *part.blocks)) {
        schedules.push_back(blocks);
      }
    }
    const Expr block = b_.axis(AxisKind::grid, all);
    declare_threads(b_, schedules);
    from(0, block, constant(0));
  }

 private:
  Expr constant(std::int64_t value) const { return b_.context().constant(value); }
  Expr extent(const Part& part) const {
    return grid_extent(*part.loops, *part.blocks, b_.context());
  }

  // Parts from number p on, whose blocks count from `begin`.
  void from(std::size_t p, Expr block, Expr begin) {
    const Expr count = extent(parts_[p]);
    if (p + 1 == parts_.size()) return run(parts_[p], block - begin, count);
    const Expr end = begin + count;
    b_.branch(
        logic(b_, loop::Opcode::less, {b_.index(block), b_.index(end)}),
        [&] {
          run(parts_[p], block - begin, count);
          return kernel::Values();
        },
        [&] {
          from(p + 1, block, end);
          return kernel::Values();
        });
  }

  void run(const Part& part, Expr number, Expr count) {
    expand_part(first_, *part.loops, *part.blocks, [&](Expansion& e) {
      const Expr block = bind_new(b_, number, count);
      if (*part.last_block) return expand_last_block(e, **part.last_block, block);
      BlockExpansion x{e, *part.blocks, prepare_block(e)};
      x.block = block;
      expand_block(x);
    });
  }

  Expansion& first_;
  kernel::Builder& b_;
  std::vector<Part> parts_;
};

}  // namespace

void expand_beside(Expansion& first) { BesideExpander(first).run(); }

}  // namespace inkle::schedule::expansion
