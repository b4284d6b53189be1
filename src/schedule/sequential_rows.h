// Sequential accumulation across rows: sums over columns in the kernel that has the rows, as a
// norm's backward needs them (a mixed-order reduction).
//
//   for m { s = reduce.sum j { g[m,j] }; for j { dx[m,j] = ... s ... } }
//   for j { dw[j] = reduce.sum m { g[m,j] * x[m,j] } }                  reads all of it again
// becomes
//   for p { for r { s = ...; for j { dx[...] = ...; t[j] += g * x } }; for j { part[p,j] = t[j] } }
//   for j { dw[j] = reduce.sum p { part[p,j] } }
//
// so that what both read is read once. The rows are split in parts; one worker takes the rows of a
// part in order and accumulates their columns, and the parts are added in order, so that the sums
// do not depend on threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "abi/target.h"
#include "schedule/group.h"

namespace inkle::schedule {

// Sums over columns of the rows that a nest reduces: nests, by their place in the program.
struct ColumnFamily {
  std::size_t rows = 0;
  std::vector<std::size_t> sums;
};

// Those of a program. `dense`: only of columns that lie next to each other in memory.
[[nodiscard]] std::vector<ColumnFamily> column_families(const loop::Program& program, bool dense);

// Splits the sums in parts where there are enough rows, and the columns of a part fit what a worker
// has; not where their rows divide in fewer than `least_parts`. Returns the buffers of the parts'
// sums.
[[nodiscard]] std::vector<loop::BufferId> split_columns(loop::Program& program,
                                                        const abi::Target& device,
                                                        std::span<const ColumnFamily> families,
                                                        std::int64_t least_parts = 0);

// The group of rows with such a nest, which sums the columns of a part, and its loops over the
// part's rows sequential; or nothing and the reason.
[[nodiscard]] std::optional<Group> join_sequential_rows(const Group& group, const loop::Nest& nest,
                                                        const loop::Program& program,
                                                        std::string& why_not);

}  // namespace inkle::schedule
