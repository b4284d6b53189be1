// Matrix products of bf16 in tile registers of a core (AMX): a group of rows by a panel of columns
// at a time, in tiles of up to 16 rows, 16 columns and 16 pairs of terms.
//
//   sums [r][v] := 0                                     tiles; 2 x 2, or 1 x 3 of few rows
//   for each 16 pairs of terms
//     sums [r][v] += rows [r] * panel [v]
//   stores of epilogue(sums)                             by way of a block of the stack, in vectors
//
// Tiles are never masked. Panels have zeros behind the last column and term. A tile of rows that
// would end behind the last row begins so much earlier: those rows are computed twice and stored
// once. Where that cannot be, or terms are no whole tiles, rows are packed first.
#include "templates/gemm_tiles.h"

#include <optional>

#include "templates/gemm_task.h"

namespace inkle::templates {

using kernel::FragmentLayout;
using kernel::Holder;
using kernel::MemoryId;
using kernel::Op;
using kernel::Type;
using kernel::ValueId;
using kernel::Values;

namespace {

constexpr std::int64_t kSide = 16;  // rows, columns and pairs of a tile
// Pairs of a part, whose panel of 32 columns is 64 KB.
constexpr std::int64_t kPart = 512;

struct Tiles {
  std::int64_t down = 1, rows = 1;  // of a group; of a tile
  std::int64_t across = 1;          // of a panel
};

Tiles tiles_of(const GemmProblem& problem, const GemmConfig& config) {
  const std::int64_t group = gemm_rows(problem, config).group;
  Tiles tiles;
  tiles.down = (group + kSide - 1) / kSide;
  tiles.rows = (group + tiles.down - 1) / tiles.down;
  tiles.across = config.vectors * config.lanes / kSide;
  return tiles;
}

// In whole tiles.
GemmRows rows_of(const GemmProblem& problem, const GemmConfig& config) {
  const GemmRows rows = gemm_rows(problem, config);
  const Tiles tiles = tiles_of(problem, config);
  const std::int64_t group = tiles.rows * tiles.down;
  return {group, rows.padded / rows.group * group};
}

// Of the left operand, in elements.
std::optional<std::int64_t> row_stride(const GemmProblem& problem) {
  const Expr row = problem.variables[1];
  if (row.is_constant()) return 0;
  const auto stride = sym::stride(problem.a, row);
  return stride ? stride->constant() : std::nullopt;
}

// Whether tiles are loaded from the left operand in place.
bool lies_in_tiles(const GemmProblem& problem) {
  if (!problem.left.instructions.empty()) return false;
  const auto rows = row_stride(problem);
  const auto terms = sym::stride(problem.a, problem.variables[3]);
  return rows && terms && terms->is_constant(1) && problem.rows.is_constant() &&
         sym::divides(kSide, problem.terms);
}

bool is_one_part(const GemmProblem& problem, const GemmConfig& config) {
  return *problem.terms.constant() <= config.term_block;
}

class TileWriter : GemmTask {
 public:
  TileWriter(const GemmProblem& problem, const GemmConfig& config, kernel::Kernel& made,
             sym::Context& context)
      : GemmTask(problem, config, rows_of(problem, config), made, context),
        tiles_(tiles_of(problem, config)),
        one_part_(is_one_part(problem, config)),
        sum_(made.fragment_type(
            {DType::f32, side(tiles_.rows), side(kSide), Holder::tile, FragmentLayout::tile})),
        left_tile_(made.fragment_type(
            {DType::i32, side(tiles_.rows), side(kSide), Holder::tile, FragmentLayout::tile})),
        right_tile_(made.fragment_type(
            {DType::i32, side(kSide), side(kSide), Holder::tile, FragmentLayout::tile})) {
    if (!lies_in_tiles(problem)) declare_left();
    sum_columns_ = one_part_ ? problem.panel : config.column_block;
    sums_ = declare("sums", DType::f32, one_part_ ? rows_.group : rows_.padded, sum_columns_);
  }

  void run() {
    const std::int64_t terms = *problem_.terms.constant();
    const std::int64_t padded = (terms + kSide - 1) / kSide * kSide;
    if (one_part_) return add_terms(zero_, number(terms), number(padded), true);
    const auto part = [&](Expr first, bool is_first) {
      const auto end = [&](std::int64_t all) {
        return sym::min(number(all), first + config_.term_block);
      };
      add_terms(first, end(terms), end(padded), is_first);
    };
    part(zero_, true);
    loop(number(config_.term_block), number(terms), config_.term_block,
         [&](Expr first) { part(first, false); });
    in_groups([&](Expr c, Expr r) { store_group(r, c); });
  }

 private:
  static std::int32_t side(std::int64_t n) { return static_cast<std::int32_t>(n); }

  void in_groups(const std::function<void(Expr c, Expr r)>& body) {
    loop(zero_, column_count_, problem_.panel,
         [&](Expr c) { loop(zero_, row_count_, rows_.group, [&](Expr r) { body(c, r); }); });
  }

  // The products of terms [begin, end), which tiles take up to `padded`.
  void add_terms(Expr begin, Expr end, Expr padded, bool is_first) {
    if (left_ != kernel::kNone) {
      in_lanes([&] { pack_left(begin, end); });
    }
    in_groups([&](Expr c, Expr r) {
      const Values sums = multiply(r, c, begin, padded, is_first);
      for_each_tile([&](std::int64_t t, std::int64_t v, std::size_t number) {
        kernel::FragmentAccess to = access(sums_, sum_place(r, c, t, v), sum_columns_, tiles_.rows);
        b_.operation(Op::fragment_store, {sums[number]}, {}, to);
      });
      if (one_part_) store_group(r, c);
    });
  }

  void for_each_tile(
      const std::function<void(std::int64_t t, std::int64_t v, std::size_t number)>& body) const {
    std::size_t number = 0;
    for (std::int64_t t = 0; t < tiles_.down; ++t) {
      for (std::int64_t v = 0; v < tiles_.across; ++v) body(t, v, number++);
    }
  }

  Values multiply(Expr r, Expr c, Expr begin, Expr end, bool is_first) {
    Values initial;
    for_each_tile([&](std::int64_t t, std::int64_t v, std::size_t) {
      if (is_first) {
        initial.push_back(b_.operation(Op::fragment_fill, {b_.real(DType::f32, 0)}, {sum_}, {})[0]);
      } else {
        initial.push_back(load(sum_, sums_, sum_place(r, c, t, v), sum_columns_));
      }
    });
    const Expr panel = at(problem_.b, zero_, first_column_ + c, zero_);
    return write_loop(
        b_, begin, end, kSide, Runs::surely, initial, [&](Expr k, const Values& before) {
          Values left, next(before.size());
          for (std::int64_t t = 0; t < tiles_.down; ++t) left.push_back(left_tile(r, t, k, begin));
          for (std::int64_t v = 0; v < tiles_.across; ++v) {
            const ValueId right = load(right_tile_, parameters_[1],
                                       {panel + k * problem_.panel + v * kSide}, problem_.panel);
            for (std::int64_t t = 0; t < tiles_.down; ++t) {
              const auto number = static_cast<std::size_t>(t * tiles_.across + v);
              next[number] =
                  b_.operation(Op::mma, {before[number], left[static_cast<std::size_t>(t)], right},
                               {sum_}, kernel::MatrixMultiply{kernel::MatrixUnit::amx, {}})[0];
            }
          }
          return next;
        });
  }

  ValueId left_tile(Expr r, std::int64_t t, Expr k, Expr begin) {
    if (left_ != kernel::kNone) {
      return load(left_tile_, left_, {r + t * tiles_.rows, k - begin},
                  left_depth(problem_, config_));
    }
    return load(left_tile_, parameters_[0], {at(problem_.a, first_row(r, t), zero_, k)},
                *row_stride(problem_));
  }

  // Of the tile, whose rows as it would begin and as it does.
  Expr planned_row(Expr r, std::int64_t t) const { return first_row_ + r + t * tiles_.rows; }
  Expr first_row(Expr r, std::int64_t t) const {
    if (left_ != kernel::kNone || sym::divides(rows_.group, problem_.rows))
      return planned_row(r, t);
    return sym::min(planned_row(r, t), problem_.rows - tiles_.rows);
  }

  std::vector<Expr> sum_place(Expr r, Expr c, std::int64_t t, std::int64_t v) const {
    if (one_part_) return {first_sum(r, t), zero_ + v * kSide};
    return {first_sum(r, t), c + v * kSide};
  }
  // Of the sums' rows, that of the tile's first.
  Expr first_sum(Expr r, std::int64_t t) const { return (one_part_ ? zero_ : r) + t * tiles_.rows; }

  kernel::FragmentAccess access(MemoryId memory, std::vector<Expr> place, std::int64_t row_stride,
                                std::int64_t rows) {
    kernel::FragmentAccess made;
    made.access.memory = memory;
    made.access.indices = std::move(place);
    made.row_stride = number(row_stride);
    made.column_stride = number(1);
    made.rows = side(rows);
    made.columns = side(kSide);
    return made;
  }

  ValueId load(Type type, MemoryId memory, std::vector<Expr> place, std::int64_t row_stride) {
    const std::int64_t rows = b_.kernel().fragments[type.fragment].rows;
    return b_.operation(Op::fragment_load, {}, {type},
                        access(memory, std::move(place), row_stride, rows))[0];
  }

  // Stores what the epilogue makes of a group's sums.
  void store_group(Expr r, Expr c) {
    const Expr end = sym::min(c + problem_.panel, column_count_);
    const bool is_whole = sym::divides(problem_.panel, problem_.columns);
    in_lanes([&] {
      for (std::int64_t t = 0; t < tiles_.down; ++t) {
        const Expr first = r + t * tiles_.rows;
        // Of a tile that begins earlier, the rows before are another's.
        const Expr skipped = planned_row(r, t) - first_row(r, t);
        const Expr count = sym::min(number(tiles_.rows), row_count_ - first);
        loop(zero_, count, 1, [&](Expr i) {
          const auto vector = [&](Expr column) {
            store(first + i, column, first_sum(r, t) + skipped + i,
                  one_part_ ? column - c : column);
          };
          if (!is_whole) return in_vectors(c, end, problem_.columns, vector);
          for (std::int64_t v = 0; v < problem_.panel; v += config_.lanes) vector(c + v);
        });
      }
    });
  }

  Tiles tiles_;
  bool one_part_;
  Type sum_, left_tile_, right_tile_;
  std::int64_t sum_columns_ = 0;
};

}  // namespace

std::vector<GemmConfig> tile_configs(const GemmProblem& problem, const abi::Target& target) {
  GemmConfig config;
  config.lanes = target.vector_bytes / 4;
  config.rows = static_cast<std::int32_t>(problem.group);
  config.vectors = static_cast<std::int32_t>(problem.panel / config.lanes);
  config.term_block = kPart;
  return {config};
}

std::string tile_needs(const GemmProblem& problem, const GemmConfig& config) {
  if (config.lanes != kSide) return fmt::format("tiles beside {} lanes", config.lanes);
  const bool has_left = !problem.left.instructions.empty();
  for (const std::size_t p : {0U, 1U}) {
    if ((p == 1 || !has_left) && problem.parameters[p].dtype != DType::i32) {
      return "tiles: needs pairs of bf16";
    }
  }
  if (!problem.terms.is_constant()) return "tiles: needs a constant K";
  if (!problem.right.instructions.empty()) return "tiles with a computed operand";
  return {};
}

Estimate tile_estimate(const GemmProblem& problem, const GemmConfig& config) {
  constexpr std::int64_t kBytes = 4;
  const GemmRows rows = rows_of(problem, config);
  std::int64_t elements =
      is_one_part(problem, config) ? rows.group * problem.panel : rows.padded * config.column_block;
  if (!lies_in_tiles(problem)) elements += rows.padded * left_depth(problem, config);
  return {problem.rows.context().constant(elements * kBytes),
          problem.batch * problem.rows * problem.columns * problem.terms * 4};
}

kernel::Kernel emit_tile_gemm(const GemmProblem& problem, const GemmConfig& config,
                              sym::Context& context) {
  kernel::Kernel made;
  TileWriter(problem, config, made, context).run();
  return made;
}

}  // namespace inkle::templates
