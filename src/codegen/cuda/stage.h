// The stages of a loop kernel as text, once its function has been begun.
#pragma once

#include <optional>
#include <string>

#include "codegen/cuda/body.h"
#include "schedule/keep.h"
#include "schedule/prepare.h"

namespace inkle::codegen::cuda {

using schedule::KeepPlan;
using schedule::KeptValue;
using schedule::Pass;
using schedule::PreparedKernel;
using schedule::PreparedReduction;
using schedule::PreparedStage;

// Static shared memory that every architecture gives a block, in bytes.
constexpr std::int64_t kStaticShared = 48 << 10;

// The loop over a part's rows, where a kernel walks them.
struct WalkText {
  std::int64_t rows = 0;   // of a part
  std::int32_t teams = 1;  // of a block; `q` is the number of the thread's
  // The outer variables of the row of this number, as lines.
  std::function<std::string(const std::string& row)> outer;
};

// A kernel's stages under its schedule. The function has defined: for a row's team `t`, the thread
// in it; for columns `y`, the thread in a column's team, and `on`, whether the columns exist.
class StageText {
 public:
  StageText(KernelText& kernel, const schedule::BlockSchedule& blocks, Writer& out,
            const Symbols& symbols, sym::Expr columns, std::optional<WalkText> walk = {});

  void write(const PreparedKernel& prepared);

 private:
  using Stage = schedule::Stage;

  struct Ahead {  // a load ahead of its use
    loop::Val value;
    std::string name;
    std::string text;
  };

  [[nodiscard]] bool by_rows() const {
    return blocks_.axis == schedule::BlockSchedule::Axis::inner;
  }
  void plan_passes();
  void phase(schedule::Phase phase);
  void pass(std::size_t number);
  void walk();
  void join_teams();
  [[nodiscard]] bool is_direct(const Stage& stage, const loop::Instruction& load) const;
  [[nodiscard]] bool is_of_row(const loop::Instruction& load) const;
  void plan_staged();
  void plan_numbers();
  void unstage(const Stage& stage, std::size_t pass);
  void stage_row(std::size_t pass, const std::string& row);
  [[nodiscard]] std::int64_t gathered_bytes() const;
  [[nodiscard]] std::int64_t gathered_bytes(const schedule::Scratch& scratch) const;
  [[nodiscard]] bool needs_barrier(const Stage& stage) const;
  void barrier();
  void note_written(const Stage& stage);
  // Whether a later stage reads along the row again what this one reads.
  [[nodiscard]] bool is_read_again(const Stage& stage) const;
  void declare_kept();
  [[nodiscard]] std::int64_t kept_registers() const;

  // Loops over the positions of a stage's inner loop; `f` writes what happens at one.
  using AtPlace = std::function<void(const Place& place)>;
  void positions(const Stage& stage, bool kept, const AtPlace& f);
  void batched(const Stage& stage, const Place& place, const std::string& first,
               const std::string& n, bool wide, std::int64_t step, const AtPlace& f,
               const AtPlace& whole);
  [[nodiscard]] Place row_place(const Stage& stage) const;
  void find_skew();
  // The offset whose remainder rows start at before their first element, or null.
  [[nodiscard]] sym::Expr skew_of(const Stage& stage) const;
  void ragged(const Stage& stage, const Place& place, const std::string& n, bool wide,
              std::int64_t step, const AtPlace& f);
  [[nodiscard]] Place column_place() const;
  void columns(const std::function<void()>& f);

  [[nodiscard]] BodyText body_of(const Stage& stage, const Place& place, std::size_t pass);
  void prefetch(const Stage& stage, std::size_t pass);

  void pointwise(const Stage& stage, std::size_t pass);
  void once(const Stage& stage);
  void tile(const Stage& stage);
  void tile_of_thread(const Stage& stage);
  void tile_of_block(const Stage& stage);
  [[noreturn]] void unsupported_tile() const;
  // Loads that lie along the last outer loop but one; `place` has its lanes along that.
  [[nodiscard]] std::vector<Ahead> turned_loads(const Stage& stage, const Place& place);
  [[nodiscard]] bool is_of_place(const loop::Instruction& load) const;
  void each_access(const std::string& square, const std::function<void()>& f);
  void store_all(const Stage& stage, BodyText& body);
  void reduction(const PreparedStage& prepared, std::size_t pass, int part);
  void simple_rows(const PreparedStage& prepared, std::size_t pass);
  void sums_of_row(const PreparedStage& prepared, std::size_t pass);
  void search_rows(const PreparedStage& prepared, std::size_t pass);
  void moments_kept(const PreparedStage& prepared, std::size_t pass, int part);
  void moments_rows(const PreparedStage& prepared, std::size_t pass);
  void exponentials_rows(const PreparedStage& prepared, std::size_t pass);
  void reduction_columns(const PreparedStage& prepared, std::size_t pass);
  void begin_columns(const PreparedReduction& reduction, std::size_t number, bool wide);
  static void add_to_column(Writer& out, const PreparedReduction& reduction, std::size_t number,
                            const std::string& x, const std::string& lane,
                            const std::string& position, bool wide);
  void end_columns(const PreparedReduction& reduction, std::size_t number, bool wide, bool single);
  void scan_rows(const Stage& stage, std::size_t pass);
  void scan_columns(const Stage& stage, std::size_t pass);

  [[nodiscard]] std::string team_result(const std::string& op, const std::string& type,
                                        const std::string& value);
  void define_row(std::uint32_t row, const std::string& value, DType from);

  // A load of a walked row that is under way to shared memory while the row before is worked on.
  // Each thread copies what it reads itself.
  struct Staged {
    std::size_t pass = 0;
    loop::Val value = 0;
    std::int64_t at = 0;     // bytes
    std::int64_t count = 0;  // of each thread
  };

  // A number of each walked row, loaded while the row before is worked on.
  struct Number {
    std::uint32_t buffer = 0;
    sym::Expr offset;
  };

  KernelText& kernel_;
  const schedule::BlockSchedule& blocks_;
  Writer& out_;
  const Symbols& symbols_;
  sym::Expr columns_;  // the last outer variable where lanes run along it
  std::optional<WalkText> walk_;
  std::vector<Staged> staged_;
  std::vector<Number> numbers_;
  std::size_t staged_passes_ = 0;
  std::vector<PreparedStage> stages_;
  sym::Expr skew_;         // at inner position 0
  sym::Expr skew_extent_;  // of the loops that it is for
  std::vector<Pass> passes_;
  KeepPlan keep_;
  std::vector<Ahead> batch_;
  bool reads_twice_ = false;   // what rows hold has been read, and is read again
  std::vector<bool> fetched_;  // kept values that are loaded ahead of their pass
  std::vector<bool> dirty_;    // buffers written since the last barrier, parameters then scratch
};

}  // namespace inkle::codegen::cuda
