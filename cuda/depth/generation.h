// Three implementations of the same equations, side by side.
#pragma once

namespace attnres {

enum class Generation {
  naive,    ///< one thread block per token, the equations as written
  fused,    ///< one pass per site and per source
  grouped,  ///< one pass per group of sites and per group of sources
};

}  // namespace attnres
