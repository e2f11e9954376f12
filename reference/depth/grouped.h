// Two-phase evaluation of depth attention for a group of consecutive sites, math.md section 3:
// phase 1 reads every source that was finished before the group once for all of its sites, phase 2
// merges the few that are born inside.  Exact: the merge is the online softmax's own.
#pragma once

#include "reference/depth/attention.h"

namespace attnres {

/// A softmax mix over part of the sources: running maximum, sum of exponentials, unnormalised mix.
template <class Scalar>
struct PartialMix {
  Matrix<Scalar> maximum;       ///< m [N, H]
  Matrix<Scalar> sum;           ///< z [N, H]
  Matrix<Scalar> unnormalised;  ///< u [N, D]
};

/// Phase 1 for the sites first_site .. first_site + mixes.size() - 1: folds the sources that exist
/// before first_site (i < first_site) into each site's mix, reading each source row once.
/// The logits s are left in state.weights for finish_grouped_site.
template <class Scalar>
void evaluate_group(const SourceBank<Scalar>& bank, const DepthPlan& plan, Index first_site,
                    RoutingState<Scalar>& state, std::span<PartialMix<Scalar>> mixes);

/// into = the mix over both sets of sources:
///   m = max(m1, m2);   z = e^(m1-m) z1 + e^(m2-m) z2;   u = e^(m1-m) u1 + e^(m2-m) u2.
template <class Scalar>
void merge(PartialMix<Scalar>& into, const PartialMix<Scalar>& other);

/// Phase 2 for one site: folds the sources born inside the group (i >= first_site) into its mix
/// one by one (a merge with a mix of one source), writes o = u / z [N, D], and turns the site's
/// logits into weights a = e^(s-m) / z.
template <class Scalar>
void finish_grouped_site(const SourceBank<Scalar>& bank, const DepthPlan& plan, Index site,
                         Index first_site, RoutingState<Scalar>& state, PartialMix<Scalar>& mix,
                         MatrixOut<Scalar> output);

}  // namespace attnres
