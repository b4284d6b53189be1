// One connection to a Redis server that may be slow, wrong or hostile: it costs a bounded time and
// a bounded number of bytes.
#pragma once

#include <chrono>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

#include "cache/remote_options.h"

namespace inkle::cache {

struct Reply {
  enum class Kind { text, nothing, number, refusal };
  Kind kind = Kind::nothing;
  std::string text;  // of a refusal: why, printable
  long long number = 0;
};

class Redis {
 public:
  // Connects, gives the password and chooses the database. `most`: bytes of a reply. Throws
  // UserError.
  Redis(const Address& address, std::chrono::milliseconds timeout, std::size_t most);
  ~Redis();
  Redis(const Redis&) = delete;
  Redis& operator=(const Redis&) = delete;

  // Throws UserError if there is no such answer in time; the connection is of no use then.
  [[nodiscard]] Reply call(std::initializer_list<std::string_view> words);
  // False for one that was closed meanwhile, that has not been used for long, or that this process
  // has from the one that forked it.
  [[nodiscard]] bool is_usable() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace inkle::cache
