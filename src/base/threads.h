// The only parallelism of the project: fork-join over an index range, in equal parts. Builds with
// INKLE_THREADS=openmp run on libgomp, the pool that torch and oneDNN use in the same process, and
// follow its number of threads; INKLE_THREADS=std is for the thread sanitizer.
#pragma once

#include <cstdint>

#include "base/function_ref.h"

namespace inkle {

// How many parts a range is cut into at most, in the calling thread (omp_get_max_threads, which
// torch.set_num_threads sets). One in a forked child, inside a parallel region, and never below
// one.
[[nodiscard]] int num_threads();
// For parallel calls of the calling thread; `count` below one throws UserError.
void set_num_threads(int count);

// Around a library's planning or running of parallel regions of its own: in a forked child its team
// has one thread, and a plan for the number that torch gives each new thread would leave a part of
// the work undone. The calling thread's number is one there while this lives; elsewhere as it was.
class LibraryThreads {
 public:
  LibraryThreads() noexcept;
  ~LibraryThreads();
  LibraryThreads(const LibraryThreads&) = delete;
  LibraryThreads& operator=(const LibraryThreads&) = delete;

 private:
  int before_ = 0;  // 0: nothing to restore
};

// Calls body(first, last) for consecutive parts that cover [begin, end) once, at most num_threads()
// of them, each but a lone one of at least `grain` indices (a grain below one counts as one);
// returns when all have ended. The partition depends on the arguments and num_threads() only. An
// empty range calls nothing. If parts throw, the exception of the first such part in index order is
// rethrown after all have ended.
void parallel_for(std::int64_t begin, std::int64_t end, std::int64_t grain,
                  function_ref<void(std::int64_t first, std::int64_t last)> body);

// The same for generated kernels: no allocation, no exception handling; `body` must not throw.
using ParallelBody = void (*)(void* context, std::int64_t first, std::int64_t last);
void parallel_run(ParallelBody body, void* context, std::int64_t begin, std::int64_t end,
                  std::int64_t grain) noexcept;

}  // namespace inkle
