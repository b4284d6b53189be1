// What can be wrong with one call of a plan, for hosts that tell these from other errors.
#pragma once

#include "base/error.h"

namespace inkle::runtime::common {

// An argument is not what the plan was compiled for; nothing has run.
class WrongArgument : public UserError {
 public:
  using UserError::UserError;
};

// An index in a tensor lies outside of the tensor that it indexes.
class OutOfRange : public UserError {
 public:
  using UserError::UserError;
};

// There is no memory for a call, or for what a plan keeps.
class OutOfMemory : public UserError {
 public:
  using UserError::UserError;
};

}  // namespace inkle::runtime::common
