// Names of the closed sets, as texts and messages have them.
#include <array>

#include "kernel/names.h"

namespace inkle::kernel {

std::string_view name_of(Op op) { return kOps.name(op); }
std::string_view name_of(Holder holder) { return kHolders.name(holder); }
std::string_view name_of(FragmentLayout layout) { return kFragmentLayouts.name(layout); }
std::string_view name_of(Variance variance) { return kVariances.name(variance); }
std::string_view name_of(Space space) { return kSpaces.name(space); }
std::string_view name_of(Role role) { return kRoles.name(role); }
std::string_view name_of(Scope scope) { return kScopes.name(scope); }
std::string_view name_of(Order order) { return kOrders.name(order); }
std::string_view name_of(Form form) { return kForms.name(form); }
std::string_view name_of(Hint hint) { return kHints.name(hint); }

}  // namespace inkle::kernel
