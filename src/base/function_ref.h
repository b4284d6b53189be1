// A view of a callable: two words, no allocation, no copy of what it refers to. For parameters that
// are called before the function returns.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

namespace inkle {

template <class Signature>
class function_ref;  // NOLINT(readability-identifier-naming): named as in the coming standard

template <class Result, class... Args>
class function_ref<Result(Args...)> {
 public:
  // `callable` must outlive the call it is passed to.
  template <class Callable>
  requires(!std::is_same_v<std::remove_cvref_t<Callable>, function_ref> &&
           std::is_invocable_r_v<Result, Callable&, Args...>)
      function_ref(Callable&& callable)  // NOLINT(google-explicit-constructor)
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(callable)))),
        call_([](void* object, Args... args) -> Result {
          return (*static_cast<std::remove_reference_t<Callable>*>(object))(
              std::forward<Args>(args)...);
        }) {}

  Result operator()(Args... args) const { return call_(object_, std::forward<Args>(args)...); }

 private:
  void* object_;
  Result (*call_)(void*, Args...);
};

}  // namespace inkle
