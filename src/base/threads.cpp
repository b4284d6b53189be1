#include "base/threads.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#ifdef INKLE_STD_THREADS
#include <thread>
#include <vector>
#else
#include <omp.h>
#endif

#include "base/error.h"
#include "base/log.h"

namespace inkle {
namespace {

// libgomp's pool does not survive fork: the child's first parallel region waits for threads that do
// not exist. No active level means that parallel regions of libraries, too, run on one thread. The
// handler must be registered before any fork, hence at load time.
std::atomic<bool> in_forked_child = false;
[[maybe_unused]] const int fork_handler = pthread_atfork(nullptr, nullptr, [] {
  in_forked_child.store(true);
#ifndef INKLE_STD_THREADS
  omp_set_num_threads(1);
  omp_set_max_active_levels(0);
#endif
});

struct Range {
  std::int64_t begin;
  std::int64_t end;
};

// Part `index` of `parts` equal ones, the first few one longer.
Range part_of(Range range, std::int64_t index, std::int64_t parts) {
  const std::int64_t size = range.end - range.begin;
  const std::int64_t quotient = size / parts;
  const std::int64_t rest = size % parts;
  const std::int64_t begin = range.begin + index * quotient + std::min(index, rest);
  return {begin, begin + quotient + (index < rest ? 1 : 0)};
}

#ifdef INKLE_STD_THREADS

std::atomic<int> thread_count = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
thread_local bool in_region = false;

bool in_parallel() { return in_region; }
int pool_size() { return thread_count.load(); }
void set_pool_size(int count) { thread_count.store(count); }

void fork_join(ParallelBody body, void* context, Range range, std::int64_t parts) {
  std::vector<std::thread> threads;
  for (std::int64_t i = 1; i < parts; ++i) {
    threads.emplace_back([=] {
      in_region = true;
      const Range part = part_of(range, i, parts);
      body(context, part.begin, part.end);
    });
  }
  in_region = true;
  const Range part = part_of(range, 0, parts);
  body(context, part.begin, part.end);
  in_region = false;
  for (std::thread& thread : threads) thread.join();
}

#else

bool in_parallel() { return omp_in_parallel() != 0; }
int pool_size() { return omp_get_max_threads(); }
void set_pool_size(int count) { omp_set_num_threads(count); }

// The whole pool is always woken, spare threads return at once: libgomp ends threads that a smaller
// team leaves over, and the next full team would create them again.
void fork_join(ParallelBody body, void* context, Range range, std::int64_t parts) {
#pragma omp parallel default(none) shared(body, context, range, parts)
  {
    const std::int64_t team = std::min<std::int64_t>(parts, omp_get_num_threads());
    const std::int64_t index = omp_get_thread_num();
    if (index < team) {
      const Range part = part_of(range, index, team);
      body(context, part.begin, part.end);
    }
  }
}

#endif

// What parallel_for shares among its parts: the failure of the lowest part so far.
struct Task {
  function_ref<void(std::int64_t, std::int64_t)> body;
  std::mutex mutex;
  std::int64_t failed_at = 0;
  std::exception_ptr failure;
};

void run_part(void* context, std::int64_t first, std::int64_t last) {
  Task& task = *static_cast<Task*>(context);
  try {
    task.body(first, last);
  } catch (...) {
    const std::lock_guard lock(task.mutex);
    if (!task.failure || first < task.failed_at) {
      task.failure = std::current_exception();
      task.failed_at = first;
    }
  }
}

}  // namespace

int num_threads() {
  if (in_forked_child.load(std::memory_order_relaxed) || in_parallel()) return 1;
  return std::max(1, pool_size());
}

void set_num_threads(int count) {
  if (count < 1) user_error("the number of threads must be at least 1, not {}", count);
  set_pool_size(count);
}

LibraryThreads::LibraryThreads() noexcept {
  if (!in_forked_child.load(std::memory_order_relaxed) || pool_size() == 1) return;
  before_ = pool_size();
  set_pool_size(1);
}

LibraryThreads::~LibraryThreads() {
  if (before_ != 0) set_pool_size(before_);
}

void parallel_run(ParallelBody body, void* context, std::int64_t begin, std::int64_t end,
                  std::int64_t grain) noexcept {
  if (end <= begin) return;
  const std::int64_t most = (end - begin) / std::max<std::int64_t>(grain, 1);
  if (most > 1) {
    const std::int64_t parts = std::min<std::int64_t>(num_threads(), most);
    if (parts > 1) {
      fork_join(body, context, {begin, end}, parts);
      return;
    }
    if (in_forked_child.load(std::memory_order_relaxed)) {
      warn("base.fork", "this process was forked; parallel loops run on one thread");
    }
  }
  body(context, begin, end);
}

void parallel_for(std::int64_t begin, std::int64_t end, std::int64_t grain,
                  function_ref<void(std::int64_t, std::int64_t)> body) {
  Task task{.body = body};
  parallel_run(run_part, &task, begin, end, grain);
  if (task.failure) std::rethrow_exception(task.failure);
}

}  // namespace inkle
