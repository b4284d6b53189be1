// A library that is opened at run time, so that Inkle builds and starts where there is none.
#pragma once

#include <dlfcn.h>
#include <fmt/format.h>

#include <initializer_list>
#include <memory>
#include <string>

namespace inkle::runtime::cuda {

// The functions of a library, or why there are none.
template <class Api>
struct Opened {
  std::unique_ptr<Api> api;
  std::string why_not;
};

// The first of the names that opens; null if none does. Never closed.
inline void* open_first(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
  }
  return nullptr;
}

// Looks functions up one after another; after the first that is missing, does nothing.
class Functions {
 public:
  explicit Functions(void* library) : library_(library) {}

  template <class F>
  Functions& get(const char* name, F& function) {
    if (!missing_.empty()) return *this;
    function = reinterpret_cast<F>(dlsym(library_, name));
    if (function == nullptr) missing_ = name;
    return *this;
  }
  // Null where there is none.
  template <class F>
  Functions& get_if(const char* name, F& function) {
    function = reinterpret_cast<F>(dlsym(library_, name));
    return *this;
  }
  [[nodiscard]] const std::string& missing() const { return missing_; }

 private:
  void* library_;
  std::string missing_;
};

}  // namespace inkle::runtime::cuda
