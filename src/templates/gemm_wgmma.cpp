// Matrix products by wgmma; the header has the picture. Stages are counted through all tiles of a
// block, so that copies for the next tile go on while the sums of this one are stored. What lies
// behind the last row, column or term comes as zeros; only stores are masked.
#include "templates/gemm_wgmma.h"

#include <functional>

#include "base/error.h"
#include "kernel/builder.h"
#include "templates/gemm_body.h"

namespace inkle::templates {

using kernel::MemoryId;
using kernel::Op;
using kernel::ValueId;
using kernel::Values;
using loop::Opcode;

namespace {

constexpr std::int32_t kWarp = 32;
constexpr std::int32_t kWarps = 4;   // of a warpgroup
constexpr std::int32_t kRows = 64;   // of a warpgroup
constexpr std::int32_t kTerms = 16;  // of one multiplication
constexpr std::int32_t kLanes = 8;   // elements of a thread's accesses in the epilogue
constexpr std::int32_t kPadding = 8;
constexpr std::int32_t kPageBytes = 1024;  // eight rows under a swizzle of 128 bytes
constexpr std::int64_t kElement = 2;       // bytes of bf16
// Registers of a thread: 168 for each of 384 are what a multiprocessor has; multiplied sums take
// 128, and the producer needs few.
constexpr std::int32_t kProducerRegisters = 40, kConsumerRegisters = 232;

std::int32_t consumers_of(const WgmmaConfig& config) { return config.rows / kRows; }
std::int32_t launch_registers(const WgmmaConfig& config) {
  constexpr std::int32_t kAll = 65536, kGranule = 8;
  const std::int32_t threads = kWarps * kWarp * (consumers_of(config) + 1);
  return kAll / threads / kGranule * kGranule;
}

std::int64_t shared_bytes(const WgmmaConfig& config) {
  const std::int64_t stage = (config.rows + config.columns) * config.terms * kElement;
  const std::int64_t sums = config.rows * (config.slice + kPadding) * 4;
  return config.stages * (stage + 16) + sums;
}

// Mbarriers of the stages in shared memory, which are filled by bulk copies and freed by those who
// have read them; stages are numbered on from tile to tile.
class StageBarriers {
 public:
  StageBarriers(kernel::Builder& builder, std::int64_t stages) : b_(builder), stages_(stages) {}

  void declare() {
    for (MemoryId* barrier : {&full_, &empty_}) {
      kernel::Memory memory;
      memory.name = barrier == &full_ ? "full" : "empty";
      memory.space = kernel::Space::barrier;
      memory.dtype = DType::i64;
      memory.shape = {b_.context().constant(stages_)};
      memory.alignment = 8;
      *barrier = b_.memory(std::move(memory));
    }
  }
  [[nodiscard]] MemoryId full() const { return full_; }
  [[nodiscard]] Expr slot(Expr stage_number) const { return sym::mod(stage_number, stages_); }
  void init(Expr slot, std::int64_t readers) {
    count(Op::barrier_init, full_, slot, 1);
    count(Op::barrier_init, empty_, slot, readers);
  }
  void fill(Expr stage_number, std::int64_t bytes) {
    count(Op::barrier_arrive, full_, slot(stage_number), bytes);
  }
  void release(Expr stage_number) { count(Op::barrier_arrive, empty_, slot(stage_number), 0); }
  void wait_filled(Expr stage_number) { wait(full_, stage_number, 0); }
  void wait_free(Expr stage_number) { wait(empty_, stage_number, 1); }

 private:
  void count(Op op, MemoryId barrier, Expr at, std::int64_t amount) {
    kernel::Count detail;
    detail.access.memory = barrier;
    detail.access.indices = {at};
    detail.count = amount;
    b_.operation(op, {}, {}, detail);
  }
  void wait(MemoryId barrier, Expr stage_number, std::int64_t ahead) {
    kernel::Count detail;
    detail.access.memory = barrier;
    detail.access.indices = {slot(stage_number)};
    const Expr round = sym::floordiv(stage_number, stages_);
    b_.operation(Op::barrier_wait, {b_.cast(b_.index(sym::mod(round + ahead, 2)), DType::i32)}, {},
                 detail);
  }

  kernel::Builder& b_;
  std::int64_t stages_;
  MemoryId full_ = 0, empty_ = 0;
};

class WgmmaWriter {
 public:
  WgmmaWriter(const GemmProblem& problem, const WgmmaConfig& config, kernel::Kernel& made,
              sym::Context& context)
      : problem_(problem), config_(config), b_(made, context), barriers_(b_, config.stages) {
    parameters_ = begin_kernel(problem, b_);
    declare_maps();
    const Expr row_tiles = sym::ceildiv(problem.rows, config.rows);
    const Expr column_tiles = sym::ceildiv(problem.columns, config.columns);
    matrix_tiles_ = row_tiles * column_tiles;
    row_tiles_ = row_tiles;
    column_tiles_ = column_tiles;
    tiles_ = problem.batch * matrix_tiles_;
    blocks_ = sym::min(tiles_, number(config.blocks));
    stages_of_tile_ = sym::ceildiv(problem.terms, config.terms);
    block_ = b_.axis(kernel::AxisKind::grid, blocks_);
    group_ = b_.axis(kernel::AxisKind::thread, number(consumers_of(config) + 1));
    warp_ = b_.axis(kernel::AxisKind::thread, number(kWarps));
    lane_ = b_.axis(kernel::AxisKind::thread, number(kWarp));
    made.launch.resident_blocks = 1;
    made.launch.registers = launch_registers(config);
    declare_shared();
  }

  void run() {
    init_barriers();
    b_.barrier({});
    b_.operation(Op::dependency_wait, {}, {}, {});
    const std::int32_t consumers = kWarps * consumers_of(config_);
    kernel::Roles roles;
    roles.roles = {{"producer", 0, kWarps, kProducerRegisters},
                   {"consumers", kWarps, consumers, kConsumerRegisters}};
    const auto body = [](auto f) {
      return [f](const Values&) {
        f();
        return Values();
      };
    };
    b_.operation(Op::roles, {}, {}, roles,
                 {{{}, body([this] { produce(); })}, {{}, body([this] { consume(); })}});
  }

 private:
  using Indices = std::vector<Expr>;

  Expr number(std::int64_t v) { return b_.context().constant(v); }

  // --- Declarations

  void declare_maps() {
    for (std::size_t o = 0; o < problem_.boxes.size(); ++o) {
      const GemmBoxes& boxes = problem_.boxes[o];
      kernel::Memory map;
      map.name = o == 0 ? "map_a" : "map_b";
      map.space = kernel::Space::map;
      map.dtype = problem_.parameters[o].dtype;
      map.shape = boxes.sizes;
      map.of = parameters_[o];
      for (const std::int64_t extent : boxes.box) {
        map.box.push_back(static_cast<std::int32_t>(extent));
      }
      map.swizzle = boxes.swizzle;
      maps_.push_back(b_.parameter(std::move(map)));
    }
  }

  MemoryId shared(std::string name, DType dtype, Indices shape, std::int32_t alignment,
                  std::int32_t swizzle, std::int32_t padding) {
    kernel::Memory memory;
    memory.name = std::move(name);
    memory.space = kernel::Space::shared;
    memory.dtype = dtype;
    memory.shape = std::move(shape);
    memory.alignment = alignment;
    memory.swizzle = swizzle;
    memory.padding = padding;
    return b_.memory(std::move(memory));
  }

  MemoryId stages_of(std::string name, std::size_t operand) {
    Indices shape = {number(config_.stages)};
    for (const std::int64_t extent : problem_.boxes[operand].box) shape.push_back(number(extent));
    return shared(std::move(name), DType::bf16, std::move(shape), kPageBytes,
                  problem_.boxes[operand].swizzle, 0);
  }

  void declare_shared() {
    a_ = stages_of("sa", 0);
    b_stages_ = stages_of("sb", 1);
    sums_ =
        shared("sums", DType::f32, {number(config_.rows), number(config_.slice)}, 16, 0, kPadding);
    barriers_.declare();
  }

  // --- Small operations

  Values loop(Expr end, kernel::LoopKind kind, const Values& initial,
              const kernel::Builder::LoopBody& body) {
    return b_.loop(kind, end, initial, body);
  }
  void loop(Expr end, kernel::LoopKind kind, const std::function<void(Expr)>& body) {
    loop(end, kind, {}, [&](Expr i, const Values&) {
      body(i);
      return Values();
    });
  }
  void when(ValueId condition, const std::function<void()>& then) {
    b_.branch(condition, [&] {
      then();
      return Values();
    });
  }
  ValueId is(Opcode opcode, Expr x, Expr y) {
    return b_.compute(opcode, DType::boolean, {b_.index(x), b_.index(y)});
  }
  void plain(Op op) { b_.operation(op, {}, {}, {}); }
  void plain(Op op, std::int64_t amount) {
    kernel::Count detail;
    detail.count = amount;
    b_.operation(op, {}, {}, detail);
  }

  void init_barriers() {
    const Expr thread = group_ * (kWarps * kWarp) + warp_ * kWarp + lane_;
    when(is(Opcode::equal, thread, number(0)), [&] {
      loop(number(config_.stages), kernel::LoopKind::unroll,
           [&](Expr s) { barriers_.init(s, kWarps * consumers_of(config_)); });
      kernel::Fence fence;
      fence.scope = kernel::Scope::block;
      fence.proxy = true;
      b_.operation(Op::fence, {}, {}, fence);
    });
  }

  // --- Tiles, in groups of so many blocks of rows, down the columns of a group

  struct Tile {
    Expr batch, row, column;  // of the first element
  };
  Tile tile_of(Expr turn) {
    const Expr tile = block_ + turn * blocks_;
    const Expr batch = sym::floordiv(tile, matrix_tiles_);
    const Expr in_matrix = sym::mod(tile, matrix_tiles_);
    const Expr of_group = column_tiles_ * config_.group;
    const Expr first = sym::floordiv(in_matrix, of_group) * config_.group;
    const Expr in_group = sym::mod(in_matrix, of_group);
    const Expr height = sym::max(sym::min(row_tiles_ - first, number(config_.group)), number(1));
    return {batch, (first + sym::mod(in_group, height)) * config_.rows,
            sym::floordiv(in_group, height) * config_.columns};
  }
  // Calls f with a tile and the number of its first stage.
  void for_each_tile(const std::function<void(const Tile&, Expr)>& f) {
    loop(sym::ceildiv(tiles_ - block_, blocks_), kernel::LoopKind::serial,
         [&](Expr turn) { f(tile_of(turn), turn * stages_of_tile_); });
  }

  // --- Producer

  void copy(std::size_t operand, MemoryId to, const Tile& tile, Expr first, Expr term,
            Expr stage_number) {
    const bool has_batch = problem_.boxes[operand].sizes.size() == 3;
    kernel::Bulk bulk;
    bulk.map = maps_[operand];
    bulk.shared.memory = to;
    bulk.shared.indices.assign(has_batch ? 4 : 3, number(0));
    bulk.shared.indices[0] = barriers_.slot(stage_number);
    bulk.barrier.memory = barriers_.full();
    bulk.barrier.indices = {barriers_.slot(stage_number)};
    Values at;
    if (has_batch) at.push_back(b_.index(tile.batch));
    at.push_back(b_.index(first));
    at.push_back(b_.index(term));
    b_.operation(Op::tma_load, at, {}, bulk);
  }

  void produce() {
    when(is(Opcode::equal, warp_ * kWarp + lane_, number(0)), [&] {
      const std::int64_t bytes = (config_.rows + config_.columns) * config_.terms * kElement;
      for_each_tile([&](const Tile& tile, Expr first_stage) {
        loop(stages_of_tile_, kernel::LoopKind::serial, [&](Expr s) {
          const Expr n = first_stage + s;
          barriers_.wait_free(n);
          barriers_.fill(n, bytes);
          copy(0, a_, tile, tile.row, s * config_.terms, n);
          copy(1, b_stages_, tile, tile.column, s * config_.terms, n);
        });
      });
    });
  }

  // --- Consumers

  kernel::FragmentAccess tile_access(std::size_t operand, MemoryId from, Expr stage_number,
                                     Expr first, Expr term) {
    kernel::FragmentAccess tile;
    tile.access.memory = from;
    tile.access.indices = {barriers_.slot(stage_number)};
    if (problem_.boxes[operand].sizes.size() == 3) tile.access.indices.push_back(number(0));
    tile.access.indices.push_back(first);
    tile.access.indices.push_back(term);
    const Expr along = number(1), across = number(config_.terms);
    tile.row_stride = operand == 0 ? across : along;
    tile.column_stride = operand == 0 ? along : across;
    tile.rows = operand == 0 ? kRows : kTerms;
    tile.columns = operand == 0 ? kTerms : config_.columns;
    return tile;
  }

  void release(Expr stage_number, ValueId condition) {
    when(condition, [&] { barriers_.release(stage_number); });
  }

  ValueId multiply(Expr first_stage) {
    const kernel::Type type =
        b_.kernel().fragment_type({DType::f32, kRows, config_.columns, kernel::Holder::warpgroup,
                                   kernel::FragmentLayout::wgmma_c});
    const Expr row = (group_ - 1) * kRows;
    const Values zero = b_.operation(Op::fragment_fill, {b_.real(DType::f32, 0)}, {type}, {});
    const auto stage = [&](Expr s, const Values& before) {
      const Expr n = first_stage + s;
      barriers_.wait_filled(n);
      plain(Op::mma_fence);
      const auto step = [&](Expr k, const Values& sums) {
        kernel::MatrixMultiply multiply;
        multiply.unit = kernel::MatrixUnit::wgmma;
        multiply.shared = {tile_access(0, a_, n, row, k * kTerms),
                           tile_access(1, b_stages_, n, number(0), k * kTerms)};
        return b_.operation(Op::mma, sums, {type}, multiply);
      };
      const Values sums =
          loop(number(config_.terms / kTerms), kernel::LoopKind::unroll, before, step);
      plain(Op::mma_commit);
      plain(Op::mma_wait, 1);
      const ValueId is_later = is(Opcode::greater, s, number(0));
      const ValueId is_first = is(Opcode::equal, lane_, number(0));
      release(n - 1, b_.compute(Opcode::bit_and, DType::boolean, {is_later, is_first}));
      return sums;
    };
    const Values sums = loop(stages_of_tile_, kernel::LoopKind::serial, zero, stage);
    plain(Op::mma_wait, 0);
    release(first_stage + stages_of_tile_ - 1, is(Opcode::equal, lane_, number(0)));
    return sums[0];
  }

  void consume() {
    for_each_tile([&](const Tile& tile, Expr first_stage) {
      const ValueId sums = multiply(first_stage);
      loop(number(config_.columns / config_.slice), kernel::LoopKind::unroll, [&](Expr slice) {
        barrier_of_warp();
        stage_slice(sums, slice);
        barrier_of_warp();
        store_slice(tile, slice);
      });
    });
  }

  void barrier_of_warp() {
    kernel::Barrier barrier;
    barrier.scope = kernel::Scope::warp;
    b_.barrier(barrier);
  }

  // --- Epilogue: each warp has 16 rows of the tile, in slices of columns

  void stage_slice(ValueId sums, Expr slice) {
    kernel::FragmentMap map;
    map.row = b_.context().index(number(kRows));
    map.column = b_.context().index(number(config_.columns));
    const auto body = [&](const Values& elements) {
      when(is(Opcode::equal, sym::floordiv(map.column, config_.slice), slice), [&] {
        b_.store(sums_, {(group_ - 1) * kRows + map.row, sym::mod(map.column, config_.slice)},
                 elements[0]);
      });
      return Values();
    };
    b_.operation(Op::fragment_map, {sums}, {}, map, {{{kernel::scalar_type(DType::f32)}, body}});
  }

  void store_slice(const Tile& tile, Expr slice) {
    constexpr std::int32_t kWarpRows = kRows / kWarps;
    const std::int32_t across = config_.slice / kLanes;
    const std::int32_t down = kWarp / across;
    loop(number(kWarpRows / down), kernel::LoopKind::unroll, [&](Expr pass) {
      const Expr row =
          (group_ - 1) * kRows + warp_ * kWarpRows + pass * down + sym::floordiv(lane_, across);
      const Expr column = sym::mod(lane_, across) * kLanes;
      const Expr first = tile.column + slice * config_.slice + column;
      const auto write = [&] { store_vector(tile, row, column, first); };
      const auto write_columns = [&] {
        if (sym::divides(config_.columns, problem_.columns)) return write();
        when(is(Opcode::less, first, problem_.columns), write);
      };
      if (sym::divides(config_.rows, problem_.rows)) return write_columns();
      when(is(Opcode::less, tile.row + row, problem_.rows), write_columns);
    });
  }

  void store_vector(const Tile& tile, Expr row, Expr column, Expr first) {
    b_.vector(kLanes, kLanes, [&](Expr lane) {
      const auto write = [&] {
        const ValueId sum = b_.load(sums_, {row, column + lane}, kernel::Form::wide);
        GemmBody body(problem_, parameters_, b_, lane);
        body.constant_loads = true;
        body.store(sum, {tile.batch, tile.row + row, first + lane, {}});
      };
      if (sym::divides(kLanes, problem_.columns)) {
        write();
      } else {
        when(is(Opcode::less, first + lane, problem_.columns), write);
      }
      return Values();
    });
  }

  const GemmProblem& problem_;
  const WgmmaConfig& config_;
  kernel::Builder b_;
  StageBarriers barriers_;
  std::vector<MemoryId> parameters_, maps_;
  MemoryId a_ = 0, b_stages_ = 0, sums_ = 0;
  Expr row_tiles_, column_tiles_, matrix_tiles_, tiles_, blocks_, stages_of_tile_;
  Expr block_, group_, warp_, lane_;
};

bool copies_boxes(const GemmProblem& problem) { return problem.boxes.size() == 2; }

std::vector<WgmmaConfig> wgmma_configs(const GemmProblem&, const abi::Target& target) {
  std::vector<WgmmaConfig> configs;
  for (const abi::ProductTile& tile : target.products.tiles) {
    if (tile.rows == 0) continue;
    WgmmaConfig config;
    config.rows = tile.rows;
    config.columns = tile.columns;
    config.stages = tile.stages;
    config.terms = target.products.terms;
    config.group = target.products.group;
    config.blocks = target.parallelism;
    config.shared_bytes = target.l1_bytes;
    configs.push_back(config);
  }
  return configs;
}

std::string wgmma_needs(const GemmProblem& problem, const WgmmaConfig& config) {
  if (config.rows % kRows != 0 || config.columns % config.slice != 0 || config.columns > 256) {
    return fmt::format("tiles of {} x {}", config.rows, config.columns);
  }
  if (shared_bytes(config) > config.shared_bytes) {
    return fmt::format("{} bytes of shared memory", shared_bytes(config));
  }
  for (std::size_t o = 0; o < 2; ++o) {
    if (problem.parameters[o].dtype != DType::bf16) return "matrix products of another type";
    const GemmBoxes& boxes = problem.boxes[o];
    const std::int64_t rows = o == 0 ? config.rows : config.columns;
    if (boxes.swizzle != 128 || boxes.box.back() != config.terms ||
        boxes.box[boxes.box.size() - 2] != rows || boxes.sizes.size() > 3) {
      return "boxes that are no tiles";
    }
  }
  for (const loop::Instruction& i : problem.epilogue.instructions) {
    if (i.opcode == Opcode::indirect) return "an epilogue with indices from data";
    if (i.opcode == Opcode::row && i.integer != 0) return "an epilogue of other sums";
  }
  return {};
}

Estimate wgmma_estimate(const GemmProblem& problem, const WgmmaConfig& config) {
  return {problem.rows.context().constant(shared_bytes(config)),
          problem.batch * problem.rows * problem.columns * problem.terms * 2};
}

kernel::Kernel emit_wgmma(const GemmProblem& problem, const WgmmaConfig& config,
                          sym::Context& context) {
  kernel::Kernel made;
  WgmmaWriter(problem, config, made, context).run();
  return made;
}

constexpr WgmmaTemplate kTemplates[] = {
    {.name = "gemm_wgmma",
     .doc = "Matrix products of bf16 by wgmma, copied in boxes, any pointwise epilogue.",
     .matches = copies_boxes,
     .configs = wgmma_configs,
     .needs = wgmma_needs,
     .estimate = wgmma_estimate,
     .emit = emit_wgmma},
};

}  // namespace

std::string to_string(const WgmmaConfig& config) {
  return fmt::format("rows {} columns {} terms {} stages {} group {} blocks {} slice {}",
                     config.rows, config.columns, config.terms, config.stages, config.group,
                     config.blocks, config.slice);
}

std::span<const WgmmaTemplate> wgmma_templates() { return kTemplates; }

}  // namespace inkle::templates
