// The rewrite rules of the simplifier, each with its proof. The simplifier's code names the rule
// where it applies it; tests/sym/rules_test.cpp checks every row exhaustively on a small domain
// and that the left side becomes the right side.
//
// Facts: "k>0" a range, "j<n" an iteration variable with that extent (so 0 <= j and n > 0), "x%4"
// a known divisor. Symbols without a fact are any integer; divisors are never 0. A rule that needs
// k > 0 of a divisor's factor k is given with k>0; the code asks k >= 0, as 0 has no value.
// Where a number stands for any integer of its sign and divisibility, the row is one instance.
#pragma once

namespace inkle::sym {

struct Rule {
  const char* name;
  const char* left;
  const char* right;
  const char* facts;
  const char* proof;
};

// With x == n*q + r: q == floordiv(x,n), r == mod(x,n), r between 0 and n (n excluded).
inline constexpr Rule kRules[] = {
    // Sums and products (arith.cpp)
    {"collect", "x*3+y-x", "x*2+y", "", "distributive law"},
    {"distribute", "(x+2)*(y-3)", "x*y-x*3+y*2-6", "", "distributive law"},
    {"cancel_terms", "(x+y)*(x-y)-x*x", "-y*y", "", "distributive law"},
    // Division and remainder, each form for floordiv and for mod (divide.cpp)
    {"negate", "floordiv(x,-3)", "floordiv(-x,3)", "", "x/-n is the real number -x/n"},
    {"negate", "mod(x,-n)", "-mod(-x,n)", "", "x + n*floordiv(-x,n) == -(-x - n*floordiv(-x,n))"},
    {"extract", "floordiv(x*n+y,n)", "x+floordiv(y,n)", "", "(n*x+y)/n == x + y/n, x an integer"},
    {"extract", "mod(x*n+y,n)", "mod(y,n)", "", "n*x+y - n*(x+floordiv(y,n))"},
    {"extract", "floordiv(x*5+y,3)", "x+floordiv(x*2+y,3)", "", "5 == 3 + 2"},
    {"extract", "mod(x*5+y+7,3)", "mod(x*2+y+1,3)", "", "5 == 3 + 2, 7 == 6 + 1"},
    {"extract", "floordiv(x*(n+1)+y,n+1)", "x+floordiv(y,n+1)", "", "as for a single term"},
    {"in_range", "floordiv(j,n)", "0", "j<n", "0 <= j < n"},
    {"in_range", "mod(j,n)", "j", "j<n", "0 <= j < n"},
    {"in_range", "floordiv(i*n+j,n*m)", "0", "i<m, j<n", "i*n+j <= (m-1)*n + n-1 < m*n"},
    {"in_range", "floordiv(-1-j,n)", "-1", "j<n", "-n <= -1-j < 0"},
    {"in_range", "mod(n-1-j,n)", "n-1-j", "j<n", "0 <= n-1-j < n"},
    {"exact", "mod(x*n*2,n)", "0", "", "a multiple of n"},
    {"exact", "mod(x,2)", "0", "x%4", "x is a multiple of 4, so of 2"},
    {"by_fact", "floordiv(x*y+z,2)", "floordiv(x,2)*y+floordiv(z,2)", "x%2", "x/2 is an integer"},
    {"by_fact", "floordiv(x*3,4)", "floordiv(x,4)*3", "x%4", "x/4 is an integer"},
    {"by_fact", "mod(x*y+z,4)", "mod(z,4)", "x%4", "x*y is a multiple of 4"},
    {"cancel", "floordiv(x*4+y*8,8)", "floordiv(x+y*2,2)", "", "a common factor of a fraction"},
    {"cancel", "mod(x*4+y*8,12)", "mod(x+y*2,3)*4", "", "g*z - g*k*floordiv(z,k)"},
    {"cancel", "floordiv(x*n,n*m)", "floordiv(x,m)", "", "a common factor of a fraction"},
    {"cancel", "floordiv(x*4+3,8)", "floordiv(x,2)", "",
     "floordiv(floordiv(4*x+3,4),2), for nested floors merge when the outer divisor is > 0"},
    {"cancel", "floordiv(x*n+j,n*m)", "floordiv(x,m)", "j<n, m>0",
     "floordiv(floordiv(x*n+j,n),m) and 0 <= j < n"},
    {"cancel", "mod(x*n+j,n*m)", "mod(x,m)*n+j", "j<n, m>0",
     "x == m*q+t gives n*m*q + n*t+j with 0 <= n*t+j <= n*(m-1)+n-1"},
    {"nest", "floordiv(floordiv(x,m),n)", "floordiv(x,m*n)", "n>0",
     "floor(floor(w)/n) == floor(w/n) for real w and an integer n > 0"},
    {"nest", "floordiv(y+floordiv(x,m),n)", "floordiv(y*m+x,m*n)", "n>0",
     "the same with w == y + x/m"},
    {"quotient_of_mod", "floordiv(mod(x,m*n),n)", "mod(floordiv(x,n),m)", "m>0",
     "x == m*n*q + r: floordiv(x,n) == m*q + floordiv(r,n), where r/n lies in [0,m)"},
    {"strip", "mod(mod(x,m*n),n)", "mod(x,n)", "", "they differ by a multiple of m*n"},
    {"strip", "mod(mod(x,4)*3+y,6)", "mod(x*3+y,6)", "", "3*mod(x,4) is 3*x less a multiple of 12"},
    // Sums that contain divisions (recombine.cpp)
    {"identity", "floordiv(x,n)*n+mod(x,n)", "x", "", "definition of mod"},
    {"identity", "floordiv(x,n)*n*y+mod(x,n)*y+1", "x*y+1", "", "definition, times y"},
    {"identity", "x-floordiv(x,7)*7", "mod(x,7)", "", "definition of mod"},
    {"identity", "x-mod(x,n)", "floordiv(x,n)*n", "", "definition of mod"},
    {"identity", "floordiv(x,3)-floordiv(x,12)*4", "mod(floordiv(x,3),4)", "",
     "floordiv(x,12) is the quotient of floordiv(x,3) by 4"},
    {"exact_quotient", "floordiv(x,4)*4", "x", "x%8", "the remainder is 0"},
    {"exact_quotient", "floordiv(x,8)*2", "floordiv(x,4)", "x%8", "both are the fraction itself"},
    {"merge_mods", "mod(floordiv(x,n),m)*n+mod(x,n)", "mod(x,m*n)", "m>0",
     "quotient_of_mod and strip give both terms back from mod(x,m*n) by the identity"},
    // Extremes (minmax.cpp)
    {"dominated", "min(x,x+1,y)", "min(x,y)", "", "x <= x+1 always"},
    {"dominated", "max(j,n)", "n", "j<n", "j < n always"},
    {"dominated", "min(x,max(x,y))", "x", "", "x <= max(x,y)"},
    {"dominated", "max(x,min(x,y))", "x", "", "min(x,y) <= x"},
    {"flatten", "max(max(x,3),max(y,5))", "max(x,y,5)", "", "max is associative"},
};

}  // namespace inkle::sym
