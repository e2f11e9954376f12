// How many bytes routing moves per token: the model behind the choice of the group size.
#pragma once

#include "reference/depth/plan.h"

namespace attnres {

/// Bytes per token that depth attention reads and writes, forward and backward, with groups of
/// `group` sites (1: one site at a time), rows of `row_bytes` per channel, float partial sums,
/// weights and statistics: what the kernels of cuda/depth are written to move, parameters apart.
struct PassBytes {
  double forward, backward;
};
PassBytes routing_bytes_by_pass(const DepthPlan& plan, int channels, int heads, int row_bytes,
                                int group);
/// Both passes together.
double routing_bytes_per_token(const DepthPlan& plan, int channels, int heads, int row_bytes,
                               int group);

/// The group size up to `max_group` that moves the fewest bytes.
int best_group(const DepthPlan& plan, int channels, int heads, int row_bytes, int max_group);

}  // namespace attnres
